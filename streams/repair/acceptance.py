"""Accepts that a stream lost its tail: the remedy for refused shards, and for no others.

The shard is claimed like any other, so the fence stops its former owner. The marks in its journal show which
is the last message that is unchanged. Actors beyond it go back to it, each by a fact
(`actors.machine.repair`); the router continues after it, with sources above all earlier ones. The flush
that completes the repair shows it by its marks, its floor and its `routed`, which fall here and nowhere else.
The recorded refusal stays until the end, so the command may be interrupted anywhere, and run again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.bucket import Unclean
from actors.machine.evolve import evolve
from actors.machine.facts import Fact
from actors.machine.repair import repair, set_removal
from actors.machine.state import UNRECORDED_MAX, State
from actors.ports import Removal
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim, NotOwned, Owner, claim, release
from streams.journal.envelope import encode_fact, encode_flush, message_id
from streams.journal.fence import Appended, append
from streams.journal.leadership import info_since
from streams.journal.recovery import LOADS_AT_ONCE, Recovery, recover
from streams.journal.refusal import RecordedLoss, lift, read_recorded_loss, refuse
from streams.journal.routing_progress import RoutingProgress
from streams.journal.snapshots import Snapshots
from streams.journal_feed.redacted_flushes import drop_redacted
from streams.lost_tails.comparison import Loss
from streams.lost_tails.marks import Marks, SourceOffset
from streams.nats.errors import RepairError
from streams.nats.jetstream import JetStream
from streams.nats.protocol import timestamp_of
from streams.nats.retry import retry_until_answered
from streams.repair.damage import (
    NOT_COMPLETE,
    Damage,
    LostTail,
    check_agreed,
    find_damage,
    find_damage_with_history,
)
from streams.storage.purge import ANY_POSITION

FLUSH_FACTS_MAX = 64
"""Facts in one flush: each names 512 positions at most, so 64 fit into a quarter of any message."""
SOURCE_OFFSET = 1_000_000_000
"""Offset that is higher than any source that an owner may have used without a record."""


async def accept_loss(
    js: JetStream, names: Names, shard: int, node: str, time: Timekeeper,
    *, may_claim: Callable[[Owner | None], bool], agreed: Damage,
) -> tuple[Damage, int]:  # fmt: skip
    """Repair the shard so that nodes run it again; returns the loss, and how many actors were set back.

    `agreed` is the damage that the operator was shown. Waits while NATS is away. Raises
    `RepairError` if another node owns the shard, or more was lost than was agreed to; `StreamRecreated` if
    journal and snapshots contradict each other; `NewerVersion` and `NotOurs`.
    """
    check_agreed(agreed, await find_damage(js, names, shard))
    claimed = await claim(js, names, shard, node, time, may_claim=may_claim, accepts_loss=True)
    if isinstance(claimed, NotOwned):
        raise RepairError(
            f"shard {shard} cannot be repaired: {claimed.why}; stop the node that owns it, and try again"
        )
    repairing = Repair(js, names, claimed, node)
    return await repairing.run(agreed)


class FlushMembers(Struct, frozen=True):
    """The members of a flush except its facts."""

    floor: int
    routing: RoutingProgress
    marks: Marks
    unclean: Unclean | None


class Repair:
    """The repair of one shard, under its claim."""

    def __init__(self, js: JetStream, names: Names, claimed: Claim, node: str) -> None:
        self._js = js
        self._names = names
        self.claim = claimed
        self._node = node
        self._journal_position = claimed.journal_position
        self._flushes = 0

    async def run(self, agreed: Damage) -> tuple[Damage, int]:
        js, names, claimed = self._js, self._names, self.claim
        recorded = await read_recorded_loss(js, names, claimed.shard)
        if recorded is None:
            # No node may run the shard before the repair is complete.
            why = f"angarium repair was interrupted in shard {claimed.shard}; run it again"
            refusal = RecordedLoss(node=self._node, at=claimed.at, stream=names.deliveries)
            self._hold(await refuse(
                js, names, claimed.shard, claimed.epoch, Loss(names.deliveries, NOT_COMPLETE, why), refusal
            ))  # fmt: skip
        damage, history = await find_damage_with_history(js, names, claimed.shard)
        check_agreed(agreed, damage)
        recovery = await recover(js, names, claimed, self._node, accepts_loss=True)
        if isinstance(recovery, NotOwned):
            raise self._overtaken(recovery.why)
        gaps = {gap.stream: gap for gap in damage.gaps}
        facts, states, after = list[Fact](), dict(recovery.states), await self._unchanged(history.latest)
        if names.deliveries in gaps or names.receivers in damage.recreated:
            states |= await self._load_others(states)
        if (gap := gaps.get(names.deliveries)) is not None:
            facts += self.bring_back(states, gap.kept.position, _left_out(gap, history.latest))
            marks = replace(after.marks, deliveries=gap.kept)
            after = replace(after, floor=min(after.floor, gap.kept.position), marks=marks)
        brought_back = len(facts)
        if names.receivers in damage.recreated:
            facts += await self._set_removals(states, recovery.created[names.receivers])
        if (gap := gaps.get(names.events)) is not None:
            after = self.route_again(after, gap)
        # Messages of a new tail may have the positions of erased ones.
        await retry_until_answered(lambda: drop_redacted(js, names, ANY_POSITION))
        await self.record(facts, after)
        await self._write(recovery, states, after)
        self._hold(await lift(js, names, claimed.shard, claimed.epoch))
        await release(js, names, claimed, self._node)
        return damage, brought_back

    def _hold(self, done: bool) -> None:
        if not done:
            raise self._overtaken("another process claimed it")

    def _overtaken(self, why: str) -> RepairError:
        return RepairError(f"the repair of shard {self.claim.shard} was overtaken: {why}; run it again")

    async def _unchanged(self, marks: Marks) -> FlushMembers:
        """The members of the last flush that nothing has changed.

        The position of the last unclean claim is limited to the end of the deliveries: messages beyond it are
        gone, and new events will have those positions.
        """
        unclean = self.claim.unclean
        if unclean is not None:
            asked_at = asyncio.get_running_loop().time()
            end = (await info_since(self._js, self._names.deliveries, asked_at)).last
            unclean = replace(unclean, position=min(unclean.position, end))
        return replace(_members(self.claim), marks=marks, unclean=unclean)

    async def _load_others(self, states: dict[str, State]) -> dict[str, State]:
        """The actors of the shard that its tail does not name."""
        snapshots = Snapshots(self._js, self._names, self.claim)
        stored = (UNKNOWN_RECEIVERS, *await retry_until_answered(snapshots.receivers))
        away, others = [each for each in stored if each not in states], dict[str, State]()
        for start in range(0, len(away), LOADS_AT_ONCE):
            some = away[start : start + LOADS_AT_ONCE]
            loaded = await asyncio.gather(
                *(retry_until_answered(partial(snapshots.load, each)) for each in some)
            )
            others |= {state.receiver: state for state in loaded if state is not None}
        return others

    def bring_back(self, states: dict[str, State], position: int, left_out: int) -> list[Fact]:
        """The facts by which actors go back; `states` is updated with them."""
        claimed = self.claim
        return _decide(states, lambda state: repair(
            state, position=position, gap=left_out, at=claimed.at, epoch=claimed.epoch
        ))  # fmt: skip

    async def _set_removals(self, states: dict[str, State], created: str) -> list[Fact]:
        """The facts by which actors continue with the bucket of configurations that was created then."""
        configurations, made_at, restored = (
            StoredConfigurations(self._js, self._names),
            timestamp_of(created),
            dict[str, int](),
        )
        for receiver in [each for each, state in states.items() if state.removal]:
            removal = await retry_until_answered(partial(configurations.last_removal, receiver))
            restored[receiver] = restored_revision(removal, made_at)
        return _decide(states, lambda state: set_removal(
            state, restored=restored.get(state.receiver, 0), at=self.claim.at
        ))  # fmt: skip

    def route_again(self, after: FlushMembers, gap: LostTail) -> FlushMembers:
        """The router continues after the remaining events, with sources above all that were ever used."""
        marks = replace(after.marks, events=gap.kept, source_offsets=source_offsets_after(after.marks, gap))
        return replace(after, routing=after.routing.limited_to(gap.kept.position), marks=marks)

    async def record(self, facts: Sequence[Fact], after: FlushMembers) -> None:
        """Append all facts; everything else changes only with the last of them.

        A claim of the shard after only some of them must find the loss again.
        """
        claimed = self.claim
        before = _members(claimed)
        for start in range(0, max(len(facts), 1), FLUSH_FACTS_MAX):
            known = after if start + FLUSH_FACTS_MAX >= len(facts) else before
            self._flushes += 1
            data = encode_flush(
                node=self._node,
                epoch=claimed.epoch,
                flush=self._flushes,
                floor=known.floor,
                routing=known.routing,
                at=claimed.at,
                unclean=known.unclean,
                marks=known.marks,
                facts=[encode_fact(each) for each in facts[start : start + FLUSH_FACTS_MAX]],
            )
            done = await append(
                self._js,
                self._names.journal,
                self._names.journal_of(claimed.shard),
                data,
                expected=self._journal_position,
                message_id=message_id(claimed.shard, claimed.epoch, self._flushes),
            )
            if not isinstance(done, Appended):
                raise self._overtaken("another process writes its journal")
            self._journal_position = done.position

    async def _write(self, recovery: Recovery, states: dict[str, State], after: FlushMembers) -> None:
        """Store snapshots and checkpoint, which make the current streams the right ones from now on."""
        needed = [each for state in states.values() if (each := state.needed_position) is not None]
        parked_list = recovery.parked_list
        parked_list.update(states.values())
        checkpoint = Checkpoint(
            journal_position=self._journal_position,
            floor=after.floor,
            routed=after.routing.routed,
            parked_tenants=after.routing.parked_tenants,
            needed=min(recovery.checkpoint.needed, after.floor + 1, *needed),
            parked_parts=parked_list.as_of(self._journal_position),
            unclean=after.unclean,
            created=recovery.created,
            marks=after.marks,
        )
        snapshots = Snapshots(self._js, self._names, self.claim)
        written = list(states.values())
        self._hold(
            await retry_until_answered(
                lambda: snapshots.write(written, [], self._journal_position, checkpoint, parked_list)
            )
        )


def _members(claimed: Claim) -> FlushMembers:
    return FlushMembers(
        floor=claimed.floor, routing=claimed.routing, marks=claimed.marks, unclean=claimed.unclean,
    )  # fmt: skip


def _decide(states: dict[str, State], decide: Callable[[State], Fact | None]) -> list[Fact]:
    """Decide for each state; `states` is updated with the facts."""
    facts = [fact for state in states.values() if (fact := decide(state)) is not None]
    states |= {fact.receiver: evolve(states[fact.receiver], fact) for fact in facts}
    return facts


def restored_revision(removal: Removal | None, made_at: float) -> int:
    """The revision of the last removal that a bucket knows, if that is older than the bucket; otherwise 0.

    Such a removal was restored together with the bucket, under its old revision.
    """
    return removal.revision if removal is not None and removal.at < made_at else 0


def _left_out(gap: LostTail, latest: Marks) -> int:
    """The count of numbers to leave out: those that an owner may have given without a record.

    If the actors have read more than the journal knows, the journal lost its tail, too, with its records.
    """
    return UNRECORDED_MAX + max(0, gap.known.position - latest.deliveries.position)


def source_offsets_after(marks: Marks, gap: LostTail) -> tuple[SourceOffset, ...]:
    """The offsets by which events after the kept ones get sources above all that were ever used."""
    above, before = gap.kept.position, marks.source_offsets
    highest = max((each.offset for each in before), default=0) + gap.known.position
    kept = tuple(each for each in before if each.above < above)
    return (*kept, SourceOffset(above=above, offset=highest + SOURCE_OFFSET))
