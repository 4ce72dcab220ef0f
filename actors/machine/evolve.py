"""The fold of a receiver's facts into its state.

`evolve` refuses no fact: what a fact says has happened. A fact carries its results (numbers, the bucket,
the end of a pause), so no policy, no clock and no choice is needed here. The live actor and the recovery
after a crash get the same state from the same facts.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from actors.configuration.transform import transform_bytes
from actors.ids import dedup_key
from actors.machine import facts as f
from actors.machine.alerts.folding import after_alert, last_dead_letter_at
from actors.machine.alerts.returning import after_failure, after_success
from actors.machine.handshake.folding import after_handshake, due_at_once
from actors.machine.numbering import Numbered, advance, advance_all, move_frontier, resize, without_keys
from actors.machine.state import (
    TRANSFORMS_BYTES_MAX,
    TRANSFORMS_MAX,
    OpenEvent,
    RecordedTransform,
    State,
    fresh_entry,
    in_order,
    transform_of_letter,
)


def evolve(state: State, fact: f.Fact) -> State:
    """The state after `fact`."""
    match fact:
        case f.Delivered():
            return after_delivery(state, fact)
        case f.AttemptFailed() | f.Throttled():
            return after_outcome(state, fact)
        case f.DeadLettered():
            return _after_dead_letter(state, fact)
        case f.EventsNumbered(events=events):
            return _with_open(state, events)
        case f.Started(events=events, bucket=bucket):
            return replace(_with_open(state, events), bucket=bucket or state.bucket)
        case f.Buried(position=position, positions=positions):
            done = {position, *positions}
            return replace(state, burials=tuple(each for each in state.burials if each.position not in done))
        case f.EventDropped(reason=reason):
            return _count(state, discarded=1) if reason == f.ERASED else _count(state, duplicates=1)
        case f.Parked():
            return _after_parking(state, fact)
        case f.Unparked():
            return replace(state, parked=False, waiting_since=None)
        case f.Opened(position=position, window=window, removal=removal):
            frontier = move_frontier(state.frontier, position, state.frontier.sequence + 1)
            if not frontier.sequence and not frontier.window:
                frontier = resize(frontier, window, 0)
            removal = max(state.removal, removal)
            return replace(state, opened=True, removed_at=None, frontier=frontier, removal=removal)
        case f.Removed():
            return _after_removal(state, fact)
        case f.Forgot():
            return _after_forgetting(state, fact)
        case f.Missing():
            return _after_loss(state, fact)
        case f.Repaired():
            return _after_repair(state, fact)
        case f.RemovalSet(removal=removal):
            return replace(state, removal=removal)
        case f.WindowSet(size=size, above=above):
            return replace(state, frontier=resize(state.frontier, size, above))
        case f.RateSet(limit=limit, bucket=bucket):
            return replace(state, limit=limit, bucket=bucket)
        case f.TransformSet():
            return with_transform(state, fact)
        case f.PaceSet():
            return after_lesson(state, fact)
        case f.Retargeted(target=target):
            return replace(_unimpeded(state), target=target)
        case f.Paused():
            return replace(state, paused=True)
        case f.Resumed():
            return replace(_unimpeded(state), paused=False)
        case f.Disabled(reason=reason, at=at):
            return replace(state, disabled=reason, disabled_at=state.disabled_at if state.disabled else at)
        case f.Pinged(bucket=bucket):
            return replace(state, bucket=bucket or state.bucket)
        case f.EventRefused():
            return _after_refusal(state, fact)
        case f.TurnedAway(events=turned_away, discarded=discarded):
            frontier = move_frontier(state.frontier, turned_away[-1].position, state.frontier.sequence + 1)
            if discarded:
                return _count(replace(state, frontier=frontier), discarded=len(turned_away))
            burials = (*state.burials, *turned_away)
            return _count(replace(state, frontier=frontier, burials=burials), dead=len(turned_away))
        case f.AlertRaised() | f.AlertRecovered() | f.AlertsPublished():
            return after_alert(state, fact)
        case f.HandshakeStarted() | f.HandshakeSucceeded() | f.HandshakeFailed():
            return after_handshake(state, fact)
        case _:
            assert_never(fact)


def _after_parking(state: State, fact: f.Parked) -> State:
    """The state after its waiting events were dropped from memory."""
    frontier = state.frontier
    if fact.position:
        frontier = move_frontier(frontier, fact.position, frontier.sequence + 1)
    return replace(state, parked=True, waiting_since=fact.waiting_since, frontier=frontier)


def after_lesson(state: State, fact: f.PaceSet) -> State:
    """The state with another pace; a receiver with nothing left to use is throttled, as by `Retry-After`."""
    told = fact.pace.told
    until = told.until if told is not None and told.per_second == 0 else 0.0
    return replace(state, pace=fact.pace, throttled_until=max(state.throttled_until, until))


def with_transform(state: State, fact: f.TransformSet) -> State:
    """The state with another transform in force. Earlier ones stay as long as open events need them."""
    needed = {each.transform for each in state.open}
    kept = [each for each in state.transforms if each.revision in needed]
    if fact.transform is not None:
        kept.append(RecordedTransform(revision=fact.revision, transform=fact.transform, key=fact.key))
    return replace(
        state, transforms=_newest(kept), pseudonym_key=fact.key,
        transform=0 if fact.transform is None else fact.revision,
    )  # fmt: skip


def _newest(transforms: list[RecordedTransform]) -> tuple[RecordedTransform, ...]:
    """The newest of them, in their order: one, and as many as a snapshot has room for."""
    newest, size = list[RecordedTransform](), 0
    for each in reversed(transforms[-TRANSFORMS_MAX:]):
        size += transform_bytes(each.transform)
        if newest and size > TRANSFORMS_BYTES_MAX:
            break
        newest.append(each)
    return tuple(reversed(newest))


def _with_open(state: State, events: tuple[Numbered, ...]) -> State:
    """The state in which these events are open."""
    known = {each.position: each for each in state.open}
    for each in events:
        if each.position not in known:
            known[each.position] = fresh_entry(each)
    frontier = advance_all(state.frontier, events)
    return replace(state, frontier=frontier, open=in_order(known.values()))


def after_delivery(state: State, fact: f.Delivered) -> State:
    """The state after a delivery."""
    opened, counters, count, last = state.open, state.counters, len(fact.events), fact
    match fact.events:
        case (event,):  # The most frequent case.
            frontier = advance(state.frontier, event)
        case events:
            frontier = advance_all(state.frontier, events)
            last = replace(fact, events=events[:1])
    if opened:
        settled = {each.position for each in fact.events}
        opened = tuple(each for each in opened if each.position not in settled)
    state = replace(
        state, frontier=frontier, open=opened, bucket=fact.bucket or state.bucket, last=last,
        failing_since=None, consecutive_failures=0, our_failures=0, throttles=0, backoff_until=0.0,
        counters=replace(counters, delivered=counters.delivered + count),
        joined=state.joined + count - 1 if count > 1 else state.joined,
    )  # fmt: skip
    return after_success(state, fact) if fact.returns_at or state.returning is not None else state


def after_outcome(state: State, fact: f.AttemptFailed | f.Throttled) -> State:
    """The state after an attempt that delivered nothing."""
    known = {each.position: each for each in state.open}
    for part in parts_of(fact):
        # Events that failed together are tried together: a receiver may know their POST by its numbers.
        post = (part[0].sequence, part[-1].sequence) if len(part) > 1 else None
        for each in part:
            entry = known.get(each.position) or fresh_entry(each)
            if entry.transform != each.transform:
                entry = replace(entry, transform=each.transform)  # Its own is gone.
            known[each.position] = _tried(entry, fact, post)
    opened = in_order(known.values())
    # The state is kept for every receiver, so the text of the answer stays in the journal alone.
    last = replace(fact, answer="") if isinstance(fact, f.AttemptFailed) and fact.answer else fact
    if len(fact.events) > 1:
        last = replace(last, events=fact.events[:1])
    state = replace(
        state, frontier=advance_all(state.frontier, fact.events), open=opened,
        bucket=fact.bucket or state.bucket, last=last,
        failing_since=state.failing_since if fact.failing_since is None else fact.failing_since,
    )  # fmt: skip
    count = max(1, len(fact.events))
    if count > 1:
        state = replace(state, joined=state.joined + count - 1)
    match fact:
        case f.Throttled():
            # An attempt that was under way when the pause began may lengthen it, but asks for no further one.
            pauses = state.throttles + (fact.at >= state.throttled_until)
            until = max(state.throttled_until, fact.until)
            state = replace(state, throttled_until=until, throttles=pauses, returning=after_failure(state))
            return _count(state, throttled=count)
        case f.AttemptFailed():
            if fact.kind == f.NO_ATTEMPT:
                return state
            if fact.rejected or fact.gone or not fact.is_trial:
                return _count(state, failed_attempts=count)
            if fact.at < state.backoff_until:
                # An attempt that was under way when the backoff began says nothing new.
                return _count(state, failed_attempts=count)
            if fact.ours:
                state = replace(state, our_failures=state.our_failures + 1, backoff_until=fact.until)
                return _count(state, failed_attempts=count)
            return _count(replace(
                state, consecutive_failures=state.consecutive_failures + 1, our_failures=0,
                backoff_until=fact.until, returning=after_failure(state),
                failing_since=fact.at if state.failing_since is None else state.failing_since,
            ), failed_attempts=count)  # fmt: skip
        case _:
            assert_never(fact)


def parts_of(fact: f.AttemptFailed | f.Throttled) -> Sequence[tuple[Numbered, ...]]:
    """The events of a POST that failed, as they are tried again: together, or half by half."""
    if isinstance(fact, f.AttemptFailed) and fact.halved:
        middle = (len(fact.events) + 1) // 2
        return [part for part in (fact.events[:middle], fact.events[middle:]) if part]
    return (fact.events,) if fact.events else ()


def _after_dead_letter(state: State, fact: f.DeadLettered) -> State:
    """The state after events were given up: each is to be buried, unless they are discarded."""
    opened, burials, is_discarded = state.open, state.burials, fact.reason == f.OUTSIDE_REGION
    for each in fact.events:
        opened = tuple(other for other in opened if other.position != each.position)
        if is_discarded:
            continue
        burials += (f.Burial(
            position=each.position, sequence=each.sequence, reason=fact.reason, attempts=fact.attempts,
            status=fact.status, transform=transform_of_letter(state, each.transform),
        ),)  # fmt: skip
    bucket = fact.bucket or state.bucket
    state = replace(
        state,
        frontier=advance_all(state.frontier, fact.events),
        open=opened,
        burials=burials,
        bucket=bucket,
        dead_letter_at=last_dead_letter_at(state, fact),
    )
    count = len(fact.events)
    return _count(state, discarded=count) if is_discarded else _count(state, dead=count)


def _after_removal(state: State, fact: f.Removed) -> State:
    """The state after the receiver was removed."""
    frontier = move_frontier(state.frontier, fact.position, fact.next_sequence, fact.source, fact.keys)
    return _count(replace(
        _unimpeded(state), opened=False, removed_at=fact.at, open=(), waiting_since=None, target="",
        handshake=None,
        frontier=frontier, bucket=fact.bucket or state.bucket, removal=max(state.removal, fact.removal),
        dead_letter_at=0.0,
    ), discarded=fact.discarded)  # fmt: skip


def _after_forgetting(state: State, fact: f.Forgot) -> State:
    """The state after a `forget`: nothing waits or has failed; a pause that the receiver asked for stays."""
    frontier = move_frontier(state.frontier, fact.position, fact.next_sequence, fact.source, fact.keys)
    return _count(replace(
        state, open=(), waiting_since=None, failing_since=None, consecutive_failures=0, our_failures=0,
        backoff_until=0.0, frontier=frontier, bucket=fact.bucket or state.bucket,
    ), discarded=fact.discarded)  # fmt: skip


def _after_loss(state: State, fact: f.Missing) -> State:
    """The state after stored events are gone: lost, or erased by an operator."""
    left_open = tuple(each for each in state.open if not fact.first <= each.position <= fact.last)
    frontier = move_frontier(state.frontier, fact.last, fact.next_sequence, fact.source)
    after = replace(state, frontier=frontier, open=left_open, bucket=fact.bucket or state.bucket)
    erased = len(state.open) - len(left_open) if fact.reason == f.ERASED else 0
    return _count(after, discarded=erased) if erased else after


def _after_repair(state: State, fact: f.Repaired) -> State:
    """Set the frontier back, which no other fact does: other events follow the position now.

    Events that were open beyond it were never certainly delivered, so they are no duplicates if they come
    again.
    """
    position, frontier = fact.position, state.frontier
    dropped = [each for each in state.open if each.position > position]
    return replace(
        state,
        frontier=replace(
            frontier,
            position=min(frontier.position, position),
            sequence=max(frontier.sequence, fact.next_sequence - 1),
            source=min([frontier.source, *(each.source - 1 for each in dropped if each.source)]),
            window=without_keys(frontier.window, {dedup_key(each.id, each.again) for each in dropped}),
        ),
        open=tuple(each for each in state.open if each.position <= position),
        burials=tuple(each for each in state.burials if each.position <= position),
        bucket=fact.bucket or state.bucket,
    )


def _after_refusal(state: State, fact: f.EventRefused) -> State:
    """The state after a refused event, which gets no number, is passed over and becomes a dead letter."""
    burials = (*state.burials, f.Burial(position=fact.position, reason=fact.reason))
    frontier = move_frontier(state.frontier, fact.position, state.frontier.sequence + 1, fact.source)
    removed_at = state.removed_at if state.opened else fact.at
    return _count(replace(state, frontier=frontier, burials=burials, removed_at=removed_at), dead=1)


def _unimpeded(state: State) -> State:
    """The state with nothing that holds the receiver back or was learnt; open events may be tried at once."""
    return replace(
        state, pace=None, returning=None, throttled_until=0.0, throttles=0, backoff_until=0.0,
        failing_since=None, consecutive_failures=0, our_failures=0, disabled="", disabled_at=None,
        handshake=due_at_once(state.handshake),
        open=tuple(replace(each, next_at=0.0) for each in state.open),
    )  # fmt: skip


def _tried(entry: OpenEvent, fact: f.AttemptFailed | f.Throttled, post: tuple[int, int] | None) -> OpenEvent:
    halved = isinstance(fact, f.AttemptFailed) and fact.halved
    counted = isinstance(fact, f.AttemptFailed) and not (fact.gone or fact.ours or halved)
    rejected = isinstance(fact, f.AttemptFailed) and fact.rejected and not halved
    # One that failed only with others has not failed alone yet if this attempt counts for nothing.
    joined_before = not counted and (entry.post is not None or entry.halved)
    return replace(
        entry,
        attempts=fact.attempt,
        failures=entry.failures + counted,
        rejections=entry.rejections + rejected,
        next_at=fact.until if isinstance(fact, f.Throttled) else fact.next_at,
        status=fact.status,
        aborted=entry.aborted or (isinstance(fact, f.AttemptFailed) and fact.aborted),
        post=post,
        halved=halved or (joined_before and post is None),
    )


def _count(state: State, **more: int) -> State:
    totals = {name: getattr(state.counters, name) + count for name, count in more.items()}
    return replace(state, counters=replace(state.counters, **totals))
