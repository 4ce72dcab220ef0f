"""Lists the timed events that wait, the next first, within bounds."""

from collections.abc import AsyncIterator

from msgspec import Struct

from streams.installation.timed_subjects import DAY_S, HOUR_S, MINUTE_S
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.timed.entries import CancelledStub, Entry, TakenStub, entry_in, id_hash
from streams.timed.timing import AHEAD_MAX_S

OVERDUE_SHOWN_S = 3_600
"""Time for which an entry is listed whose time has come: so long it may wait for a node."""
READ_MAX = 10_000
"""Messages that are read for one page: cancelled and delivered events leave stubs."""
FEW_MAX = 32
"""Messages of a day, an hour or a minute that are read at once and sorted."""
_SMALLER = {DAY_S: HOUR_S, HOUR_S: MINUTE_S, MINUTE_S: 1}


class ListKey(Struct, frozen=True, order=True):
    """The key by which the list is sorted: when an entry is due, and its position in the stream."""

    second: int
    position: int


class EntryList(Struct, frozen=True):
    """Entries, the next first. `next`: the key of the last one if there are others, or may be."""

    entries: list[Entry]
    next: ListKey | None


class Trace(Struct, frozen=True):
    """A trace of an event in the stream: its entry, or the stub that is left of one."""

    position: int
    subject: str
    stored_at: float
    what: Entry | TakenStub | CancelledStub


async def list_entries(
    js: JetStream,
    names: Names,
    tenant: str | None,
    now: float,
    *,
    only_for: str = "",
    limit: int | None = None,
    after: ListKey | None = None,
) -> EntryList:
    """A page of the entries of a tenant, or of all. Raises `Unavailable` and `ApiError`.

    It may be short, or even empty, although there are others: what was read for it were stubs.
    `only_for`: only events for this one receiver.
    """
    found, read = list[Entry](), 0
    last = after or ListKey(int(now) - OVERDUE_SHOWN_S, 0)
    async for key, message in _walk(js, names, tenant or "*", last, int(now + AHEAD_MAX_S) + DAY_S):
        entry = entry_in(names, message)
        is_wanted = isinstance(entry, Entry) and only_for in ("", entry.only_for)
        if read == READ_MAX or (is_wanted and len(found) == limit):
            return EntryList(found, last)
        read, last = read + 1, key
        if isinstance(entry, Entry) and is_wanted:
            found.append(entry)
    return EntryList(found, None)


async def entries_of_event(js: JetStream, names: Names, tenant: str, event: str) -> AsyncIterator[Entry]:
    """The entries of an event: several if it was published several times. Raises like `next_trace`."""
    async for trace in traces_of_event(js, names, tenant, event):
        if isinstance(trace.what, Entry):
            yield trace.what


async def traces_of_event(js: JetStream, names: Names, tenant: str, event: str) -> AsyncIterator[Trace]:
    """The entries of an event, and the stubs that are left of them. Raises like `next_trace`.

    They are read one by one, in the order in which they were stored: one id may have been given another time
    very often. An entry that is replaced meanwhile is met again, as a stub.
    """
    position = 0
    while (trace := await next_trace(js, names, tenant, event, position)) is not None:
        position = trace.position
        yield trace


async def next_trace(js: JetStream, names: Names, tenant: str, event: str, after: int) -> Trace | None:
    """The first trace of an event after a position, from the leader. Raises `Unavailable` and `ApiError`."""
    pattern = names.timed_subjects.tenant_entries(tenant, id_hash(event))
    while (message := await js.next_message(names.later, pattern, after + 1)) is not None:
        after, what = message.position, entry_in(names, message)
        if what is not None and not (isinstance(what, Entry) and what.id != event):
            return Trace(message.position, message.subject, message.stored_at, what)
    return None


async def _walk(
    js: JetStream, names: Names, tenant: str, after: ListKey, end: int
) -> AsyncIterator[tuple[ListKey, StoredMessage]]:
    """The entries and stubs after a key that are due before the second `end`, in their order.

    The leader is asked for a day and, if it has more than a few, for its hours, minutes and seconds. So the
    cost is that of what the caller reads, however many events wait.
    """
    to_visit = [(day, DAY_S) for day in range(after.second - after.second % DAY_S, end, DAY_S)]
    while to_visit:
        first, size = to_visit.pop(0)
        if first + size <= after.second:
            continue
        pattern = names.timed_subjects.due_in(None, first, size, tenant)
        if size == 1:
            position = after.position if first == after.second else 0
            while (message := await js.next_message(names.later, pattern, position + 1)) is not None:
                position = message.position
                yield ListKey(first, position), message
        elif (few := await _all_if_few(js, names, pattern)) is not None:
            for key in sorted(few):
                if key > after and first <= key.second < first + size:
                    yield key, few[key]
        else:
            smaller = _SMALLER[size]
            to_visit[:0] = [(each, smaller) for each in range(first, first + size, smaller)]


async def _all_if_few(js: JetStream, names: Names, pattern: str) -> dict[ListKey, StoredMessage] | None:
    """The messages of a pattern by their keys; None if there are many."""
    found, position = dict[ListKey, StoredMessage](), 0
    for _ in range(FEW_MAX + 1):
        message = await js.next_message(names.later, pattern, position + 1)
        if message is None:
            return found
        position = message.position
        if (address := names.timed_subjects.address_or_none(message.subject)) is not None:
            found[ListKey(address.second, position)] = message
    return None
