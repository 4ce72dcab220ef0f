"""The next step of a receiver: the one thing that has to be done for it now."""

from collections.abc import Iterator
from operator import attrgetter

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine.alerts.returning import is_offline, width_on_return
from actors.machine.bucket import next_token_at, refill, take
from actors.machine.decide import FAILURES_IN_A_ROW_MAX, transform_differs
from actors.machine.event import Event
from actors.machine.handshake.proof import is_verified, next_handshake_at
from actors.machine.numbering import is_duplicate
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.batches import assemble, post_of
from actors.machine.scheduling.expiry import give_up_due, next_given_up, own_reason
from actors.machine.scheduling.learnt_pace import pace_limits, paced_start_at
from actors.machine.scheduling.offline_pings import pings_instead, step_while_offline
from actors.machine.scheduling.rules import NEVER, Rule, hold
from actors.machine.scheduling.unverified import OLDER_NODES_EVERY_S, step_while_unverified
from actors.machine.scheduling.view import View
from actors.machine.scheduling.without_policy import step_without_policy
from actors.machine.state import BURIALS_MAX, OPEN_MAX, OpenEvent, State, as_numbered, open_entry

PARK_AFTER_S = 2.0
"""A receiver that is held back for longer than this drops its waiting events from memory."""
_NEXT_AT = attrgetter("next_at")
_NEED_NOT_WAIT_FOR_FACTS = c.GiveUpEvents | s.ReadBacklog
_REMOVING, _ADOPTING, _IN_FLIGHT, _UNCONFIRMED, _RESTING, _BURIALS_FULL, _UNREADY = map(
    s.Rest,
    (
        Rule.REMOVAL, Rule.ADOPTION, Rule.IN_FLIGHT, Rule.UNCONFIRMED, Rule.RESTING, Rule.BURIALS_FULL,
        Rule.UNREADY,
    ),
)  # fmt: skip


def next_step(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    """The next step, by the first `Rule` that applies."""
    if state.burials and not view.burying and not view.barrier_unconfirmed:
        return s.Bury(state.burials)
    if policy is None:
        return step_without_policy(state, view, now)
    if not state.opened:
        # Events that an owner released, and that no state names, belonged to an unknown receiver.
        position = max(state.frontier.position, 0 if state.parked else view.bounds.released_to)
        # A removal that was not carried out yet comes next, even if the receiver seems new.
        return c.OpenReceiver(position, policy.dedup_window, state.removal)
    if view.removal_revision > state.removal:
        return _REMOVING if view.in_flight or view.confirming else s.ConfirmReceiver()
    waits_for_nodes = False
    if not view.policy_adopted or _window_differs(state, policy):
        if view.in_flight:
            return _ADOPTING
        # Older nodes would send the bodies as published. Until they are gone, events are only given up.
        waits_for_nodes = not view.bounds.all_know_transforms and transform_differs(state, policy)
        if not waits_for_nodes:
            bounds = view.bounds
            return c.Adopt(bounds.posted_to_max, bounds.epoch, bounds.policy_revision)
    cursor = view.cursor
    if not (cursor.is_counted or cursor.is_counting) and cursor.seen_to - cursor.read_to > policy.backlog_max:
        return s.CountBacklog(cursor.read_to)
    posts = len(view.in_flight) if policy.batch is None else view.posts_in_flight
    if posts >= concurrency_of(state, policy, now):
        return _IN_FLIGHT
    head = view.head
    if head and _is_over(state, head):
        return c.DropDuplicate(head)
    all_read = cursor.read_to >= cursor.seen_to and (head is None or head.position > cursor.seen_to)
    if state.parked and all_read and all(each.position > cursor.seen_to for each in state.open):
        return c.UnparkReceiver()
    if policy.order == "strict":
        step = _step_for(state, policy, view, now, state.open[0] if state.open else None, waits_for_nodes)
    else:
        step = _soonest(
            _step_for(state, policy, view, now, each, waits_for_nodes)
            for each in candidates(state, policy, view)
        )
    waits = view.barrier_unconfirmed and not isinstance(step, _NEED_NOT_WAIT_FOR_FACTS)
    return _UNCONFIRMED if waits else step


def concurrency_of(state: State, policy: Policy, now: float) -> int:
    """The number of attempts that may be in flight.

    A relaxed receiver that failed is tried by one alone, and by few at first if it was offline.
    """
    if policy.order == "strict" or state.failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
        return 1
    widest = policy.concurrency
    if state.failing_since is not None and policy.offline.ping and is_offline(state, policy, now):
        return 1
    if state.returning is not None:
        widest = width_on_return(state.returning, widest, now)
    if state.pace is None and not policy.adaptive.smart:
        return widest  # The most frequent case.
    learnt = pace_limits(state, policy, now).in_flight
    return widest if learnt is None else min(widest, learnt)


def candidates(state: State, policy: Policy, view: View) -> Iterator[OpenEvent | None]:
    """Yield the events that may be next in relaxed order; None stands for the next one without a number.

    Of the open events two are enough: the one that is due first, and the oldest, which expires first.
    """
    idle = [each for each in state.open if each.position not in view.in_flight]
    if idle:
        # One that was never tried, and has no transform, has no reason of its own to be given up.
        given_up = [
            each for each in idle if (each.attempts or each.transform) and own_reason(state, policy, each)
        ]
        first = min(given_up or idle, key=_NEXT_AT)
        yield first
        if idle[0] is not first:
            yield idle[0]
    if len(state.open) < OPEN_MAX:
        yield None


def _soonest(steps: Iterator[s.Step]) -> s.Step:
    """The first step that can be done now, else the one that can be done soonest."""
    waiting: s.Step = _RESTING
    for step in steps:
        match step:
            case s.Rest():
                if waiting is _RESTING:
                    waiting = step
            case s.WaitUntil(at):
                if not isinstance(waiting, s.WaitUntil) or at < waiting.at:
                    waiting = step
            case _:
                return step
    return waiting


def _is_over(state: State, head: Event) -> bool:
    """True if the event gets no attempt: it is settled, or a duplicate."""
    if head.position <= state.frontier.position:
        return open_entry(state, head.position) is None
    return is_duplicate(state.frontier, head)


def _step_for(
    state: State, policy: Policy, view: View, now: float, entry: OpenEvent | None, waits_for_nodes: bool
) -> s.Step:
    """The step for an open event, or for the next one that has no number."""
    event = view.open_in_memory.get(entry.position) if entry else view.head
    if entry is None and event is None and not (state.parked and view.cursor.read_to < view.cursor.seen_to):
        return _wait_for_nodes(now, NEVER, drops=view.has_unacked) if waits_for_nodes else _RESTING
    ends_at, reason = give_up_due(state, policy, view, entry, event)
    if now >= ends_at:
        return _give_up(state, policy, view, now, entry, reason)
    if waits_for_nodes:
        return _wait_for_nodes(now, ends_at, drops=view.has_unacked or event is not None)
    ready_at = max(entry.next_at if entry else 0.0, state.throttled_until, state.backoff_until)
    verified = policy.handshake == "none" or is_verified(state, policy)  # Most need no call.
    if not verified:
        ready_at = max(ready_at, next_handshake_at(state, policy))
    if policy.paused or state.disabled:
        ready_at = NEVER
    if now < ready_at:
        # A receiver that is held back also drops what it has read; one that only lacks a token needs it soon.
        # In relaxed order a waiting event holds no other back.
        only_this_event_waits = policy.order == "relaxed" and ready_at == (entry.next_at if entry else 0.0)
        drops = not only_this_event_waits and (view.has_unacked or event is not None)
        held = None if only_this_event_waits else hold(state, policy, now)
        return _wait(now, min(ready_at, ends_at), held.rule if held else Rule.RETRYING, drops=drops)
    if not verified:
        return _in_time(step_while_unverified(state, view, now), now, ends_at, drops=view.has_unacked)
    position = entry.position if entry else event.position if event else 0
    if policy.offline.ping and pings_instead(state, policy, view, position, now):
        return _in_time(step_while_offline(state, view, now), now, ends_at, drops=view.has_unacked)
    if event is None and not view.bounds.may_try_host:
        return _wait(now, ends_at, Rule.DOWN_HOST_UNREAD, drops=False)
    if policy.batch is not None:
        batch = assemble(state, policy, policy.batch, view, now, entry)
        if not isinstance(batch, tuple):
            return _no_later_than(batch, ends_at)
        event = batch[0]
    elif event is None:
        return s.ReadOpenEvents((entry.position,)) if entry else s.ReadBacklog(view.cursor.read_to)
    else:
        batch = (event,)
    if not view.bounds.may_start:
        return _UNREADY
    if not view.bounds.may_reach:
        return _wait(now, ends_at, Rule.OUTAGE, drops=False)
    granted = view.granted_position == event.position
    if (state.pace is not None or policy.adaptive.smart) and not granted:
        due_at = paced_start_at(state, policy, now, view.paced_at)
        if now < due_at:
            return _wait(now, min(due_at, ends_at), Rule.PACE, drops=view.has_unacked)
    has_token = state.limit is None or granted
    if not has_token and state.limit and view.bucket:
        filled = refill(view.bucket, state.limit, now, view.bucket.epoch, view.set_aside)
        if take(filled) is None:
            return _wait(
                now, min(next_token_at(filled, state.limit), ends_at), Rule.TOKEN, drops=view.has_unacked
            )
        if not view.bounds.may_try_host:
            return _wait(now, ends_at, Rule.DOWN_HOST, drops=False)
        if state.limit.is_slow:
            return c.StartAttempt(batch)
    elif state.limit is None and not view.bounds.may_try_host:
        return _wait(now, ends_at, Rule.DOWN_HOST, drops=False)
    if policy.batch is not None:
        return post_of(state, policy, batch, has_token=has_token)
    if entry is None:
        return s.Post(
            event, state.frontier.sequence + 1, 1, has_token, numbered_first=policy.order == "relaxed"
        )
    return s.Post(event, entry.sequence, entry.attempts + 1, has_token)


def _give_up(
    state: State, policy: Policy, view: View, now: float, entry: OpenEvent | None, reason: str
) -> s.Step:
    if entry is None and view.head is None:
        return s.ReadBacklog(view.cursor.read_to)
    if len(state.burials) >= BURIALS_MAX:
        return _BURIALS_FULL
    events = (as_numbered(entry),) if entry else next_given_up(state, policy, view, now, reason)
    return c.GiveUpEvents(events, reason)


def _in_time(step: s.Step, now: float, ends_at: float, *, drops: bool) -> s.Step:
    """The step in place of an attempt, which waits no longer than until its event is given up."""
    return (
        _wait(now, min(step.at, ends_at), step.rule, drops=drops) if isinstance(step, s.WaitUntil) else step
    )


def _no_later_than(step: s.Step, ends_at: float) -> s.Step:
    """The step, which does not wait beyond the time at which its oldest event is given up."""
    return s.WaitUntil(min(step.at, ends_at), step.rule) if isinstance(step, s.WaitUntil) else step


def _wait(now: float, until: float, rule: Rule, *, drops: bool) -> s.Step:
    if drops and until - now > PARK_AFTER_S:
        return s.Park(rule)
    return s.Rest(rule) if until == NEVER else s.WaitUntil(until, rule)


def _wait_for_nodes(now: float, ends_at: float, *, drops: bool) -> s.Step:
    return _wait(now, min(now + OLDER_NODES_EVERY_S, ends_at), Rule.OLDER_NODES_TRANSFORM, drops=drops)


def _window_differs(state: State, policy: Policy) -> bool:
    return state.frontier.change is None and state.frontier.size != policy.dedup_window
