"""Expiry: gives up events that get no more attempts, the oldest first, as many at a time as are in memory.

An open event is given up once its own attempts are used up, or once it cannot be shaped any more. A waiting
event is given up because of its place: it is too old, or there are more than the receiver may have waiting,
or it is below a given position (`evicted`), or its region is not among the receiver's. No pause, throttling
or disablement protects an event from that. Events that are only in the stream are read first and get their
numbers like all others; one fact gives up as many as were in memory.
"""

from itertools import islice

from actors.configuration.policy import Policy
from actors.machine.event import Event
from actors.machine.facts import OUTSIDE_REGION
from actors.machine.numbering import Numbered, advance, is_duplicate, with_number
from actors.machine.scheduling.rules import NEVER
from actors.machine.scheduling.view import View
from actors.machine.state import BURIALS_MAX, OpenEvent, State

OVERFLOW_AT_ONCE = 64
"""Number of events beyond `backlog_max` from which on they are given up without delay."""
OVERFLOW_EVERY_S = 1.0
"""Delay when there are fewer of them, so that not every event makes a separate fact."""
DUE_ALREADY = 0.0


def own_reason(state: State, policy: Policy, entry: OpenEvent) -> str:
    """The reason to give up an open event by itself, whatever its place; empty if there is none.

    It has failed too often, or its body cannot be shaped any more as that of its first attempt was.
    """
    if entry.aborted or entry.rejections >= policy.retry.rejected_attempts:
        return "rejected"
    # A POST with several events does not show which of them failed.
    used_up = entry.has_failed_alone and 0 < policy.retry.max_attempts <= entry.failures
    if used_up:
        return "attempts"
    return "transform" if entry.transform and state.transform_for(entry.transform) is None else ""


def overflow_count(state: State, policy: Policy, view: View) -> int:
    """Count the waiting events beyond `backlog_max`, as far as they are known."""
    waiting = view.cursor.left_min + len(view.waiting) + len(state.open) + len(view.in_flight)
    beyond = waiting - policy.backlog_max
    if beyond <= 0:
        return 0
    return beyond - sum(position <= state.frontier.position for position in view.in_flight)  # They are open.


def give_up_due(
    state: State, policy: Policy, view: View, entry: OpenEvent | None, event: Event | None
) -> tuple[float, str]:
    """The time at which an event is given up, and why: the open one, or the next without a number.

    `event` is None if the event is not in memory; then it is the one that is read next.
    """
    if entry and (reason := own_reason(state, policy, entry)):
        return DUE_ALREADY, reason
    if event and (event.malformed or event.unshapeable):
        return DUE_ALREADY, event.no_attempt
    if event and event.region and not policy.admits(event.region):
        return DUE_ALREADY, OUTSIDE_REGION
    place = entry.position if entry else event.position if event else view.cursor.read_to + 1
    if view.cutoff and place <= view.cutoff.to:
        return DUE_ALREADY, view.cutoff.reason
    stored_at = entry.stored_at if entry else event.stored_at if event else state.waiting_since
    expires = NEVER if stored_at is None else stored_at + policy.retry.max_age_s, "expired"
    beyond = overflow_count(state, policy, view)
    if beyond <= 0:
        return expires
    overflows_at = DUE_ALREADY if beyond >= OVERFLOW_AT_ONCE else view.overflowed_at + OVERFLOW_EVERY_S
    return min(expires, (overflows_at, "overflow"))


def next_given_up(state: State, policy: Policy, view: View, now: float, reason: str) -> tuple[Numbered, ...]:
    """The oldest events in memory without a number that are given up for the same `reason` as the first."""
    room = BURIALS_MAX - len(state.burials)
    if reason == "overflow":
        room = min(room, overflow_count(state, policy, view))
    frontier, found = state.frontier, list[Numbered]()
    for event in islice(view.waiting, max(0, room)):
        if is_duplicate(frontier, event) or not _is_given_up(policy, view, now, event, reason):
            break
        found.append(with_number(event, frontier.sequence + 1, state.transform))
        frontier = advance(frontier, found[-1])
    return tuple(found)


def _is_given_up(policy: Policy, view: View, now: float, event: Event, reason: str) -> bool:
    if (no_attempt := event.no_attempt) or reason in ("malformed", "transform"):
        return reason == no_attempt
    if reason == OUTSIDE_REGION or not policy.admits(event.region):
        return reason == OUTSIDE_REGION and not policy.admits(event.region)
    match reason:
        case "expired":
            return event.stored_at + policy.retry.max_age_s <= now
        case "overflow":
            return True
        case _:
            return view.cutoff is not None and event.position <= view.cutoff.to
