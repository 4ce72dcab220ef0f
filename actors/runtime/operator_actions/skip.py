"""Skips the oldest event of a receiver: it becomes a dead letter because an operator asks for it.

If the event is just being sent, that attempt is awaited; if it succeeds, there is nothing to skip. Otherwise
the event is given up like any other, even if its receiver is paused, parked or disabled.
"""

from actors.errors import ControlDenied
from actors.machine.commands import DropDuplicate, GiveUpEvents
from actors.machine.event import Event
from actors.machine.numbering import Numbered, is_duplicate, with_number
from actors.machine.state import as_numbered
from actors.memory.mailbox import MAILBOX_MAX
from actors.runtime.actor import Actor


async def skip(actor: Actor, by: str = "") -> Numbered:
    """Give the oldest event up, and return once that is recorded. Raises ControlDenied if none waits.

    `by`: who asked for it.
    """
    pinned = 0
    while (under_way := _under_way(actor)) is not None:
        pinned = pinned or under_way
        await actor.until_attempt_ends()
    try:
        found = _known(actor) or await _read(actor)
        if pinned and (found is None or found.position != pinned):
            raise ControlDenied(
                "nothing_waits", f"{actor.receiver}: the event was settled by the attempt under way"
            )
        if found is None:
            raise ControlDenied("nothing_waits", f"{actor.receiver} has nothing waiting")
        actor.give_up(GiveUpEvents((found,), "skipped", by), actor.environment.clock.now())
        index = actor.environment.recorder.index
    finally:
        actor.wake()  # It does not read by itself while the oldest event is read here.
    await actor.environment.confirmed_to(index)
    return found


def _under_way(actor: Actor) -> int | None:
    """The position of the oldest event, if it is being sent."""
    opened = actor.state.open
    oldest = opened[0].position if opened else min(actor.pending.in_flight, default=0)
    return oldest if oldest in actor.pending.in_flight else None


def _known(actor: Actor) -> Numbered | None:
    """The oldest event, if it is known, with its number or with the next one.

    An event that was settled since it was read, or a duplicate, may be in memory for a moment; it is passed
    over, since it gets no number.
    """
    if actor.state.open:
        return as_numbered(actor.state.open[0])
    fresh = next((each for each in actor.pending.mailbox.events if _is_fresh(actor, each)), None)
    state = actor.state
    return with_number(fresh, state.frontier.sequence + 1, state.transform) if fresh else None


async def _read(actor: Actor) -> Numbered | None:
    """The oldest of the events that are only in the stream, which is read as the actor itself reads it.

    So what is missing there is recorded before the next event gets its number, and nothing that is passed
    here is read again. Raises ControlDenied if the actor is reading or sending.
    """
    pending = actor.pending
    cursor = pending.cursor
    while actor.state.parked and cursor.has_unread:
        if cursor.reading:
            raise _at_work(actor)
        frontier, up_to, known = actor.state.frontier, cursor.seen_to, cursor.last_stored
        cursor.reading = True
        try:
            page = await actor.environment.backlog.read(actor.receiver, cursor.read_to, up_to, MAILBOX_MAX)
        finally:
            cursor.reading = False
        if actor.state.frontier is not frontier or pending.in_flight:
            raise _at_work(actor)
        pending.take_read(page, up_to, known)
        _drop_duplicates(actor)
        if found := _known(actor):
            return found
    return None


def _drop_duplicates(actor: Actor) -> None:
    """Record the duplicates at the head of the events in memory."""
    while (event := actor.pending.mailbox.head) is not None and is_duplicate(actor.state.frontier, event):
        actor.live.record(DropDuplicate(event), actor.environment.clock.now())
        actor.pending.take_out(event)


def _at_work(actor: Actor) -> ControlDenied:
    return ControlDenied("unavailable", f"{actor.receiver} is working at this moment; try again")


def _is_fresh(actor: Actor, event: Event) -> bool:
    frontier = actor.state.frontier
    return event.position > frontier.position and not is_duplicate(frontier, event)
