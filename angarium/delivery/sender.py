"""The sender makes an attempt: the headers of the wire format, two signatures, one POST, and its outcome.

Everything that depends on the receiver alone (its URL, its keys, the headers of its configuration)
is prepared once for each configuration and cached; an attempt adds the rest. Values of producers were checked
when the message was read, those of receivers when the configuration was read, and the transport checks the
finished head again.
"""

import math
import random
import time
from collections.abc import Callable
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.configuration.problems import is_sent
from actors.machine.backoff import longest_backoff_s
from actors.machine.event import Event
from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium import __version__
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.custom_signing import CustomSigner, custom_signer
from angarium.delivery.formats import envelope, format_event
from angarium.delivery.handshake import USUAL_ORIGIN, check_proof, origin_lines, question
from angarium.delivery.http_exchange.target import InvalidTarget, Target, parse_target
from angarium.delivery.http_exchange.transport import (
    NO_PROFILES,
    Failure,
    FailureKind,
    ProfileNames,
    Request,
    Response,
    Transport,
)
from angarium.delivery.own_outage.outage_detector import CONTACT, OutageDetector
from angarium.delivery.shaping.body_shaper import BodyShaper
from angarium.delivery.signing import InvalidSecret, SigningSecret, parse_secret, sign

SILENT_MIN_S = 3.0
"""Time without a reaction to a request for a connection from which on a host counts as unreached: a receiver
with a shorter timeout must not stop its neighbours."""
BATCH_TYPE = "angarium.batch"
"""The type of a POST with several events."""
PREPARED_MAX = 8192
"""Receivers whose preparation is cached, some 2 kB each; the oldest are dropped first."""

_USER_AGENT = f"user-agent: Angarium/{__version__}".encode()


class _Prepared(Struct, frozen=True):
    """A configuration, made ready. `lines` are headers of every attempt; the repr hides them.

    `old_secrets` also sign, each until a time in seconds since the epoch. `first_next` is the header about
    the next attempt that a first one has, unless the event expires within `first_next_s`.
    """

    policy: Policy
    target: Target
    profiles: ProfileNames
    secrets: tuple[SigningSecret, ...]
    old_secrets: tuple[tuple[float, SigningSecret], ...]
    custom_signer: CustomSigner | None
    lines: tuple[bytes, ...]
    first_next: bytes
    first_next_s: float

    def __repr__(self) -> str:
        return f"_Prepared({self.target})"


class HttpSender:
    """A `Sender` over any transport. `clock` is in seconds since the epoch.

    `traceparent` makes the header of each attempt if traces are exported; else `ids` makes trace ids.
    `profile_names` finds the profiles that a configuration names. `origin` names the sender in handshakes.
    `detector` judges failures that may be an outage of this node; `down_hosts` learns from all others.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Callable[[], float] = time.time,
        ids: random.Random | None = None,
        traceparent: Callable[[Attempt | BatchAttempt], bytes] | None = None,
        profile_names: Callable[[Policy], ProfileNames] = lambda policy: NO_PROFILES,
        origin: str = USUAL_ORIGIN,
        detector: OutageDetector | None = None,
        down_hosts: DownHosts | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._ids = ids or random.Random()
        self._traceparent = traceparent or self._drawn_traceparent
        self._profile_names = profile_names
        self._origin = origin
        self._detector = detector
        self._down_hosts = down_hosts
        self._prepared: dict[str, _Prepared] = {}
        self._shaper = BodyShaper()

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        """See `Sender`."""
        prepared = self._prepared.get(attempt.receiver)
        if prepared is None or prepared.policy is not attempt.policy:
            try:
                prepared = self._prepare(attempt.receiver, attempt.policy)
            except (InvalidTarget, InvalidSecret) as error:
                return Failed(error=FailureKind.BLOCKED.value, detail=str(error), latency_ms=0.0)
        if attempt.shapings:
            shaped = await self._shaper.shaped(attempt)
            if isinstance(shaped, NotSent):
                return shaped
            attempt = shaped
        body_format, number = attempt.policy.format, None
        match attempt:
            case BatchAttempt():
                event, number = _joined(attempt)
                body, lines = event.body, self._lines(attempt, prepared, event, number, event.body)
            case Attempt(kind="handshake"):
                return await self._handshake(attempt, prepared)
            case Attempt(event=event, sequence=sequence):
                if sequence is not None:
                    number = b"%d" % sequence
                # The published bytes are passed on without a detour, which costs nothing.
                if body_format == "raw":
                    body, lines = event.body, self._lines(attempt, prepared, event, number, event.body)
                else:
                    formatted = format_event(body_format, attempt.receiver, event, sequence)
                    event, body = replace(event, content_type=formatted.content_type), formatted.body
                    lines = self._lines(attempt, prepared, event, number, body) + formatted.lines
            case _:
                assert_never(attempt)
        hosts = self._down_hosts if prepared.profiles.proxy is None else None
        if hosts is not None and hosts.count:
            hosts.begun(attempt.receiver, prepared.target)
        try:
            answer = await self._transport.post(
                Request(
                    receiver=attempt.receiver,
                    target=prepared.target,
                    lines=lines,
                    body=body,
                    timeout_s=attempt.policy.timeout_s,
                    may_start=attempt.may_start,
                    profiles=prepared.profiles,
                )
            )
            outcome, detector = _outcome(answer), self._detector
            if detector is not None and (detector.awaits_contact or not isinstance(outcome, Answered)):
                outcome = await detector.attributed_outcome(attempt.receiver, attempt.policy, outcome)
        except BaseException:
            # Its shard may go to another node meanwhile; the receivers of other shards wait for this turn.
            if hosts is not None:
                hosts.ended(attempt.receiver, prepared.target)
            raise
        if hosts is not None and (hosts.count or not isinstance(outcome, Answered)):
            _tell(hosts, attempt.receiver, prepared.target, answer, outcome)
        return outcome

    async def _handshake(self, attempt: Attempt, prepared: _Prepared) -> Outcome:
        """Ask for the proof that the configuration requires, within the same bounds as an attempt."""
        policy, asked = attempt.policy, question(attempt.policy, self._origin)
        answer = await self._transport.post(
            Request(
                receiver=attempt.receiver,
                target=prepared.target,
                lines=(*asked.lines, *prepared.lines),
                body=b"",
                timeout_s=policy.timeout_s,
                may_start=attempt.may_start,
                profiles=prepared.profiles,
                method=asked.method,
            )
        )
        outcome = _outcome(answer)
        if self._detector is not None:
            outcome = await self._detector.attributed_outcome(attempt.receiver, policy, outcome)
        return outcome if isinstance(outcome, NotSent) else check_proof(outcome, asked, policy, self._clock())

    def _prepare(self, receiver: str, policy: Policy) -> _Prepared:
        first_next_s = next_attempt_s(policy, 0)
        prepared = _Prepared(
            policy=policy,
            target=parse_target(policy.url),
            profiles=self._profile_names(policy),
            secrets=tuple(parse_secret(text, f"secrets[{i}]") for i, text in enumerate(policy.secrets)),
            old_secrets=tuple(
                (old.until.timestamp(), parse_secret(old.secret, f"old_secrets[{i}].secret"))
                for i, old in enumerate(policy.old_secrets)
            ),
            custom_signer=custom_signer(policy),
            lines=(*origin_lines(policy, self._origin), _USER_AGENT, *_configured_lines(policy)),
            first_next=b"" if first_next_s is None else _next_line(first_next_s),
            first_next_s=first_next_s or 0.0,
        )
        self._prepared.pop(receiver, None)
        while len(self._prepared) >= PREPARED_MAX:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[receiver] = prepared
        return prepared

    def _lines(
        self,
        attempt: Attempt | BatchAttempt,
        prepared: _Prepared,
        event: Event,
        number: bytes | None,
        body: bytes,
    ) -> tuple[bytes, ...]:
        secrets, now = prepared.secrets, self._clock()
        if prepared.old_secrets:
            secrets += tuple(secret for until, secret in prepared.old_secrets if now < until)
        event_id, timestamp = event.id.encode(), int(now)
        lines: tuple[bytes, ...] = (
            b"webhook-id: " + event_id,
            b"webhook-timestamp: %d" % timestamp,
            b"angarium-event: " + event.type.encode(),
            b"angarium-attempt: %d" % attempt.ordinal,
            b"content-type: " + event.content_type.encode(),
            b"traceparent: " + self._traceparent(attempt),
        )
        if secrets:
            lines += (b"webhook-signature: " + sign(secrets, event_id, timestamp, body),)
        if number is not None:
            lines += (b"angarium-sequence: " + number,)
            left_s = event.stored_at + attempt.policy.retry.max_age_s - now
            first = attempt.failures == 0 and type(attempt) is Attempt
            if first and left_s >= prepared.first_next_s >= attempt.token_s:
                next_line = prepared.first_next
            else:
                next_line = _next_line_of_repeat(attempt, left_s)
            if next_line:
                lines += (next_line,)
            if secrets:
                lines += (b"angarium-signature: " + sign(secrets, event_id, number, body),)
        if prepared.custom_signer is not None:
            lines += prepared.custom_signer.lines(event, timestamp, body)
        if event.again:
            lines += (b"angarium-again: " + event.again.encode(),)
        if event.tracestate:
            lines += (b"tracestate: " + event.tracestate.encode(),)
        return lines + prepared.lines

    def _drawn_traceparent(self, attempt: Attempt | BatchAttempt) -> bytes:
        """A span of its own for the attempt, in the producer's trace or in a new one (W3C Trace Context).

        The events of a batch may have several producers, so it always has a new one.
        """
        drawn = self._ids.getrandbits(192)
        span = drawn >> 128 or 1
        if type(attempt) is Attempt and attempt.event.traceparent:
            _, trace, _, flags = attempt.event.traceparent.split("-")
            return f"00-{trace}-{span:016x}-{flags}".encode()
        # Sampled: a receiver that follows its caller's flag would otherwise not trace this request at all.
        return b"00-%032x-%016x-01" % (drawn % (1 << 128) or 1, span)


def next_attempt_s(policy: Policy, failures: int, *, alone: bool = True) -> float | None:
    """The longest time to the next attempt if this one fails, after that many others; None if it is the last.

    An event that does not stand `alone` is tried once more in a half of its batch. The next attempt needs
    a token, too, which the next event of a strict receiver cannot take from it.
    """
    retry, rate = policy.retry, policy.rate
    if alone and 0 < retry.max_attempts <= failures + 1:
        return None
    delay_s = longest_backoff_s(retry.base_s, retry.cap_s, failures + 1)
    return delay_s if rate is None else max(delay_s, 1 / rate.per_second)


def _next_line_of_repeat(attempt: Attempt | BatchAttempt, left_s: float) -> bytes:
    """The header about the next attempt, which comes before the event expires; empty if there is none."""
    alone = isinstance(attempt, Attempt) or len(attempt.events) == 1
    delay_s = next_attempt_s(attempt.policy, attempt.failures, alone=alone)
    return b"" if delay_s is None or left_s <= 0 else _next_line(min(max(delay_s, attempt.token_s), left_s))


def _next_line(delay_s: float) -> bytes:
    return b"angarium-next-attempt-s: %d" % math.ceil(delay_s)


def _joined(attempt: BatchAttempt) -> tuple[Event, bytes]:
    """The batch as one event, and its numbers.

    They are in its id, so that the same id comes again only with the same events, or fewer of them.
    """
    first, last = attempt.sequences[0], attempt.sequences[-1]
    event = Event(
        position=0, id=f"{attempt.receiver}:{first}-{last}", stored_at=attempt.events[0].stored_at,
        type=BATCH_TYPE, body=envelope(attempt.numbered),
    )  # fmt: skip
    return event, b"%d-%d" % (first, last)


def _configured_lines(policy: Policy) -> list[bytes]:
    """The headers of the configuration, without any that would repeat or override another."""
    headers: dict[str, str] = {}
    for name, value in policy.headers.items():
        if is_sent(name, policy):
            headers.setdefault(name.lower(), value)
    return [
        b"%b: %b" % (name.encode("ascii"), value.strip(" \t").encode("latin-1"))
        for name, value in headers.items()
    ]


def _tell(
    hosts: DownHosts, receiver: str, target: Target, answer: Response | Failure, outcome: Outcome
) -> None:
    """Tell what an attempt says about its host; nothing if this node failed."""
    if isinstance(answer, Response) or answer.kind in CONTACT:
        hosts.reached(target)
    elif isinstance(outcome, Failed) and not outcome.is_our_failure and is_unreached(answer):
        hosts.unreached(receiver, target)
    else:
        hosts.ended(receiver, target)


def is_unreached(failure: Failure) -> bool:
    """True if a failure shows that no receiver of its host can connect, whatever timeout it has."""
    if failure.kind in (FailureKind.CONNECT, FailureKind.RESOLVE):
        return True
    return failure.kind is FailureKind.TIMEOUT and failure.silent_s >= SILENT_MIN_S


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
        error=outcome.kind.value, detail=outcome.detail, latency_ms=latency_ms, status=outcome.status,
        unreached=outcome.unreached,
    )  # fmt: skip
