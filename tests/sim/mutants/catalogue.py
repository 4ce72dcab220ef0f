"""Rules of the design, each taken out of the product by itself: the simulator has to find what that breaks.

A mutant replaces a named part of the product while runs are made; the product knows nothing of it. One that
survives means that a checker is blind, or that a rule is not needed.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.ids import dedup_key
from actors.machine import bucket, decide, event, evolve, facts, numbering
from actors.machine import commands as c
from actors.machine.bucket import Bucket, RateLimit, Unclean
from actors.machine.event import Event
from actors.machine.facts import Claimed
from actors.machine.numbering import is_duplicate
from actors.machine.outcome import Answered, Failed, judge
from actors.machine.scheduling import next_step as scheduling
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.view import View
from actors.machine.state import OPEN_MAX, OpenEvent, State
from actors.memory import tokens
from actors.memory.cursor import Cursor
from actors.memory.retention import NeededPosition
from actors.memory.tokens import Tokens
from actors.memory.unacked import ShardUnacked
from actors.runtime import actor, live_state
from actors.runtime.host import Host
from actors.runtime.live_state import LiveState
from actors.runtime.pending import Pending
from actors.runtime.posting_bounds import PostingBounds
from streams.fleet import members
from streams.fleet.lease import LEASE_MARGIN_S, Lease
from streams.fleet.members import Members
from streams.fleet.own_heartbeats import StoredHeartbeat
from streams.fleet.signs_of_life import SignsOfLife
from streams.installation.topology import Names
from streams.journal import claim, journal, recovery, snapshots
from streams.journal.claim import Claim, NotOwned, Owner
from streams.journal.envelope import Flush, decode_flush
from streams.journal.fence import Appended, Overtaken, append
from streams.journal.journal import Journal
from streams.journal.snapshots import Snapshots
from streams.nats.answers import Page, Put, StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.reading import backlog
from tests.sim.alerts.mutants import ALERT_MUTANTS
from tests.sim.batches.mutants import BATCH_MUTANTS
from tests.sim.handshakes.mutants import HANDSHAKE_MUTANTS
from tests.sim.mutants.backlogs import BACKLOG_MUTANTS
from tests.sim.mutants.consumers import CONSUMER_MUTANTS
from tests.sim.mutants.copies import COPY_MUTANTS
from tests.sim.mutants.flooding import FLOODING_MUTANTS
from tests.sim.mutants.leaders import LEADER_MUTANTS
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.placement import PLACEMENT_MUTANTS
from tests.sim.mutants.storage import STORAGE_MUTANTS
from tests.sim.mutants.tails import TAIL_MUTANTS
from tests.sim.mutants.unknown_receivers import UNKNOWN_MUTANTS
from tests.sim.offline.mutants import OFFLINE_MUTANTS
from tests.sim.outages.mutants import OUTAGE_MUTANTS
from tests.sim.paces.mutants import PACE_MUTANTS
from tests.sim.resending.mutants import RESENDING_MUTANTS
from tests.sim.scenarios import abort_and_disable, backlogs, rates, reading, width
from tests.sim.scenarios import numbering as numbers
from tests.sim.scenarios.recovery import ownership
from tests.sim.selection.mutants import SELECTION_MUTANTS
from tests.sim.timed.mutants import TIMED_MUTANTS
from tests.sim.transforms.mutants import TRANSFORM_MUTANTS

# ---- acks and the floor

_floor = ShardUnacked.floor
_FAR = 1 << 60


def _ack_at_once(host: Host) -> None:
    host.ack(host.shard_unacked.received)


def _floor_of_memory(shard_unacked: ShardUnacked, index: int) -> int:
    return _floor(shard_unacked, _FAR)


_queue_or_leave = Pending.queue_or_leave


def _drop_repeats_at_once(pending: Pending, event: Event) -> None:
    frontier = pending.live.state.frontier
    if event.position > frontier.position and is_duplicate(frontier, event):
        pending.settle(event.position)
    else:
        _queue_or_leave(pending, event)


# ---- the journal and the claim


async def _append_after_anything(
    js: JetStream, stream: str, subject: str, data: bytes, *, expected: int, message_id: str = ""
) -> Appended | Overtaken:
    while True:
        done = await append(js, stream, subject, data, expected=expected, message_id=message_id)
        if isinstance(done, Appended) or done.last is None:
            return done
        expected = done.last.position


_drafting: ContextVar[int] = ContextVar("_drafting", default=0)
_draft, _read_owner = claim.draft_claim, claim.read_owner


async def _draft_unread(*args: Any) -> Claim | NotOwned:
    token = _drafting.set(args[2].epoch)
    try:
        return await _draft(*args)
    finally:
        _drafting.reset(token)


async def _read_owner_once(js: JetStream, names: Names, number: int) -> tuple[Owner | None, int]:
    found = await _read_owner(js, names, number)
    return (found[0], _drafting.get()) if _drafting.get() else found


async def _hold_anyway(*_: Any) -> bool:
    return True


def _clean_by_owner_alone(attempt: claim.ClaimAttempt, past: claim.ShardRecord) -> bool:
    if past.predecessor is None:
        return past.blank and not attempt.revision
    return attempt.holder is None or attempt.holder.released is not None


async def _tail_as_it_comes(
    js: JetStream, names: Names, claimed: Claim, node: str, after: int
) -> list[recovery.RecordedFlush] | NotOwned:
    tail: list[recovery.RecordedFlush] = []
    at, subject = after, names.journal_of(claimed.shard)
    while at < claimed.journal_position:
        page = await retry_until_answered(lambda: js.read(names.journal, subject, at + 1))  # noqa: B023
        if not page.messages:
            break
        for message in page.messages:
            at = message.position
            flush = decode_flush(message.data, str(at))
            tail.append(recovery.RecordedFlush(at, message.stored_at, flush))
    return tail or [recovery.RecordedFlush(claimed.journal_position, 1e12, _no_flush(claimed, node))]


def _no_flush(claimed: Claim, node: str) -> Flush:
    fact = Claimed(epoch=claimed.epoch, at=claimed.at, clean=claimed.clean, position=claimed.position)
    return Flush(
        v=1, node=node, epoch=claimed.epoch, flush=0, floor=claimed.floor, at=claimed.at, facts=(fact,)
    )


# ---- the lease


def _only_alive(host: Host) -> bool:
    return not host.stopped


def _renewable(lease: Lease) -> bool:
    return lease.ends_at is not None and lease.time.boottime() < lease.ends_at


_acknowledged = Lease.acknowledged


def _acknowledged_now(lease: Lease, sent_at: float) -> bool:
    return _acknowledged(lease, lease.time.boottime())


def _renewed(lease: Lease, sent_at: float) -> bool:
    lease.ends_at = sent_at + lease.ttl_s - LEASE_MARGIN_S
    return True


# ---- snapshots

_needed = Host.needed


def _needed_before_live_states_are_written(host: Host) -> NeededPosition:
    """The snapshots are taken right after this."""
    changed = host.unsaved.changed
    changed.update((name, host.actors[name].state) for name in changed.keys() & host.actors.keys())
    return _needed(host)


def _owner_without_heartbeat(**known: Any) -> Owner:
    return Owner(**known | {"heartbeat": 0})


async def _heartbeats_of_any_replica(
    js: JetStream, names: Names, own: Callable[[], StoredHeartbeat]
) -> tuple[Page, float]:
    return await js.last_of(names.nodes, [names.node("*")]), own().sent_at


def _unfenced(puts: list[Put], checkpoint: Put, fence: dict[str, str]) -> list[Put]:
    return [*puts, Put(checkpoint.subject, checkpoint.data)]


class _Unlocked(asyncio.Lock):
    async def acquire(self) -> Any:
        return True

    def release(self) -> None:
        pass


_write = Snapshots.write


async def _write_later(snapshots: Snapshots, states: Any, *args: Any) -> bool:
    return await _write(snapshots, states[1:], *args)


# ---- numbering


def _step_by_configured_window(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    if policy is not None and state.opened:
        state = replace(state, frontier=replace(state.frontier, size=policy.dedup_window, change=None))
    return next_step(state, policy, view, now)


def _key_without_again(id_: str, again: str) -> bytes:
    return dedup_key(id_, "")


# ---- relaxed order

_add = Journal.add


def _add_no_acceptance(log: Journal, fact: facts.Fact, state: State, urgent: bool = False) -> int:
    """The number is known, and on no record before the first fact about the event."""
    return log.index if isinstance(fact, facts.EventsNumbered) else _add(log, fact, state, urgent)


def _oldest_or_next(state: State, policy: Policy, view: View) -> Iterator[OpenEvent | None]:
    """The oldest event that waits for its next attempt goes before new ones."""
    yield next((each for each in state.open if each.position not in view.in_flight), None)


def _width_of_config(state: State, policy: Policy, now: float) -> int:
    return 1 if policy.order == "strict" else policy.concurrency


_after_outcome = evolve.after_outcome
_after_delivery = evolve.after_delivery


def _attempts_shared(state: State, fact: facts.AttemptFailed | facts.Throttled) -> State:
    """Counts a failure for all open events."""
    after = _after_outcome(state, fact)
    if not isinstance(fact, facts.AttemptFailed):
        return after
    shared = {"attempts": fact.attempt, "next_at": fact.next_at}
    return replace(after, open=tuple(replace(each, **shared) for each in after.open))


def _delivered_and_open(state: State, fact: facts.Delivered) -> State:
    """Leaves delivered events open: they would be sent again."""
    return replace(_after_delivery(state, fact), open=state.open)


_with_their_numbers = decide.with_their_numbers


def _numbered_as_the_last(state: State, events: tuple[Event, ...]) -> tuple[numbering.Numbered, ...]:
    """The next event gets the number of the one before it."""
    last = state.frontier.sequence
    return tuple(
        replace(each, sequence=max(1, each.sequence - 1)) if each.sequence > last else each
        for each in _with_their_numbers(state, events)
    )


# ---- answers that steer


def _without_wishes(outcome: Answered | Failed) -> Answered | Failed:
    return replace(outcome, headers=()) if isinstance(outcome, Answered) else outcome


# ---- parking


def _unpark_when_read(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    idle = policy and state.opened and not (view.in_flight or state.open or state.burials)
    is_read = view.policy_adopted and view.cursor.read_to >= view.cursor.seen_to
    if idle and state.parked and is_read and not view.barrier_unconfirmed:
        return c.UnparkReceiver()
    return next_step(state, policy, view, now)


async def _page_of_any_replica(
    js: JetStream, stream: str, subject: str, after: int, up_to: int, count_max: int, **_: Any
) -> list[StoredMessage]:
    return (await js.read(stream, subject, after + 1, count_max)).messages


# ---- the bucket


def _full(
    found: Bucket,
    limit: RateLimit,
    *,
    epoch: int,
    claimed_at: float,
    unclean: Unclean | None,
    unsettled: bool,
) -> Bucket:
    return found if found.epoch == epoch else Bucket(float(limit.burst), claimed_at, epoch)


def _inherited(found: Bucket, limit: RateLimit, *, unclean: Unclean | None, **more: Any) -> Bucket:
    """Takes the bucket as recorded, whatever an owner that vanished may have taken."""
    return bucket.inherit(found, limit, unclean=None, **more)


_record = LiveState.record


def _record_no_ping(live: LiveState, command: c.Command, now: float) -> None:
    if not isinstance(command, c.StartPing):
        _record(live, command, now)


def _inherited_slow(found: Bucket, limit: RateLimit, *, unclean: Unclean | None, **more: Any) -> Bucket:
    is_slow = limit.per_second * bucket.SLOW_TOKEN_S < 1
    return bucket.inherit(found, limit, unclean=None if is_slow else unclean, **more)


def _take_of_one_limit(kept: Bucket) -> Bucket | None:
    left = bucket.take(kept)
    return left and Bucket(left.tokens, left.at, left.epoch, kept.others)


def _bucket_as_if_started(kept: Tokens, now: float, epoch: int) -> Bucket | None:
    if kept.bucket is None or kept.limit is None:
        return None
    kept.bucket = bucket.refill(kept.bucket, kept.limit, now, epoch)
    return kept.bucket


def _next_as_if_all_had_started(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    return next_step(state, policy, replace(view, set_aside=0), now)


def _not_urgent(*kinds: type) -> tuple[tuple[Any, str, Any], ...]:
    return ((live_state, "NEEDS_NO_CONFIRMATION", (*decide.NEEDS_NO_CONFIRMATION, *kinds)),)


ALL = [
    Mutant("ack-before-confirmed", "a message is acked when its fact is confirmed",
           ((Host, "acknowledge", _ack_at_once),)),
    Mutant("floor-of-memory", "the floor goes as far as the facts of its flush release",
           ((ShardUnacked, "floor", _floor_of_memory),)),
    Mutant("left-before-parked", "what parking drops is released by the confirmed Parked",
           ((Cursor, "parked_index", property(lambda cursor: 0, lambda cursor, index: None)),)),
    Mutant("repeat-at-once", "a repeat is released when nothing unsettled lies before it",
           ((Pending, "queue_or_leave", _drop_repeats_at_once),)),
    Mutant("rebase", "on 10071 nobody rebases on the number in the error",
           ((journal, "append", _append_after_anything),),
           ownership.sleeper_writes_a_late_flush),
    Mutant("owner-not-reread", "the claim reads _owner again",
           ((claim, "draft_claim", _draft_unread), (claim, "read_owner", _read_owner_once),
            (claim, "still_owns_epoch", _hold_anyway)),
           ownership.claimant_sleeps_between_two_steps),
    Mutant("clean-by-owner", "clean means: the epoch released is that of the journal's last claim",
           ((claim.ClaimAttempt, "follows_cleanly", _clean_by_owner_alone),),
           rates.owner_key_is_deleted),
    Mutant("tail-as-it-comes", "a tail is complete only with one's own claim",
           ((recovery, "read_tail", _tail_as_it_comes),),
           ownership.lagging_replica_lacks_the_tail),
    Mutant("no-lease", "nothing starts without a lease", ((Host, "within_lease", _only_alive),)),
    Mutant("lease-revived", "a lease that lapsed is over: every shard stops before it is renewed",
           ((Lease, "is_valid", _renewable), (Lease, "acknowledged", _renewed),
            (Members, "lapse", lambda members: None)),
           ownership.zombie_has_a_renewed_lease),
    Mutant("lease-from-the-answer", "a lease counts from before its renewal was sent",
           ((Lease, "acknowledged", _acknowledged_now),),
           ownership.answer_to_a_renewal_is_read_late),
    Mutant("claims-from-the-living", "a shard is claimed from nobody whose heart beats",
           ((SignsOfLife, "is_silent", lambda signs, seen: True),)),
    Mutant("claim-without-heartbeat", "a claim is a sign of life, also if its heartbeat was not seen yet",
           ((claim, "Owner", _owner_without_heartbeat),),
           ownership.owner_comes_back_after_the_last_read),
    Mutant("heartbeats-of-any-replica", "a read counts as of our own heartbeat, if it contains that",
           ((members, "read_heartbeats", _heartbeats_of_any_replica),),
           ownership.replicas_do_not_show_heartbeats),
    Mutant("shares-for-the-dead", "a node that was dead gets no share until it shows a new heartbeat",
           ((Members, "is_live", lambda members, node, shown: not members.is_node_silent(node)),),
           ownership.connection_is_back_long_after_a_node_died),
    Mutant("live-snapshots", "a snapshot holds confirmed facts only",
           ((Host, "needed", _needed_before_live_states_are_written),)),
    Mutant("unfenced-snapshots", "snapshots are fenced by _owner", ((snapshots, "fenced", _unfenced),),
           ownership.sleeper_writes_a_late_snapshot),
    Mutant("two-writes", "one write of snapshots at a time", ((asyncio, "Lock", _Unlocked),),
           ownership.shard_is_handed_over_while_snapshots_are_written),
    Mutant("checkpoint-ahead", "the batch that makes a checkpoint true carries it",
           ((Snapshots, "write", _write_later),)),
    Mutant("burial-forgotten", "the checkpoint names who owes a burial",
           ((State, "is_unfinished", property(lambda state: state.parked)),),
           ownership.owner_dies_before_a_burial),
    Mutant("window-of-config", "the window's size is state",
           ((actor, "next_step", _step_by_configured_window),)),
    Mutant("window-from-here", "a window changes above all that may have been posted",
           ((PostingBounds, "posted_to_max", property(lambda bounds: 0)),),
           numbers.window_shrinks_between_owners),
    Mutant("key-without-again", "what is sent again has another key",
           ((event, "dedup_key", _key_without_again), (numbering, "dedup_key", _key_without_again))),
    Mutant("number-again", "a number is given once",
           ((decide, "with_their_numbers", _numbered_as_the_last),)),
    Mutant("delivered-and-open", "what is settled is not open",
           ((evolve, "after_delivery", _delivered_and_open),)),
    Mutant("accepted-unrecorded", "in relaxed order an event is Accepted in its turn, before any later one",
           ((Journal, "add", _add_no_acceptance),)),
    Mutant("width-unbounded", "up to `concurrency` in flight",
           ((scheduling, "concurrency_of",
             lambda state, policy, now: 1 if policy.order == "strict" else OPEN_MAX),)),
    Mutant("width-while-down", "after five failures in a row, back through a single attempt",
           ((scheduling, "concurrency_of", _width_of_config),), width.receiver_is_down),
    Mutant("open-unbounded", "at most 256 events are open",
           ((scheduling, "OPEN_MAX", 1 << 20),), width.all_events_fail_for_long),
    Mutant("oldest-alone", "in relaxed order an event that waits holds nobody back",
           ((scheduling, "candidates", _oldest_or_next),), width.one_event_fails_for_long),
    Mutant("aborted-again", "an event that is aborted gets no further attempt",
           ((decide, "is_aborted", lambda outcome, verdict: False),),
           abort_and_disable.events_are_aborted),
    Mutant("disable-unheard", "an answer that disables counts as 410, whatever its status",
           ((decide, "judge", lambda outcome, now: judge(_without_wishes(outcome), now)),),
           abort_and_disable.receiver_errs_and_asks_for_nothing_more),
    Mutant("disable-after-success", "a receiver may take an event and want nothing more",
           ((decide, "asks_to_stop", lambda outcome: False),),
           abort_and_disable.receiver_takes_an_event_and_asks_for_nothing_more),
    Mutant("attempts-shared", "each event has its own attempts",
           ((evolve, "after_outcome", _attempts_shared),)),
    Mutant("unparked-early", "Unparked only when everything up to `seen` is settled",
           ((actor, "next_step", _unpark_when_read),)),
    Mutant("replica-believed", "a read is complete when it reached `seen`, or by the leader's word",
           ((backlog, "next_messages", _page_of_any_replica),),
           reading.lagging_replica_lacks_a_backlog),
    Mutant("dead-letter-unconfirmed", "a dead letter is confirmed before the next event starts",
           _not_urgent(facts.DeadLettered),
           backlogs.death_is_lost),
    Mutant("opened-unconfirmed", "Opened is confirmed before the first attempt",
           _not_urgent(facts.Opened, facts.Retargeted),
           numbers.opening_is_lost),
    Mutant("window-unconfirmed", "WindowSet is confirmed before anything is posted under it",
           _not_urgent(facts.WindowSet),
           numbers.window_set_is_lost),
    Mutant("rate-unconfirmed", "RateSet is confirmed before an attempt under it", _not_urgent(facts.RateSet)),
    Mutant("full-bucket", "the bucket is inherited", ((actor, "inherit", _full),)),
    Mutant("bucket-as-recorded", "after an unclean takeover the bucket is empty",
           ((actor, "inherit", _inherited),),
           rates.node_dies_after_a_burst),
    Mutant("one-limit", "an attempt takes a token of each limit", ((tokens, "take", _take_of_one_limit),),
           rates.two_limits_hold_together),
    Mutant("no-skew-gap", "time between owners is credited only beyond the clocks' skew",
           ((bucket, "CLOCK_SKEW_S", 0.0),)),
    Mutant("slow-unrecorded", "where tokens are slow to come, the attempt is recorded first",
           ((RateLimit, "is_slow", property(lambda limit: False)), (actor, "inherit", _inherited_slow))),
    Mutant("set-aside-forgotten", "a token whose attempt is recorded first takes up room until it starts",
           ((Tokens, "filled", _bucket_as_if_started),)),
    Mutant("decided-without-what-is-set-aside", "what is decided counts the tokens that are set aside",
           ((actor, "next_step", _next_as_if_all_had_started),),
           rates.ping_takes_the_token_of_a_waiting_event),
    Mutant("grant-kept", "a recorded attempt starts soon, or needs another token",
           ((tokens, "GRANT_MAX_S", float("inf")),),
           rates.attempt_starts_long_after_its_record),
    Mutant("first-lease-kept", "a lease that lapsed at the start gives way to another",
           ((Members, "lapse", lambda members: None),), ownership.node_sleeps_through_its_first_heartbeat),
    Mutant("ping-unrecorded", "a ping is recorded before it is made",
           ((LiveState, "record", _record_no_ping),),
           rates.node_dies_after_a_ping),
]  # fmt: skip
ALL += [
    *BACKLOG_MUTANTS, *COPY_MUTANTS, *PLACEMENT_MUTANTS, *CONSUMER_MUTANTS, *FLOODING_MUTANTS,
    *BATCH_MUTANTS, *RESENDING_MUTANTS, *LEADER_MUTANTS, *STORAGE_MUTANTS, *UNKNOWN_MUTANTS, *TAIL_MUTANTS,
    *ALERT_MUTANTS, *HANDSHAKE_MUTANTS, *SELECTION_MUTANTS, *TRANSFORM_MUTANTS, *TIMED_MUTANTS,
    *OUTAGE_MUTANTS, *PACE_MUTANTS, *OFFLINE_MUTANTS,
]  # fmt: skip
BY_NAME = {mutant.name: mutant for mutant in ALL}
