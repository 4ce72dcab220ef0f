"""Steps for a receiver without a configuration that can be used.

Its events wait while there is one that never was valid, and are refused where there is none at all. They wait
as long as those of the most patient receiver may, and are given up before they leave the stream.
"""

from actors.machine import commands as c
from actors.machine.expiry import BURIALS_MAX
from actors.machine.numbering import is_repeat, with_number
from actors.machine.state import State, as_numbered
from actors.policy import AGE_MAX_S


def step_without_policy(state: State, view: c.View, now: float) -> c.Step:
    """Nothing is known of the receiver: the leader of the configurations says what becomes of its events.

    It is asked after an event has come: the receiver may have been put since it was asked before.
    """
    if view.cutoff and not view.in_flight and _waits_up_to(view.cutoff.to, state, view):
        return _give_up_oldest(state, view, view.cutoff.reason)
    if view.in_flight or view.asking:
        return c.Rest()
    if view.invalid:
        return _step_while_invalid(state, view, now)
    if state.opened:
        return c.Ask()
    head = view.head
    if head is None:
        if not state.parked:
            return c.Rest()
        return c.UnparkReceiver() if view.read_to >= view.seen else c.Read(view.read_to)
    if head.position > view.absent_to and not head.malformed:
        return c.Ask()
    reason = "malformed" if head.malformed else "unknown_receiver"
    return c.Rest() if len(state.burials) >= BURIALS_MAX else c.RefuseEvent(head, reason)


def _waits_up_to(position: int, state: State, view: c.View) -> bool:
    """Tells whether an event may wait there or before."""
    if state.open:
        return state.open[0].position <= position
    if view.head:
        return view.head.position <= position
    return state.parked and view.read_to < min(view.seen, position)


def _step_while_invalid(state: State, view: c.View, now: float) -> c.Step:
    """Nothing is sent; the oldest event is given up when it is too old for any configuration."""
    entry, head = state.open[0] if state.open else None, view.head
    if entry is None and head is None:
        if not state.parked:
            return c.Rest()
        if view.read_to >= view.seen:
            return c.UnparkReceiver()
    stored_at = entry.stored_at if entry else head.stored_at if head else state.waiting_since
    if stored_at is None:
        return c.Rest()
    if now < stored_at + AGE_MAX_S:
        return c.Park() if view.holding or head else c.WaitUntil(stored_at + AGE_MAX_S)
    return _give_up_oldest(state, view, "expired")


def _give_up_oldest(state: State, view: c.View, reason: str) -> c.Step:
    """One that was never opened gives no numbers: its events go as those of nobody do."""
    head = view.head
    if len(state.burials) >= BURIALS_MAX:
        return c.Rest()
    if state.open:
        return c.GiveUpEvents((as_numbered(state.open[0]),), reason)
    if head is None:
        return c.Read(view.read_to)
    if not state.opened:
        return c.RefuseEvent(head, reason)
    if is_repeat(state.frontier, head):
        return c.DropRepeat(head)
    return c.GiveUpEvents((with_number(head, state.frontier.sequence + 1),), reason)
