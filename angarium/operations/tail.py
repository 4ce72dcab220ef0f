"""Follows attempts as nodes record them: live, from the journal, with no ledger.

Nothing piles up: what comes next is read when the one before it was taken, at most a page at a time. A reader
that is too slow for the journal's room is told what it missed.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Literal

from msgspec import Struct

from actors.errors import BadInput
from actors.ids import check_tenant, split_receiver
from actors.machine import facts as f
from actors.machine.numbering import Numbered
from actors.policy import is_pattern
from actors.subscriptions import matches
from angarium import logs
from angarium.connecting import Access
from streams.following.journal_reader import Gap, JournalReader, Place
from streams.journal.envelope import decode_flush
from streams.journal.leadership import ALL_SUBJECTS
from streams.nats.answers import StoredMessage
from streams.nats.errors import StreamRemade
from streams.nats.retry import stream_info, until_answered

LOOK_EVERY_S = 0.2
_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9]{1,9})\Z")

Verdict = Literal["delivered", "failed", "rejected", "gone", "overload", "throttled", "dead_lettered"]


class TailFilter(Struct, frozen=True, kw_only=True):
    """The attempts that are followed: of one receiver (`TENANT.NAME`), a tenant's, or all.

    `failed`: none that delivered. `types`: NATS wildcards; none of them: events of every type, and pings.
    """

    of: str | None = None
    failed: bool = False
    types: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InvalidName and BadInput."""
        if self.of is not None:
            split_receiver(self.of) if "." in self.of else check_tenant(self.of)
        if wrong := [each for each in self.types if not is_pattern(each)]:
            raise BadInput(f"{wrong[0][:60]!r} is no type; write a NATS wildcard, such as order.* or order.>")

    def takes(self, receiver: str) -> bool:
        """True if the receiver is followed."""
        return self.of is None or receiver == self.of or receiver.partition(".")[0] == self.of

    def takes_type(self, event: Numbered | None) -> bool:
        """True if events of its type are followed; one from an older journal has none."""
        if not self.types:
            return True
        return event is not None and any(matches(each, event.type) for each in self.types)


class TailedAttempt(Struct, frozen=True, kw_only=True):
    """The end of an attempt, or of an event that was given up; `id` is its place in the journal.

    `sequence` is None for a ping. `answer` is the beginning of the body that came back where it failed.
    Instants are RFC 3339.
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


class Missed(Struct, frozen=True):
    """A part of the journal that could not be followed, and why."""

    why: str


class Tail:
    """Attempts from now on, or from the time `since`, or behind the one with the id `after`.

    Raises BadInput if what is wanted cannot be.
    """

    def __init__(
        self, to: Access, wanted: TailFilter, *, since: float | None = None, after: str | None = None
    ) -> None:
        wanted.check()
        self._js = to.js
        self._stream = to.names.journal
        self._wanted = wanted
        self._since = since
        self._behind = (0, 0) if after is None else _place_of(after)

    async def follow(self) -> AsyncGenerator[TailedAttempt | Missed, None]:
        """Go on forever, also when NATS was away. Raises ApiError if nothing is set up; NewerVersion."""
        reader = JournalReader(self._js, self._stream)
        try:
            place = await self._start()
            while True:
                try:
                    place = await reader.check(place)
                    found = await reader.read(place.position)
                except StreamRemade as error:
                    yield Missed(str(error))
                    place = Place(created=(await stream_info(self._js, self._stream)).created)
                    self._behind = (0, 0)
                    continue
                if reader.doubtful:
                    continue  # What was read may be another stream's.
                match found:
                    case Gap(first, last, until_at):
                        yield Missed(f"messages {first} to {last} of the journal are purged already")
                        place = Place(created=place.created, position=last, stored_at=until_at)
                    case []:
                        await asyncio.sleep(LOOK_EVERY_S)
                    case messages:
                        for each in self._attempts(messages):
                            yield each
                        place = Place(
                            created=place.created, position=messages[-1].sequence,
                            stored_at=messages[-1].stored_at,
                        )  # fmt: skip
        finally:
            reader.stop()

    async def _start(self) -> Place:
        info = await stream_info(self._js, self._stream)
        position, since = info.last, self._since
        if self._behind[0]:
            position = min(self._behind[0] - 1, info.last)
        elif since is not None:
            first = await until_answered(lambda: self._js.first_since(self._stream, ALL_SUBJECTS, since))
            position = info.last if first is None else first.sequence - 1
        return Place(created=info.created, position=position)

    def _attempts(self, messages: list[StoredMessage]) -> Iterator[TailedAttempt]:
        for message in messages:
            flush = decode_flush(message.data, f"message {message.sequence} of {self._stream}")
            for ordinal, fact in enumerate(flush.facts):
                place = (message.sequence, ordinal)
                if isinstance(fact, f.Claimed) or place <= self._behind:
                    continue
                if self._wanted.takes(fact.receiver):
                    yield from self._told(fact, f"{place[0]}-{place[1]}")

    def _told(self, fact: f.Fact, name: str) -> Iterator[TailedAttempt]:
        match fact:
            case f.Delivered() if self._wanted.failed:
                return
            case f.Delivered() | f.AttemptFailed() | f.Throttled():
                for event in filter(self._wanted.takes_type, fact.events or (None,)):
                    yield _outcome(fact, event, name)
            case f.DeadLettered(events=events, at=at, reason=reason, attempts=attempts, status=status):
                for event in filter(self._wanted.takes_type, events):
                    yield TailedAttempt(
                        id=name, at=logs.instant(at), receiver=fact.receiver, verdict="dead_lettered",
                        sequence=event.sequence, event_id=event.id, type=event.type or None,
                        attempt=attempts, status=status,
                        error=reason,
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
        id=name, at=logs.instant(fact.at), receiver=fact.receiver, verdict=verdict,
        sequence=event.sequence if event else None, event_id=event.id if event else None,
        type=(event.type or None) if event else None,
        attempt=fact.attempt, status=fact.status, error=error, latency_ms=fact.latency_ms, answer=answer,
        next_at=logs.instant(next_at) if next_at else None,
    )  # fmt: skip


def _verdict(fact: f.AttemptFailed) -> Verdict:
    if fact.ours:
        return "overload"
    if fact.gone:
        return "gone"
    return "rejected" if fact.rejected else "failed"


def _place_of(name: str) -> tuple[int, int]:
    """The place in the journal that the id of an attempt names. Raises BadInput."""
    if (found := _ID.match(name)) is None:
        raise BadInput(f"{name[:60]!r} is no id of an attempt; leave it out, or give one that tail has shown")
    return int(found[1]), int(found[2])
