"""The step of a receiver whose next event is due, and that has not proved itself: a handshake comes first."""

from actors.machine import commands as c
from actors.machine.bucket import next_token_at, refill, take
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import NEVER, Rule
from actors.machine.scheduling.view import View
from actors.machine.state import State

OLDER_NODES_EVERY_S = 5.0
"""Time after which the nodes are looked at again, if one of them does not know handshakes."""


def step_while_unverified(state: State, view: View, now: float) -> s.Step:
    """Make a handshake, which takes a token like an attempt, and is recorded first."""
    if view.handshake_under_way:
        return s.Rest(Rule.IN_HANDSHAKE)
    if not view.bounds.may_start:
        return s.Rest(Rule.UNREADY)
    if not view.bounds.may_reach:
        return s.WaitUntil(NEVER, Rule.OUTAGE)
    if not view.bounds.all_know_handshakes:
        return s.WaitUntil(now + OLDER_NODES_EVERY_S, Rule.OLDER_NODES)
    if state.limit is not None and view.bucket is not None:
        filled = refill(view.bucket, state.limit, now, view.bucket.epoch, view.set_aside)
        if take(filled) is None:
            return s.WaitUntil(next_token_at(filled, state.limit), Rule.TOKEN)
    return c.StartHandshake()
