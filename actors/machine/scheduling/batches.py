"""Batches: which events of a receiver go together in one POST, and when.

1. Events that failed in one recorded POST go together again, without those that left, and with no others: a
   receiver may know that POST by its first and last number. The halves of a POST that was halved are such
   POSTs, too (`OpenEvent.group`).
2. All other events are free: those without a recorded outcome go with those that follow them, up to the
   limits of the configuration. One event goes however large it is.
3. A batch has no hole: an event between its numbers that is not in it is settled.
4. Duplicates are recognised one by one, with the dedup window as the earlier events of the batch leave it.
5. A batch of failed events that is larger than the configuration allows is cut from its front.
6. The bodies of as many as may go are in memory, and what has to be given up is given up first. No batch
   grows beyond an event that is malformed, or whose region is not among the receiver's.
7. Its events, those in flight, and those that are settled and not confirmed are `UNCONFIRMED_MAX` at most:
   an owner that vanishes leaves no more than that to be sent again.
8. An attempt that was not made before waits for more events for `linger_s`, unless no other can join it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from actors.configuration.policy import BatchLimits, Policy
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.facts import OUTSIDE_REGION
from actors.machine.numbering import next_in_order
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.view import View
from actors.machine.state import BURIALS_MAX, OPEN_MAX, OpenEvent, State, as_numbered

_IN_FLIGHT, _UNREADY, _BURIALS_FULL = map(
    s.Rest, (Rule.BATCH_IN_FLIGHT, Rule.UNREADY, Rule.BURIALS_FULL)
)  # fmt: skip


def assemble(
    state: State, policy: Policy, limits: BatchLimits, view: View, now: float, entry: OpenEvent | None
) -> tuple[Event, ...] | s.ReadOpenEvents | s.ReadBacklog | s.WaitUntil | s.Rest | c.GiveUpEvents:
    """The events of the POST that `entry` belongs to, or the next without numbers; else the next step."""
    members = members_of(state, view, entry)[: limits.max_events] if entry else ()
    if not members and entry is not None:
        return _IN_FLIGHT
    if (unshapeable := _first_unshapeable(state, view, members)) is not None:
        full = len(state.burials) >= BURIALS_MAX
        return _BURIALS_FULL if full else c.GiveUpEvents((as_numbered(unshapeable),), "transform")
    if missing := tuple(each.position for each in members if each.position not in view.open_in_memory):
        return s.ReadOpenEvents(missing)
    for each in members if policy.region else ():
        if not policy.admits(view.open_in_memory[each.position].region):
            return c.GiveUpEvents((as_numbered(each),), OUTSIDE_REGION)
    tried = entry is not None and entry.group is not None
    events = [view.open_in_memory[each.position] for each in members]
    complete = tried or (bool(members) and members[-1] is not state.open[-1])
    if not complete:
        room = room_of(state, policy, limits, len(members))
        waiting = takewhile(partial(_may_go, policy), view.waiting) if policy.region else view.waiting
        fresh = next_in_order(state.frontier, waiting, room)
        events, complete = events + fresh, len(fresh) >= room
    kept = within_limits(events, limits)
    complete = complete or len(kept) < len(events)
    if not complete and now < (until := _lingers_until(state, policy, limits, view, kept)):
        return s.WaitUntil(until, Rule.LINGERING)
    if not kept:
        return s.ReadBacklog(view.cursor.read_to)
    return tuple(kept) if len(kept) <= view.bounds.room else _UNREADY


def _first_unshapeable(state: State, view: View, members: Sequence[OpenEvent]) -> OpenEvent | None:
    """The first of these events that has to be given up because its body cannot be shaped."""
    for each in members:
        event = view.open_in_memory.get(each.position)
        if state.transform_for(each.transform) is None or (event is not None and event.unshapeable):
            return each
    return None


def members_of(state: State, view: View, entry: OpenEvent) -> Sequence[OpenEvent]:
    """The open events that go with `entry`, in order; none if one of them is in flight."""
    if entry.group is None:
        return run_of(state, view, entry)
    members = [each for each in state.open if each.group == entry.group]
    return () if any(each.position in view.in_flight for each in members) else members


def run_of(state: State, view: View, entry: OpenEvent) -> Sequence[OpenEvent]:
    """The open events without a recorded outcome from `entry` on, with no other open event among them."""

    def goes(each: OpenEvent) -> bool:
        event = view.open_in_memory.get(each.position)
        given_up = event is not None and event.no_attempt
        return each.group is None and each.position not in view.in_flight and not given_up

    return list(takewhile(goes, state.open[state.open.index(entry) :]))


def room_of(state: State, policy: Policy, limits: BatchLimits, count: int) -> int:
    """The number of events without numbers that may join `count` open ones."""
    room = limits.max_events - count
    return room if policy.order == "strict" else min(room, OPEN_MAX - len(state.open))


def within_limits(events: Sequence[Event], limits: BatchLimits) -> list[Event]:
    """The first of the events, as many as one POST may have; one event goes in any case."""
    kept, size = list(events[: limits.max_events]), 0
    for count, event in enumerate(kept):
        size += len(event.body)
        if size > limits.max_bytes and count:
            return kept[:count]
    return kept


def post_of(state: State, policy: Policy, events: tuple[Event, ...], *, has_token: bool) -> s.PostBatch:
    """The POST of these events, which get their numbers in order."""
    known = {each.position: each for each in state.open}
    fresh = tuple(each for each in events if each.position not in known)
    first = known.get(events[0].position)
    given = [known[each.position].sequence for each in events if each.position in known]
    sequences = (*given, *range(state.frontier.sequence + 1, state.frontier.sequence + len(fresh) + 1))
    numbered_first = fresh if policy.order == "relaxed" else ()
    return s.PostBatch(events, sequences, first.attempts + 1 if first else 1, has_token, numbered_first)


def _may_go(policy: Policy, event: Event) -> bool:
    """True if the event may be sent at all; else it is given up when its turn comes."""
    return not event.no_attempt and policy.admits(event.region)


def _lingers_until(
    state: State, policy: Policy, limits: BatchLimits, view: View, events: Sequence[Event]
) -> float:
    """The time until which an incomplete batch waits for more events.

    While events are only in the stream, it waits if they are too few to fill a batch. Once some of them are
    in memory, it goes, since reading more of them might take as long as waiting.
    """
    if view.cursor.read_to < view.cursor.seen_to and (events or view.cursor.left_min >= limits.max_events):
        return 0.0
    if limits.linger_s and not all(_may_go(policy, each) for each in view.waiting):
        return 0.0  # No batch grows beyond such an event.
    oldest = events[0].stored_at if events else state.waiting_since
    return 0.0 if oldest is None else oldest + limits.linger_s
