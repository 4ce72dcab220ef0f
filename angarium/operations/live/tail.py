"""Follows attempts as nodes record them: live, from the journal, with no ledger."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Literal

from msgspec import Struct

from actors.configuration.problems import is_pattern
from actors.errors import BadInput
from actors.ids import check_tenant, split_receiver, tenant_of
from actors.machine import facts as f
from actors.machine.numbering import Numbered
from actors.subscriptions import matches
from actors.times_as_text import instant_text
from angarium import logs
from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.live.journal_pages import (
    AttemptPosition,
    JournalPages,
    Missed,
    parse_attempt_position,
)
from streams.buckets.stored_configurations import StoredConfigurations
from streams.journal.envelope import decode_flush
from streams.nats.answers import StoredMessage

Verdict = Literal[
    "delivered", "failed", "rejected", "gone", "overload", "throttled", "dead_lettered", "discarded",
]  # fmt: skip


class TailFilter(Struct, frozen=True, kw_only=True):
    """The attempts that are followed: of one receiver (`TENANT.NAME`), a tenant's, or all.

    - `about`: the receiver or the tenant.
    - `failed`: none that delivered.
    - `event`: those of the event with this id.
    - `types`: NATS wildcards; none of them: events of every type, and pings.
    """

    about: str | None = None
    failed: bool = False
    event: str | None = None
    types: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InvalidName and BadInput."""
        if self.about is not None:
            check_about = split_receiver if "." in self.about else check_tenant
            check_about(self.about)
        if wrong := [each for each in self.types if not is_pattern(each)]:
            raise BadInput(
                f"{wrong[0][:60]!r} is not an event type; write a NATS wildcard, such as order.* or order.>"
            )

    def follows(self, receiver: str) -> bool:
        """True if the receiver is followed."""
        return self.about is None or receiver == self.about or tenant_of(receiver) == self.about

    def takes(self, attempt: "TailedAttempt") -> bool:
        """True if the attempt is wanted; an event from an older journal has no type."""
        if not self.follows(attempt.receiver) or (self.failed and attempt.verdict == "delivered"):
            return False
        if self.event is not None and attempt.event_id != self.event:
            return False
        known = attempt.type
        return not self.types or (known is not None and any(matches(each, known) for each in self.types))


class TailedAttempt(Struct, frozen=True, kw_only=True):
    """The end of an attempt, or of an event that was given up; `id` is its place in the journal.

    `sequence` is None for a ping. `answer` is the beginning of the response body if it failed. Instants are
    RFC 3339.
    """

    id: str
    at: str
    receiver: str
    verdict: Verdict
    sequence: int | None = None
    event_id: str | None = None
    type: str | None = None
    attempt: int = 0
    status: int | None = None
    error: str | None = None
    latency_ms: float | None = None
    answer: str | None = None
    next_at: str | None = None


@operation
async def is_known(access: Access, about: str) -> bool:
    """True if there is a receiver of that name, or one of that tenant."""
    configurations = StoredConfigurations(access.js, access.names)
    return bool(await configurations.get(about) if "." in about else await configurations.all(about))


class Tail:
    """Attempts from now on, or from the time `since`, or after the one with the id `after`.

    Raises BadInput if the arguments contradict each other.
    """

    def __init__(
        self, access: Access, wanted: TailFilter, *, since: float | None = None, after: str | None = None
    ) -> None:
        wanted.check()
        self._pages = JournalPages(access.js, access.names)
        self._wanted = wanted
        self._since = since
        self._after = None if after is None else parse_attempt_position(after)

    async def follow(self, *, ends: bool = False) -> AsyncGenerator[TailedAttempt | Missed, None]:
        """Yield attempts forever, even after NATS was away. Raises NewerVersion, ApiError without setup.

        With `ends`, only those that the journal has by now.
        """
        last = self._after or AttemptPosition()
        missed = await self._pages.start(since=self._since, after=self._after)
        if missed is not None:
            last = AttemptPosition()
            yield missed
        async with aclosing(self._pages.follow(ends=ends)) as pages:
            async for page in pages:
                if isinstance(page, Missed):
                    last = AttemptPosition()  # The attempts from here on were not yielded before.
                    yield page
                    continue
                for message in page:
                    for position, attempt in attempts(message, self._wanted.follows):
                        if position > last and self._wanted.takes(attempt):
                            yield attempt


def attempts(
    message: StoredMessage, follows: Callable[[str], bool]
) -> Iterator[tuple[AttemptPosition, TailedAttempt]]:
    """The attempts in a flush at the receivers that are followed. Raises NewerVersion and NotOurs."""
    ordinal = 0
    for fact in decode_flush(message.data, f"message {message.position} of the journal").facts:
        match fact:
            case f.AttemptFailed(kind=f.NO_ATTEMPT):
                pass
            case f.Delivered() | f.AttemptFailed() | f.Throttled() | f.DeadLettered():
                events = fact.events or ((None,) if not isinstance(fact, f.DeadLettered) else ())
                if follows(fact.receiver):
                    for number, event in enumerate(events, ordinal + 1):
                        position = AttemptPosition(message.position, number)
                        yield position, _attempt_of(fact, event, str(position))
                ordinal += len(events)


def _attempt_of(fact: f.OutcomeFact | f.DeadLettered, event: Numbered | None, name: str) -> TailedAttempt:
    if not isinstance(fact, f.DeadLettered):
        return _outcome(fact, event, name)
    is_discarded = fact.reason == f.OUTSIDE_REGION
    return TailedAttempt(
        id=name, at=instant_text(fact.at), receiver=fact.receiver,
        verdict="discarded" if is_discarded else "dead_lettered",
        sequence=event.sequence if event else None, event_id=event.id if event else None,
        type=(event.type or None) if event else None, attempt=fact.attempts, status=fact.status,
        error=fact.reason,
    )  # fmt: skip


def _outcome(fact: f.OutcomeFact, event: Numbered | None, name: str) -> TailedAttempt:
    verdict: Verdict = "delivered"
    error, answer, next_at = None, None, 0.0
    match fact:
        case f.AttemptFailed():
            verdict, next_at = _verdict(fact), max(fact.next_at, fact.until)
            error, answer = logs.redact(fact.error) if fact.status is None else None, fact.answer or None
        case f.Throttled():
            verdict, next_at = "throttled", fact.until
    return TailedAttempt(
        id=name, at=instant_text(fact.at), receiver=fact.receiver, verdict=verdict,
        sequence=event.sequence if event else None, event_id=event.id if event else None,
        type=(event.type or None) if event else None,
        attempt=fact.attempt, status=fact.status, error=error, latency_ms=fact.latency_ms, answer=answer,
        next_at=instant_text(next_at) if next_at else None,
    )  # fmt: skip


def _verdict(fact: f.AttemptFailed) -> Verdict:
    if fact.ours:
        return "overload"
    if fact.gone:
        return "gone"
    return "rejected" if fact.rejected else "failed"
