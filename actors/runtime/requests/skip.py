"""Skips the oldest event of a receiver: it becomes a dead letter because an operator asks for it.

If the event is just being sent, that attempt is awaited; if it succeeds, there is nothing to skip. Otherwise
the event is given up like any other, even if its receiver is paused, parked or disabled.
"""

from actors.errors import ControlRefused
from actors.machine.commands import GiveUpEvents
from actors.machine.event import Event
from actors.machine.numbering import Numbered, is_repeat, with_number
from actors.machine.state import as_numbered
from actors.memory.mailbox import MAILBOX_MAX
from actors.runtime.actor import Actor


async def skip(actor: Actor) -> Numbered:
    """Give the oldest event up, and return once that is recorded. Raises ControlRefused if none waits."""
    pinned = 0
    while (under_way := _under_way(actor)) is not None:
        pinned = pinned or under_way
        await actor.landing()
    found = _known(actor) or await _read(actor)
    if pinned and (found is None or found.position != pinned):
        raise ControlRefused(
            "nothing_waits", f"{actor.receiver}: the event was settled by the attempt under way"
        )
    if found is None:
        raise ControlRefused("nothing_waits", f"{actor.receiver} has nothing waiting")
    actor.give_up(GiveUpEvents((found,), "skipped"), actor.host.clock.now())
    index = actor.host.recorder.index
    actor.wake()
    await actor.host.confirmed_to(index)
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
    return with_number(fresh, actor.state.frontier.sequence + 1) if fresh else None


async def _read(actor: Actor) -> Numbered | None:
    """The oldest of the events that are only in the stream.

    Raises ControlRefused if one is just being sent.
    """
    cursor = actor.pending.cursor
    after = cursor.read_to
    while actor.state.parked and after < cursor.seen:
        frontier = actor.state.frontier
        batch = await actor.host.backlog.read(actor.receiver, after, cursor.seen, MAILBOX_MAX)
        if actor.state.frontier is not frontier or actor.pending.in_flight:
            raise ControlRefused("unavailable", f"{actor.receiver} is working at this moment; try again")
        if known := _known(actor):
            return known
        fresh = [each for each in batch.events if _is_fresh(actor, each)]
        if fresh:
            return with_number(fresh[0], frontier.sequence + 1)
        after = batch.events[-1].position if batch.events else cursor.seen
    return None


def _is_fresh(actor: Actor, event: Event) -> bool:
    frontier = actor.state.frontier
    return event.position > frontier.position and not is_repeat(frontier, event)
