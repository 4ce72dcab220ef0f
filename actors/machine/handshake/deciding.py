"""Decides which facts follow from a handshake."""

from typing import Any, TypeGuard

from actors.configuration.policy import Policy
from actors.ids import fraction
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.backoff import backoff_s, longest_backoff_s
from actors.machine.bucket import Bucket, with_limit
from actors.machine.handshake.proof import current_handshake, handshake_key, limit_in_force
from actors.machine.outcome import DISABLE, Answered, Failed, Verdict, judge, retry_after_s
from actors.machine.state import Handshake, State

ALLOWED_RATE = "webhook-allowed-rate"
"""The header in which a receiver allows so many requests a minute, or `*`: any number."""
PER_MINUTE_MAX = 999_999_999
"""The most requests a minute that are recorded as allowed; a higher number is taken as this one."""
PAUSE_MIN_S, PAUSE_CAP_S = 2.0, 60.0
"""The shortest pause after the first failed handshake, doubled by each further one up to the second: the URL
may be that of a stranger, so the receiver's own backoff cannot make it shorter."""
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
    if is_proof(outcome):
        per_minute = allowed_per_minute(outcome) if policy.handshake == "cloudevents" else None
        facts: list[f.Fact] = [f.HandshakeSucceeded(per_minute=per_minute, **common)]
        passed = Handshake(key=command.key, verified=True, per_minute=per_minute)
        limit = limit_in_force(policy, passed)
        if limit != state.limit:
            granted = with_limit(limit, bucket, before=state.limit, at=at, epoch=command.epoch, unused=False)
            facts.append(f.RateSet(receiver=receiver, limit=limit, bucket=granted))
        return facts
    asks_to_stop = isinstance(outcome, Answered) and outcome.says(DISABLE)
    verdict = Verdict.GONE if asks_to_stop else judge(outcome, at)
    failures = known.failures + 1
    wait_s = backoff_s(policy.retry.base_s, policy.retry.cap_s, failures, fraction(receiver, 0, failures))
    if verdict is Verdict.THROTTLED and isinstance(outcome, Answered):
        wait_s = retry_after_s(outcome, at) or wait_s
    wait_s = max(wait_s, longest_backoff_s(PAUSE_MIN_S, PAUSE_CAP_S, failures))
    failed = f.HandshakeFailed(
        error=_error(outcome), next_at=at + wait_s,
        until=at + wait_s if verdict is Verdict.THROTTLED else 0.0,
        ours=isinstance(outcome, Failed) and outcome.is_our_failure, **common,
    )  # fmt: skip
    if verdict is not Verdict.GONE:
        return [failed]
    return [failed, f.Disabled(receiver=receiver, at=at, reason="asked" if asks_to_stop else "gone")]


def is_proof(outcome: Answered | Failed) -> TypeGuard[Answered]:
    """True if the receiver proved itself: the sender makes a 2xx without the proof a failure.

    A 2xx that disables the receiver comes as it is, and proves nothing.
    """
    return isinstance(outcome, Answered) and 200 <= outcome.status < 300 and not outcome.says(DISABLE)


def allowed_per_minute(answer: Answered) -> int | None:
    """The lowest number of requests a minute that a receiver allows; None if it sets no limit."""
    named = [each.lstrip("0") for each in allowed_rates(answer) if is_allowed_rate(each) and each != "*"]
    # Python refuses to read a number of thousands of digits.
    longest = len(str(PER_MINUTE_MAX))
    return min([int(each) if len(each) <= longest else PER_MINUTE_MAX for each in named], default=None)


def allowed_rates(answer: Answered) -> list[str]:
    """The values of that header in an answer, which may have several."""
    return [value.strip() for name, value in answer.headers if name == ALLOWED_RATE]


def is_allowed_rate(text: str) -> bool:
    """True for the value of that header as CloudEvents defines it: `*`, or a whole number from 1 on."""
    return text == "*" or (text.isascii() and text.isdigit() and text.strip("0") != "")


def _error(outcome: Answered | Failed) -> str:
    if isinstance(outcome, Failed):
        return f"{outcome.error}: {outcome.detail}"[:_ERROR_LENGTH_MAX]
    return f"HTTP {outcome.status}"
