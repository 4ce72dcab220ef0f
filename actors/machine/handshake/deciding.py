"""Decides which facts follow from a handshake."""

from typing import Any

from actors.configuration.policy import Policy
from actors.ids import fraction
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.backoff import backoff_s
from actors.machine.bucket import Bucket, with_limit
from actors.machine.handshake.verification import current_handshake, handshake_key, limit_in_force
from actors.machine.outcome import DISABLE, Answered, Failed, Verdict, judge, retry_after_s
from actors.machine.state import Handshake, State

ALLOWED_RATE = "webhook-allowed-rate"
"""The header in which a receiver allows so many requests a minute, or `*`: any number."""
_NUMBER_LENGTH_MAX = 9
_ERROR_LENGTH_MAX = 300


def handshake_started(state: State, policy: Policy, at: float, bucket: Bucket | None) -> f.Fact:
    """The fact that a handshake took its token."""
    return f.HandshakeStarted(receiver=state.receiver, at=at, key=handshake_key(policy), bucket=bucket)


def handshake_ended(
    state: State, policy: Policy, command: c.RecordHandshake, at: float, bucket: Bucket | None
) -> list[f.Fact]:
    """The facts about a handshake that is over; none if what it was about is not in force any more.

    Then the URL or a secret was changed, or the receiver was removed.
    """
    known = current_handshake(state, policy)
    if known is None or known.key != command.key:
        return []
    outcome, receiver = command.outcome, state.receiver
    common: dict[str, Any] = {
        "receiver": receiver, "at": at, "key": command.key, "status": outcome.status,
        "latency_ms": outcome.latency_ms,
    }  # fmt: skip
    verdict = judge(outcome, at)
    if verdict is Verdict.DELIVERED and isinstance(outcome, Answered):
        allowed = outcome.header(ALLOWED_RATE) if policy.handshake == "cloudevents" else None
        per_minute = allowed_per_minute(allowed)
        facts: list[f.Fact] = [f.HandshakeSucceeded(per_minute=per_minute, **common)]
        passed = Handshake(key=command.key, verified=True, per_minute=per_minute)
        limit = limit_in_force(policy, passed)
        if limit != state.limit:
            granted = with_limit(limit, bucket, at=at, epoch=command.epoch, unused=False)
            facts.append(f.RateSet(receiver=receiver, limit=limit, bucket=granted))
        return facts
    failures = known.failures + 1
    delay_s = backoff_s(policy.retry.base_s, policy.retry.cap_s, failures, fraction(receiver, 0, failures))
    asked_s = None
    if verdict is Verdict.THROTTLED and isinstance(outcome, Answered):
        asked_s = retry_after_s(outcome, at)
    failed = f.HandshakeFailed(
        error=_error(outcome), next_at=at + (asked_s or delay_s), until=at + asked_s if asked_s else 0.0,
        ours=isinstance(outcome, Failed) and outcome.ours, **common,
    )  # fmt: skip
    if verdict is not Verdict.GONE:
        return [failed]
    reason = "asked" if isinstance(outcome, Answered) and outcome.says(DISABLE) else "gone"
    return [failed, f.Disabled(receiver=receiver, at=at, reason=reason)]


def allowed_per_minute(text: str | None) -> int | None:
    """The number of requests that a receiver allows a minute; None if it sets no limit."""
    text = (text or "*").strip()
    return int(text) if is_allowed_rate(text) and text != "*" else None


def is_allowed_rate(text: str) -> bool:
    """True for the value of that header as CloudEvents defines it: `*`, or a whole number from 1 on."""
    if text == "*":
        return True
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_LENGTH_MAX and int(text) > 0


def _error(outcome: Answered | Failed) -> str:
    if isinstance(outcome, Failed):
        return f"{outcome.error}: {outcome.detail}"[:_ERROR_LENGTH_MAX]
    return f"HTTP {outcome.status}"
