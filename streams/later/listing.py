"""Lists the events that wait for their time, the next first, within bounds."""

from collections.abc import AsyncIterator

from msgspec import Struct

from streams.installation.later_subjects import DAY_S, HOUR_S, MINUTE_S, spans
from streams.installation.topology import Names
from streams.later.entries import Cancelled, Entry, Taken, entry_in, id_hash
from streams.later.terms import AHEAD_MAX_S
from streams.nats.jetstream import JetStream

OVERDUE_SHOWN_S = 3_600
"""Time for which an entry is listed whose time has come: so long it may wait for a node."""
READ_MAX = 10_000
"""Messages that are read for one list: cancelled events leave stubs."""
_SMALLER = {DAY_S: HOUR_S, HOUR_S: MINUTE_S}


class ListStart(Struct, frozen=True, order=True):
    """The place of an entry in the list."""

    second: int
    source: int


class WaitingList(Struct, frozen=True):
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
) -> WaitingList:
    """The entries of a tenant, or of all. Raises `Unavailable` and `ApiError`.

    `only_for`: only events for this one receiver.
    """
    found, read, last = list[Entry](), 0, after
    start = after.second if after else int(now) - OVERDUE_SHOWN_S
    async for subject, place in _subjects(js, names, tenant or "*", start, int(now + AHEAD_MAX_S) + DAY_S):
        if after is not None and place <= after:
            continue
        if len(found) == limit or read == READ_MAX:
            return WaitingList(found, last)
        read, last = read + 1, place
        message = await js.last_message(names.later, subject)
        entry = None if message is None else entry_in(names, message)
        if isinstance(entry, Entry) and only_for in ("", entry.only_for):
            found.append(entry)
    return WaitingList(found, None)


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


async def _subjects(
    js: JetStream, names: Names, tenant: str, start: int, end: int
) -> AsyncIterator[tuple[str, ListStart]]:
    """The subjects of entries and stubs that are due in these seconds, in their order.

    The leader is asked for a day, then for its hours and minutes, as far as there is anything in them.
    """
    to_visit = list(spans(start - start % MINUTE_S, end))
    while to_visit:
        first, size = to_visit.pop(0)
        pattern = names.later_subjects.due_in(None, first, size, tenant)
        if await js.next_message(names.later, pattern, 1) is None:
            continue
        if size in _SMALLER:
            smaller = _SMALLER[size]
            to_visit[:0] = [(each, smaller) for each in range(first, first + size, smaller)]
            continue
        places = dict[ListStart, list[str]]()
        for subject in await js.subjects(names.later, pattern):
            if (place := names.later_subjects.place_or_none(subject)) is None:
                continue
            places.setdefault(ListStart(place.second, place.source), []).append(subject)
        for each in sorted(places):
            for subject in places[each]:
                yield subject, each
