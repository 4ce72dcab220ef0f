"""The step of an offline receiver that gets pings in place of events: one at a time, when an event is due."""

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine.alerts.returning import is_offline
from actors.machine.bucket import next_token_at, refill, take
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import NEVER, Rule
from actors.machine.scheduling.view import View
from actors.machine.state import State


def pings_instead(state: State, policy: Policy, view: View, position: int, now: float) -> bool:
    """True if a ping takes the place of the event at `position`, unless its attempt is recorded already.

    Older nodes would not know how the ping ended, so events are sent while there is one.
    """
    if not (policy.offline.ping and is_offline(state, policy, now)):
        return False
    return not 0 < view.granted_position == position and view.bounds.all_know_offline_pings


def step_while_offline(state: State, view: View, now: float) -> s.Step:
    """Make a ping, which takes a token and a turn like an attempt, and is recorded first."""
    if view.offline_ping_under_way:
        return s.WaitUntil(NEVER, Rule.PINGING)
    if not view.bounds.may_start:
        return s.Rest(Rule.UNREADY)
    if not view.bounds.may_reach:
        return s.WaitUntil(NEVER, Rule.OUTAGE)
    if state.limit is not None and view.bucket is not None:
        filled = refill(view.bucket, state.limit, now, view.bucket.epoch, view.set_aside)
        if take(filled) is None:
            return s.WaitUntil(next_token_at(filled, state.limit), Rule.TOKEN)
    if not view.bounds.may_try_host:
        return s.WaitUntil(NEVER, Rule.DOWN_HOST)
    return c.StartPing()
