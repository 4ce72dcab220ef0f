"""Entries: one message for each timed event, replaced by a stub once the event is taken or cancelled.

Each write is conditional, so nothing else has to be fenced (`docs/decisions/delivery-at-a-time.md`). What is
at the subject of an entry is read from the leader, and the condition of the write that follows decides.
"""

import math
from enum import Enum
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from actors.errors import InvalidName, Unavailable
from actors.ids import check_type, stable_hash
from actors.machine.event import Event
from actors.times_as_text import exact_instant_text
from streams.installation.timed_subjects import EntryAddress
from streams.installation.topology import Names
from streams.nats.answers import Put, Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import (
    CANCELLED,
    CONTENT_TYPE,
    DELIVER_AT,
    DUE,
    EVENT_ID,
    EVENT_PUBLISHED,
    EVENT_REGION,
    EVENT_TYPE,
    EXPECTED,
    ONLY_FOR,
    TAKEN,
    TRACEPARENT,
    TRACESTATE,
    TTL,
    WRONG_LAST_SEQUENCE,
)
from streams.reading.messages import CONTENT_TYPE_DEFAULT
from streams.timed.timing import DUE_PROBLEM

STUB_OUTLIVES_S = 86_400
"""Time by which a stub outlives a message of the events: room for clocks and for work under way."""
CLOCKS_DIFFER_MAX_S = 3_600
"""Time by which the clocks of a node and of a server may differ, for what is due."""
_PASSED_ON = (EVENT_ID, EVENT_REGION, CONTENT_TYPE, TRACEPARENT, TRACESTATE, ONLY_FOR)
"""Headers of an entry that its due event has, too."""


class Entry(Struct, frozen=True):
    """A timed event that waits. `position`: of the entry; `published_at`: when the event was stored."""

    address: EntryAddress
    position: int
    stored_at: float
    published_at: float
    id: str
    type: str
    deliver_at: str
    only_for: str
    message: StoredMessage

    def is_void(self, age_s: float) -> bool:
        """True if its publish was under way for longer than an event is kept; its stub may be gone."""
        return self.stored_at > self.published_at + age_s

    def may_have_made(self, due: Event) -> bool:
        """True if a due event equals the entry, and is not early; else a producer has forged it."""
        headers = self.message.headers
        terms = (self.id, self.type, headers.get(EVENT_REGION, ""), self.only_for)
        content = (headers.get(CONTENT_TYPE, CONTENT_TYPE_DEFAULT), self.message.data)
        return (
            terms == (due.id, due.type, due.region, due.only_for)
            and content == (due.content_type, due.body)
            and due.stored_at >= self.address.second - CLOCKS_DIFFER_MAX_S
        )


class TakenStub(Struct, frozen=True):
    """The event was taken by the due event at `position`."""

    position: int


class CancelledStub(Struct, frozen=True):
    """The event was cancelled, at the request of `by`."""

    by: str


class DueVerdict(Enum):
    """A verdict on a due event: it is routed or dropped, or a producer has forged it."""

    ROUTED = "routed"
    DROPPED = "dropped"
    FORGED = "forged"


class CancelResult(Enum):
    """The end of a request to cancel: done, or too late."""

    DONE = "done"
    TOO_LATE = "too_late"


def id_hash(event: str) -> str:
    """The token that stands for the id of an event in the subject of its entry."""
    return stable_hash(event)


def due_second(at: float) -> int:
    """The second in which an event is due that asks for this time: the next full one."""
    return math.ceil(at)


def entry_address(event: Event, partition: int, tenant: str, source: int) -> EntryAddress:
    """The address of an event that waits."""
    return EntryAddress(partition, due_second(event.deliver_at), tenant, id_hash(event.id), source)


def due_entry_address(event: Event, partition: int, tenant: str) -> EntryAddress:
    """The address where an event waited that is due."""
    second, source = event.due.split(".")
    return EntryAddress(partition, int(second), tenant, id_hash(event.id), int(source))


def entry_put(names: Names, address: EntryAddress, event: Event) -> Put:
    """The message that stores an event as an entry, if there is none yet."""
    headers = {
        EXPECTED: "0",
        EVENT_ID: event.id,
        EVENT_TYPE: event.type,
        EVENT_PUBLISHED: f"{event.stored_at:.3f}",
        DELIVER_AT: exact_instant_text(event.deliver_at),
    }
    if event.content_type != CONTENT_TYPE_DEFAULT:
        headers[CONTENT_TYPE] = event.content_type
    for name, value in (
        (EVENT_REGION, event.region), (TRACEPARENT, event.traceparent), (TRACESTATE, event.tracestate),
        (ONLY_FOR, event.only_for),
    ):  # fmt: skip
        if value:
            headers[name] = value
    return Put(names.timed_subjects.entry(address), event.body, headers)


def due_put(names: Names, entry: Entry) -> Put:
    """The message that publishes the event of an entry again, now that it is due."""
    headers = {name: value for name, value in entry.message.headers.items() if name in _PASSED_ON}
    headers[DUE] = f"{entry.address.second}.{entry.address.source}"
    return Put(names.publish_event(entry.address.tenant, entry.type), entry.message.data, headers)


def entry_in(names: Names, message: StoredMessage) -> Entry | TakenStub | CancelledStub | None:
    """The entry or the stub in a message; None if it is neither: any producer may publish there."""
    headers = message.headers
    try:
        if TAKEN in headers:
            return TakenStub(int(headers[TAKEN]))
        if CANCELLED in headers:
            return CancelledStub(headers[CANCELLED])
        return Entry(
            address=names.timed_subjects.address(message.subject), position=message.position,
            stored_at=message.stored_at, published_at=float(headers[EVENT_PUBLISHED]), id=headers[EVENT_ID],
            type=check_type(headers[EVENT_TYPE]), deliver_at=headers[DELIVER_AT],
            only_for=headers.get(ONLY_FOR, ""), message=message,
        )  # fmt: skip
    except (KeyError, ValueError, InvalidName):
        return None


async def events_age_s(js: JetStream, names: Names) -> float:
    """The age up to which the events stream keeps an event; infinity if forever.

    Raises `Unavailable` and `ApiError`.
    """
    age_ns = (await js.existing_stream(names.events)).config.get("max_age", 0)
    return age_ns / 1e9 or math.inf


async def take(js: JetStream, names: Names, address: EntryAddress, event: Event, age_s: float) -> DueVerdict:
    """Take the entry for a due event, or find what became of it. Raises `Unavailable` and `ApiError`.

    It may be called again for the same event, by any router: the first answer stays true.
    """
    while True:
        message = await js.last_message(names.later, names.timed_subjects.entry(address))
        match None if message is None else entry_in(names, message):
            case None:
                return DueVerdict.FORGED
            case CancelledStub():
                return DueVerdict.DROPPED
            case TakenStub(position):
                return DueVerdict.ROUTED if position == event.position else DueVerdict.DROPPED
            case Entry() as entry if entry.is_void(age_s):
                return DueVerdict.DROPPED
            case Entry() as entry if not entry.may_have_made(event):
                return DueVerdict.FORGED
            case Entry() as entry:
                if await replace_entry(js, entry, {TAKEN: str(event.position)}, age_s):
                    return DueVerdict.ROUTED
            case never:
                assert_never(never)


def event_to_route(event: Event, verdict: DueVerdict) -> Event | None:
    """The due event as it is to be routed: malformed if it is forged, None if it is dropped."""
    match verdict:
        case DueVerdict.ROUTED:
            return event
        case DueVerdict.FORGED:
            return replace(event, malformed=DUE_PROBLEM)
        case DueVerdict.DROPPED:
            return None
        case never:
            assert_never(never)


async def cancel(js: JetStream, names: Names, entry: Entry, by: str, age_s: float) -> CancelResult:
    """Cancel the event of an entry, unless it was taken. Raises `Unavailable` and `ApiError`."""
    while True:
        message = await js.last_message(names.later, entry.message.subject)
        match None if message is None else entry_in(names, message):
            case None | TakenStub():
                return CancelResult.TOO_LATE
            case CancelledStub():
                return CancelResult.DONE
            case Entry() as found:
                if await replace_entry(js, found, {CANCELLED: by}, age_s):
                    return CancelResult.DONE
            case never:
                assert_never(never)


async def erase(js: JetStream, names: Names, entry: Entry, age_s: float) -> bool:
    """Overwrite an entry, and leave a stub that says that it was cancelled; False if it was gone already.

    Raises `Unavailable` and `ApiError`; then it has to be called again.
    """
    erased = await js.delete(names.later, entry.position)
    # If something is there, it was taken or cancelled before, or a late publish of it will be found.
    await _put_stub(js, entry.message.subject, {CANCELLED: "erased"}, 0, age_s)
    return erased


async def replace_entry(js: JetStream, entry: Entry, stub: dict[str, str], age_s: float) -> bool:
    """Replace an entry by a stub; False if something else was written there.

    Raises `Unavailable`, also if the stub may be stored, and `ApiError`.
    """
    return await _put_stub(js, entry.message.subject, stub, entry.position, age_s)


async def _put_stub(js: JetStream, subject: str, stub: dict[str, str], expected: int, age_s: float) -> bool:
    """Put a stub that outlives every message of the events; False if the `expected` message is not there."""
    lifetime = {TTL: f"{math.ceil(age_s) + STUB_OUTLIVES_S}s"} if age_s < math.inf else {}
    match await js.publish(subject, b"", stub | {EXPECTED: str(expected)} | lifetime):
        case Stored():
            return True
        case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
            return False
        case Refused(code, text):
            raise ApiError(code, text)
        case Unanswered(why):
            raise Unavailable(why)
        case never:
            assert_never(never)
