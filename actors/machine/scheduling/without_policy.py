"""Steps for a receiver without a usable configuration.

Its events wait if it has a configuration that was never valid, and are refused if it has none. They wait as
long as any configuration allows, and are given up before the stream drops them.
"""

from actors.configuration.policy import AGE_MAX_S
from actors.machine import commands as c
from actors.machine.numbering import is_duplicate, with_number
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.view import View
from actors.machine.state import BURIALS_MAX, State, as_numbered

_REST = s.Rest(Rule.UNCONFIGURED)


def step_without_policy(state: State, view: View, now: float) -> s.Step:
    """The step if no configuration is known: the leader of the configurations decides about the events.

    It is asked again after each event that arrives: the receiver may have been put in the meantime.
    """
    if view.cutoff and not view.in_flight and _waits_up_to(view.cutoff.to, state, view):
        return _give_up_oldest(state, view, view.cutoff.reason)
    if view.in_flight or view.confirming:
        return _REST
    if view.invalid:
        return _step_while_invalid(state, view, now)
    if state.opened:
        return s.ConfirmReceiver()
    head = view.head
    if head is None:
        if not state.parked:
            return _REST
        return (
            c.UnparkReceiver()
            if view.cursor.read_to >= view.cursor.seen_to
            else s.ReadBacklog(view.cursor.read_to)
        )
    if head.position > view.absent_up_to and not head.malformed:
        return s.ConfirmReceiver()
    reason = "malformed" if head.malformed else "unknown_receiver"
    return _REST if len(state.burials) >= BURIALS_MAX else c.RefuseEvent(head, reason)


def _waits_up_to(position: int, state: State, view: View) -> bool:
    """True if an event may wait at `position` or before it."""
    if state.open:
        return state.open[0].position <= position
    if view.head:
        return view.head.position <= position
    return state.parked and view.cursor.read_to < min(view.cursor.seen_to, position)


def _step_while_invalid(state: State, view: View, now: float) -> s.Step:
    """The step while the configuration cannot be used: wait until the oldest event is too old for any."""
    entry, head = state.open[0] if state.open else None, view.head
    if entry is None and head is None:
        if not state.parked:
            return _REST
        if view.cursor.read_to >= view.cursor.seen_to:
            return c.UnparkReceiver()
    stored_at = entry.stored_at if entry else head.stored_at if head else state.waiting_since
    if stored_at is None:
        return _REST
    expires_at = stored_at + AGE_MAX_S
    if now >= expires_at:
        return _give_up_oldest(state, view, "expired")
    if view.has_unacked or head:
        return s.Park(Rule.UNCONFIGURED)
    return s.WaitUntil(expires_at, Rule.UNCONFIGURED)


def _give_up_oldest(state: State, view: View, reason: str) -> s.Step:
    """Give up the oldest event; if the receiver was never opened, it is refused without a number."""
    head = view.head
    if len(state.burials) >= BURIALS_MAX:
        return _REST
    if state.open:
        return c.GiveUpEvents((as_numbered(state.open[0]),), reason)
    if head is None:
        return s.ReadBacklog(view.cursor.read_to)
    if not state.opened:
        return c.RefuseEvent(head, reason)
    if is_duplicate(state.frontier, head):
        return c.DropDuplicate(head)
    return c.GiveUpEvents((with_number(head, state.frontier.sequence + 1, state.transform),), reason)
