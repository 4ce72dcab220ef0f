"""Lists the timed events that wait, the next first, within bounds."""

from collections.abc import AsyncIterator

from msgspec import Struct

from streams.installation.later_subjects import DAY_S, HOUR_S, MINUTE_S
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.timed.entries import Cancelled, Entry, Taken, entry_in, id_hash
from streams.timed.timing import AHEAD_MAX_S

OVERDUE_SHOWN_S = 3_600
"""Time for which an entry is listed whose time has come: so long it may wait for a node."""
READ_MAX = 10_000
"""Messages that are read for one list: cancelled events leave stubs."""
FEW_MAX = 32
"""Messages of a day, an hour or a minute that are read at once and sorted."""
_SMALLER = {DAY_S: HOUR_S, HOUR_S: MINUTE_S, MINUTE_S: 1}


class ListStart(Struct, frozen=True, order=True):
    """The place of an entry in the list: the second in which it is due, and its position in the stream."""

    second: int
    position: int


class EntryList(Struct, frozen=True):
    """Entries, the next first. `next`: the place of the last one if there are others, or may be."""

    entries: list[Entry]
    next: ListStart | None


async def list_entries(
    js: JetStream,
    names: Names,
    tenant: str | None,
    now: float,
    *,
    only_for: str = "",
    limit: int | None = None,
    after: ListStart | None = None,
) -> EntryList:
    """The entries of a tenant, or of all. Raises `Unavailable` and `ApiError`.

    `only_for`: only events for this one receiver.
    """
    found, read = list[Entry](), 0
    last = after or ListStart(int(now) - OVERDUE_SHOWN_S, 0)
    async for place, message in _walk(js, names, tenant or "*", last, int(now + AHEAD_MAX_S) + DAY_S):
        if len(found) == limit or read == READ_MAX:
            return EntryList(found, last)
        read, last = read + 1, place
        entry = entry_in(names, message)
        if isinstance(entry, Entry) and only_for in ("", entry.only_for):
            found.append(entry)
    return EntryList(found, None)


async def entries_of_event(js: JetStream, names: Names, tenant: str, event: str) -> list[Entry]:
    """The entries of an event: several if it was published several times. Raises like `list_entries`."""
    found = await traces_of_event(js, names, tenant, event)
    return [each for each in found if isinstance(each, Entry)]


async def traces_of_event(
    js: JetStream, names: Names, tenant: str, event: str
) -> list[Entry | Taken | Cancelled]:
    """The entries of an event, and the stubs that are left of them. Raises like `list_entries`."""
    found = list[Entry | Taken | Cancelled]()
    pattern = names.later_subjects.tenant_entries(tenant, id_hash(event))
    for subject in sorted(await js.subjects(names.later, pattern)):
        message = await js.last_message(names.later, subject)
        trace = None if message is None else entry_in(names, message)
        if trace is not None and not (isinstance(trace, Entry) and trace.id != event):
            found.append(trace)
    return found


async def _walk(
    js: JetStream, names: Names, tenant: str, after: ListStart, end: int
) -> AsyncIterator[tuple[ListStart, StoredMessage]]:
    """The entries and stubs after a place that are due before the second `end`, in their order.

    The leader is asked for a day and, if it has more than a few, for its hours, minutes and seconds. So the
    cost is that of what the caller reads, however many events wait.
    """
    to_visit = [(day, DAY_S) for day in range(after.second - after.second % DAY_S, end, DAY_S)]
    while to_visit:
        first, size = to_visit.pop(0)
        if first + size <= after.second:
            continue
        pattern = names.later_subjects.due_in(None, first, size, tenant)
        if size == 1:
            position = after.position if first == after.second else 0
            while (message := await js.next_message(names.later, pattern, position + 1)) is not None:
                position = message.position
                yield ListStart(first, position), message
        elif (few := await _all_if_few(js, names, pattern)) is not None:
            for place in sorted(few):
                if place > after and first <= place.second < first + size:
                    yield place, few[place]
        else:
            smaller = _SMALLER[size]
            to_visit[:0] = [(each, smaller) for each in range(first, first + size, smaller)]


async def _all_if_few(js: JetStream, names: Names, pattern: str) -> dict[ListStart, StoredMessage] | None:
    """The messages of a pattern by their places; None if there are many."""
    found, position = dict[ListStart, StoredMessage](), 0
    for _ in range(FEW_MAX + 1):
        message = await js.next_message(names.later, pattern, position + 1)
        if message is None:
            return found
        position = message.position
        if (place := names.later_subjects.place_or_none(message.subject)) is not None:
            found[ListStart(place.second, position)] = message
    return None
