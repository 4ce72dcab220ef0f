"""Ends an erased event's deliveries to one receiver: numbers it, records its end, and deletes its message.

Numbers are given in the order of the stream, so a message may leave it only if that changes no number, given
or to be given. The rules (`tests/unit/runtime/test_end_deliveries.py` tries a crash at each moment, and finds
an event with two numbers without the second or the third):

1. The receiver is idle until the message is certainly gone: nothing is in flight, and nothing begins.
   If it accepts the event before that, the event is delivered, not erased.
2. Every event up to the erased one gets its number first, in order, as in relaxed order. An owner that
   vanished may have posted any of them under just that number.
3. The message leaves the stream only when it is on confirmed record that the event is over.
4. An event so far back that no owner can have posted it gets no number, and leaves no gap.
"""

from collections.abc import Collection

from msgspec import Struct

from actors.errors import ControlDenied
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.numbering import Frontier, advance, is_duplicate, with_number
from actors.machine.state import OPEN_MAX, UNRECORDED_MAX, open_entry
from actors.memory.mailbox import MAILBOX_MAX
from actors.runtime.actor import Actor
from actors.runtime.discard import while_idle


class EndedDeliveries(Struct, frozen=True):
    """Counts what was erased: `messages` of the stream, `waiting` of them not settled before."""

    messages: int
    waiting: int


async def end_deliveries(actor: Actor, event_id: str, positions: Collection[int]) -> EndedDeliveries:
    """Erase the event's messages at these positions, and return once they are gone.

    Raises ControlDenied and Unavailable; asking again finishes what was begun.
    """
    environment, waiting, gone = actor.environment, 0, dict[int, float]()
    async with while_idle(actor):
        for position in sorted(set(positions)):
            stored_at = await _stored_at(actor, event_id, position)
            if stored_at is not None:
                waiting += await _end(actor, event_id, position)
                gone[position] = stored_at
        actor.last_answer = None  # It may repeat the body, and does not say of which event.
        actor.burials.answers.forget(gone)
        await environment.confirmed_to(environment.recorder.index)
        for position, stored_at in gone.items():
            await environment.backlog.erase(position, stored_at)
    return EndedDeliveries(messages=len(gone), waiting=waiting)


async def _stored_at(actor: Actor, event_id: str, position: int) -> float | None:
    """When the stream stored it; None if that position has no such event of the receiver."""
    backlog = actor.environment.backlog
    found = open_entry(actor.state, position) or await backlog.event(actor.receiver, position)
    return found.stored_at if found is not None and found.id == event_id else None


async def _end(actor: Actor, event_id: str, position: int) -> bool:
    """Record the end of the event; False if it had ended before."""
    live, pending, environment = actor.live, actor.pending, actor.environment
    if any(each.position == position for each in actor.state.burials):
        raise ControlDenied("unavailable", f"{actor.receiver}: its dead letter is being stored; try again")
    if not await settle_in_order(actor, position):
        if pending.has(position):
            pending.park()  # Memory drops it, and continues reading when it is gone.
        live.record(c.EraseWaitingEvent(position, event_id), environment.clock.now())
        pending.settle(position)
        return True
    if open_entry(live.state, position) is None:
        return False
    if live.tokens.granted_position == position:
        live.tokens.end_grant(environment.clock.now(), environment.epoch, used=False)
    live.record(c.EraseOpenEvent(position), environment.clock.now())
    pending.open_in_memory.pop(position, None)
    pending.settle(position)
    return True


async def settle_in_order(actor: Actor, position: int) -> bool:
    """Number all events up to the position; False if no owner can have numbered the one there.

    What is numbered is open after that, and waits in the stream.
    """
    live, pending, environment = actor.live, actor.pending, actor.environment
    frontier = live.state.frontier
    if position <= frontier.position:
        return True
    if not live.state.opened:
        return False
    if pending.cursor.reading or live.policy is None or actor.removal_revision > live.state.removal:
        raise ControlDenied("unavailable", f"{actor.receiver} is working at this moment; try again")
    pending.park()
    if position <= pending.cursor.read_to:
        return True  # It was a duplicate, and took no number; nothing of the receiver is in memory now.
    found = await _read_to(actor, position)
    room = OPEN_MAX - len(live.state.open)
    ahead = _fresh(frontier, found)
    if len(ahead) > room:
        if position <= pending.posting.posted_to and len(ahead) <= UNRECORDED_MAX:
            raise ControlDenied(
                "unavailable",
                f"{actor.receiver}: an owner that vanished may have sent it, and too many events are open",
            )
        return False
    for event in found:
        if is_duplicate(live.state.frontier, event):
            live.record(c.DropDuplicate(event), environment.clock.now())
        else:
            live.record(c.NumberEvents((event,)), environment.clock.now())
    pending.cursor.pass_numbered(len(found), position)
    return True


async def _read_to(actor: Actor, position: int) -> list[Event]:
    """All events that are in the stream alone, up to the position, or as many as show that they are many."""
    receiver, backlog, found = actor.receiver, actor.environment.backlog, list[Event]()
    frontier, after = actor.state.frontier, actor.pending.cursor.read_to
    while after < position and len(_fresh(frontier, found)) <= UNRECORDED_MAX:
        page = await backlog.read(receiver, after, position, MAILBOX_MAX)
        found += [each for each in page.events if each.position <= position]
        after = position if page.complete or not page.events else page.events[-1].position
    if actor.state.frontier is not frontier or (
        len(found) <= UNRECORDED_MAX and not any(each.position == position for each in found)
    ):
        raise ControlDenied("unavailable", f"{receiver}: the stream is not all there; try again")
    return found


def _fresh(frontier: Frontier, events: list[Event]) -> list[Event]:
    """Pick the events that get a number."""
    fresh = list[Event]()
    for event in events:
        if not is_duplicate(frontier, event):
            frontier = advance(frontier, with_number(event, frontier.sequence + 1))
            fresh.append(event)
    return fresh
