"""The traces of a timed event: whether it waits, was cancelled or was due, and how late."""

from collections import deque
from typing import assert_never

from msgspec import Struct

from actors.times_as_text import instant_text
from angarium.access import Access
from streams.nats.wire_names import DUE
from streams.timed.entries import CancelledStub, Entry, TakenStub
from streams.timed.listing import Trace, traces_of_event

TRACES_MAX = 10_000
"""Traces of one event that are read."""
DUE_SHOWN_MAX = 10
"""Due events of one id that are shown: the last ones."""


class DueEvent(Struct, frozen=True, kw_only=True):
    """An event whose time has come.

    - `accepted_at`: when it took its place among the events. `late_s`: seconds from `due_at` until then.
    """

    tenant: str
    due_at: str
    accepted_at: str
    late_s: float


class TimedTraces(Struct, frozen=True, kw_only=True):
    """The traces of an event; `why_none` says that it waits or was cancelled, if so."""

    why_none: str
    due: list[DueEvent]


async def timed_traces(access: Access, event: str, among: str, notes: list[str]) -> TimedTraces:
    """Read the traces of an event. Stubs are kept for 8 days; what was due before has none."""
    waits, was_cancelled, count = "", False, 0
    taken = deque[tuple[Trace, int]](maxlen=DUE_SHOWN_MAX)
    async for trace in traces_of_event(access.js, access.names, among, event):
        match trace.what:
            case Entry(address=address):
                waits = waits or f"it waits for its time, {instant_text(address.second)}"
            case CancelledStub():
                was_cancelled = True  # Another event of this id may wait nevertheless.
            case TakenStub(position):
                taken.append((trace, position))
            case _:
                assert_never(trace.what)
        if (count := count + 1) == TRACES_MAX:
            notes.append(f"it had a time more than {TRACES_MAX} times; only those were searched")
            break
    due = [await _due_event(access, trace, position) for trace, position in taken]
    return TimedTraces(why_none=waits or "it was cancelled before its time" * was_cancelled, due=due)


async def _due_event(access: Access, trace: Trace, position: int) -> DueEvent:
    """The due event at a position that took the entry; if it is gone, the stub says when it was taken."""
    js, names = access.js, access.names
    address, accepted_at = names.timed_subjects.address(trace.subject), trace.stored_at
    message = await js.message(names.events, position)
    if message is not None and message.headers.get(DUE) == f"{address.second}.{address.source}":
        accepted_at = message.stored_at
    return DueEvent(
        tenant=address.tenant, due_at=instant_text(address.second), accepted_at=instant_text(accepted_at),
        late_s=round(max(0.0, accepted_at - address.second), 3),
    )  # fmt: skip
