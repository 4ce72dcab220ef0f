"""The sender makes an attempt: the headers of the wire format, two signatures, one POST, and its outcome.

Everything that depends on the receiver alone (its parsed URL, its keys, its own headers) is prepared once for
each configuration and cached; an attempt adds the rest. Values of producers were checked when the message was
read, those of receivers when the configuration was read, and the transport checks the finished head again.
"""

import random
import time
from collections.abc import Callable

from msgspec import Struct

from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.policy import Policy, is_sent
from actors.ports import Attempt
from angarium import __version__
from angarium.delivery.http_exchange.target import InvalidTarget, Target, parse_target
from angarium.delivery.http_exchange.transport import (
    DIRECT,
    Failure,
    FailureKind,
    Request,
    Response,
    Route,
    Transport,
)
from angarium.delivery.signing import InvalidSecret, SigningSecret, parse_secret, sign

PREPARED_MAX = 8192
"""Receivers whose preparation is cached, some 2 kB each; the oldest are dropped first."""

_USER_AGENT = f"user-agent: Angarium/{__version__}".encode()


class _Prepared(Struct, frozen=True):
    """A configuration, made ready. `lines` are headers of every attempt; the repr hides them.

    `old_secrets` also sign, each until a time in seconds since the epoch.
    """

    policy: Policy
    target: Target
    route: Route
    secrets: tuple[SigningSecret, ...]
    old_secrets: tuple[tuple[float, SigningSecret], ...]
    lines: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"_Prepared({self.target})"


class HttpSender:
    """A `Sender` over any transport. `clock` is in seconds since the epoch.

    `traceparent` makes the header of each attempt if traces are exported; else `ids` makes trace ids. `route`
    finds the profiles that a configuration names.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Callable[[], float] = time.time,
        ids: random.Random | None = None,
        traceparent: Callable[[Attempt], bytes] | None = None,
        route: Callable[[Policy], Route] = lambda policy: DIRECT,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._ids = ids or random.Random()
        self._traceparent = traceparent or self._drawn_traceparent
        self._route = route
        self._prepared: dict[str, _Prepared] = {}

    async def send(self, attempt: Attempt) -> Outcome:
        """See `Sender`."""
        prepared = self._prepared.get(attempt.receiver)
        if prepared is None or prepared.policy is not attempt.policy:
            try:
                prepared = self._prepare(attempt.receiver, attempt.policy)
            except (InvalidTarget, InvalidSecret) as error:
                return Failed(error=FailureKind.BLOCKED.value, detail=str(error), latency_ms=0.0)
        outcome = await self._transport.post(
            Request(
                receiver=attempt.receiver,
                target=prepared.target,
                lines=self._lines(attempt, prepared),
                body=attempt.event.body,
                timeout_s=attempt.policy.timeout_s,
                may_start=attempt.may_start,
                route=prepared.route,
            )
        )
        return _outcome(outcome)

    def _prepare(self, receiver: str, policy: Policy) -> _Prepared:
        prepared = _Prepared(
            policy=policy,
            target=parse_target(policy.url),
            route=self._route(policy),
            secrets=tuple(parse_secret(text, f"secrets[{i}]") for i, text in enumerate(policy.secrets)),
            old_secrets=tuple(
                (old.until.timestamp(), parse_secret(old.secret, f"old_secrets[{i}].secret"))
                for i, old in enumerate(policy.old_secrets)
            ),
            lines=(_USER_AGENT, *_own_lines(policy.headers)),
        )
        self._prepared.pop(receiver, None)
        while len(self._prepared) >= PREPARED_MAX:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[receiver] = prepared
        return prepared

    def _lines(self, attempt: Attempt, prepared: _Prepared) -> tuple[bytes, ...]:
        event, secrets, now = attempt.event, prepared.secrets, self._clock()
        if prepared.old_secrets:
            secrets += tuple(secret for until, secret in prepared.old_secrets if now < until)
        event_id, timestamp, sequence = event.id.encode(), int(now), attempt.sequence
        lines: tuple[bytes, ...] = (
            b"webhook-id: " + event_id,
            b"webhook-timestamp: %d" % timestamp,
            b"angarium-event: " + event.type.encode(),
            b"angarium-attempt: %d" % attempt.ordinal,
            b"content-type: " + event.content_type.encode(),
            b"traceparent: " + self._traceparent(attempt),
        )
        if secrets:
            lines += (b"webhook-signature: " + sign(secrets, event_id, timestamp, event.body),)
        if sequence is not None:
            lines += (b"angarium-sequence: %d" % sequence,)
            if secrets:
                lines += (b"angarium-signature: " + sign(secrets, event_id, sequence, event.body),)
        if event.again:
            lines += (b"angarium-again: " + event.again.encode(),)
        if event.tracestate:
            lines += (b"tracestate: " + event.tracestate.encode(),)
        return lines + prepared.lines

    def _drawn_traceparent(self, attempt: Attempt) -> bytes:
        """A span of its own for the attempt, in the producer's trace or in a new one (W3C Trace Context)."""
        event = attempt.event
        drawn = self._ids.getrandbits(192)
        span = drawn >> 128 or 1
        if event.traceparent:
            _, trace, _, flags = event.traceparent.split("-")
            return f"00-{trace}-{span:016x}-{flags}".encode()
        # Sampled: a receiver that follows its caller's flag would otherwise not trace this request at all.
        return b"00-%032x-%016x-01" % (drawn % (1 << 128) or 1, span)


def _own_lines(headers: dict[str, str]) -> list[bytes]:
    """The receiver's own headers, without any that would repeat or override another."""
    own: dict[str, str] = {}
    for name, value in headers.items():
        if is_sent(name):
            own.setdefault(name.lower(), value)
    return [
        b"%b: %b" % (name.encode("ascii"), value.strip(" \t").encode("latin-1"))
        for name, value in own.items()
    ]


def _outcome(outcome: Response | Failure) -> Outcome:
    """Translates the transport's result into an outcome of `actors`."""
    latency_ms = round(outcome.latency_s * 1000, 3)
    if isinstance(outcome, Response):
        return Answered(
            status=outcome.status, latency_ms=latency_ms, headers=outcome.headers, body=outcome.body,
            size=outcome.size,
        )  # fmt: skip
    if outcome.kind is FailureKind.LEASE:
        return NotSent(why=outcome.detail)
    return Failed(
        error=outcome.kind.value, detail=outcome.detail, latency_ms=latency_ms, status=outcome.status
    )
