"""Accepts that a stream lost its tail: the remedy for refused shards, and for no others.

The shard is claimed like any other, so the fence stops its former owner. The marks in its journal show which
is the last message that is unchanged. Actors beyond it go back to it, each by a fact
(`actors.machine.repairing`); the router goes on after it, with sources above all earlier ones. The flush that
completes the repair shows it by its marks and its floor, which fall here and nowhere else. The recorded
refusal stays until the end, so the command may be interrupted anywhere, and run again.
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
from actors.machine.repairing import UNRECORDED_MAX, repair, set_removal
from actors.machine.state import State
from actors.ports import Removal
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim, NotOwned, Owner, claim, holds, release
from streams.journal.envelope import encode_fact, encode_flush, message_id
from streams.journal.fence import Appended, append
from streams.journal.leadership import info_since
from streams.journal.recovery import LOADS_AT_ONCE, Recovery, recover
from streams.journal.snapshots import Snapshots
from streams.journal.tails import (
    Loss,
    Marks,
    RecordedLoss,
    Restart,
    lift,
    read_recorded_loss,
    refuse,
)
from streams.nats.codes import CONSUMER_NOT_FOUND
from streams.nats.errors import ApiError, RepairError
from streams.nats.jetstream import JetStream
from streams.nats.protocol import epoch_of
from streams.nats.retry import until_answered
from streams.repair.damage import NOT_COMPLETE, Damage, LostTail, check_agreed, examine, examine_with_history
from streams.stores.receivers import Receivers

FLUSH_FACTS_MAX = 64
"""Facts in one flush: each names 512 positions at most, so 64 fit into a quarter of any message."""
SOURCE_OFFSET = 1_000_000_000
"""Offset that is higher than any source that an owner may have used without a record."""


async def accept_loss(
    js: JetStream, names: Names, shard: int, node: str, time: Timekeeper,
    *, may_claim: Callable[[Owner | None], bool], agreed: Damage,
) -> tuple[Damage, int]:  # fmt: skip
    """Repair the shard so that nodes run it again; returns what was lost, and how many actors were set back.

    `agreed` is the damage that the operator was shown. Goes on however long NATS is away. Raises
    `RepairError` if another node owns the shard, or more was lost than was agreed to; `StreamRemade` if
    journal and snapshots contradict each other; `NewerVersion` and `NotOurs`.
    """
    check_agreed(agreed, await examine(js, names, shard))
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
    marks: Marks
    unclean: Unclean | None


class Repair:
    """The repair of one shard, under its claim."""

    def __init__(self, js: JetStream, names: Names, claimed: Claim, node: str) -> None:
        self._js = js
        self._names = names
        self._claim = claimed
        self._node = node
        self._sequence = claimed.sequence
        self._flushes = 0

    async def run(self, agreed: Damage) -> tuple[Damage, int]:
        js, names, claimed = self._js, self._names, self._claim
        recorded = await read_recorded_loss(js, names, claimed.shard)
        if recorded is None:
            # No node may run the shard before the repair is complete.
            why = f"angarium repair was interrupted in shard {claimed.shard}; run it again"
            refusal = RecordedLoss(node=self._node, at=claimed.at, stream=names.deliveries)
            self._hold(await refuse(
                js, names, claimed.shard, claimed.epoch, Loss(names.deliveries, NOT_COMPLETE, why), refusal
            ))  # fmt: skip
        damage, history = await examine_with_history(js, names, claimed.shard)
        check_agreed(agreed, damage)
        recovery = await recover(js, names, claimed, self._node, accepts_loss=True)
        if isinstance(recovery, NotOwned):
            raise self._overtaken(recovery.why)
        gaps = {gap.stream: gap for gap in damage.gaps}
        facts, states, after = list[Fact](), dict(recovery.states), await self._unchanged(history.latest)
        if names.deliveries in gaps or names.receivers in damage.remade:
            states |= await self._load_others(states)
        if (gap := gaps.get(names.deliveries)) is not None:
            facts += self.bring_back(states, gap.kept.position, _left_out(gap, history.latest))
            marks = replace(after.marks, deliveries=gap.kept)
            after = replace(after, floor=min(after.floor, gap.kept.position), marks=marks)
        brought_back = len(facts)
        if names.receivers in damage.remade:
            facts += await self._set_removals(states, recovery.created[names.receivers])
        if (gap := gaps.get(names.events)) is not None:
            await self.route_from(gap.kept.position + 1)
            marks = replace(after.marks, events=gap.kept, restarts=restarts_behind(after.marks, gap))
            after = replace(after, marks=marks)
        await self.record(facts, after)
        await self._write(recovery, states, after)
        self._hold(await lift(js, names, claimed.shard, claimed.epoch))
        await release(js, names, claimed, self._node)
        return damage, brought_back

    def _hold(self, done: bool) -> None:
        if not done:
            raise self._overtaken("another process claimed it")

    def _overtaken(self, why: str) -> RepairError:
        return RepairError(f"the repair of shard {self._claim.shard} was overtaken: {why}; run it again")

    async def _unchanged(self, marks: Marks) -> FlushMembers:
        """The members of the last flush that nothing has changed.

        The position of the last unclean claim is limited to the end of the deliveries: messages beyond it are
        gone, and new events will have those positions.
        """
        unclean = self._claim.unclean
        if unclean is not None:
            asked_at = asyncio.get_running_loop().time()
            end = (await info_since(self._js, self._names.deliveries, asked_at)).last
            unclean = replace(unclean, position=min(unclean.position, end))
        return FlushMembers(floor=self._claim.floor, marks=marks, unclean=unclean)

    async def _load_others(self, states: dict[str, State]) -> dict[str, State]:
        """The actors of the shard that its tail does not name."""
        snapshots = Snapshots(self._js, self._names, self._claim)
        stored = (UNKNOWN_RECEIVERS, *await until_answered(snapshots.receivers))
        away, others = [each for each in stored if each not in states], dict[str, State]()
        for start in range(0, len(away), LOADS_AT_ONCE):
            some = away[start : start + LOADS_AT_ONCE]
            loaded = await asyncio.gather(*(until_answered(partial(snapshots.load, each)) for each in some))
            others |= {state.receiver: state for state in loaded if state is not None}
        return others

    def bring_back(self, states: dict[str, State], position: int, left_out: int) -> list[Fact]:
        """The facts by which actors go back; `states` is updated with them."""
        claimed = self._claim
        return _decide(states, lambda state: repair(
            state, position=position, gap=left_out, at=claimed.at, epoch=claimed.epoch
        ))  # fmt: skip

    async def _set_removals(self, states: dict[str, State], created: str) -> list[Fact]:
        """The facts by which actors go on with the bucket of configurations that was created then."""
        receivers, made_at, restored = Receivers(self._js, self._names), epoch_of(created), dict[str, int]()
        for receiver in [each for each, state in states.items() if state.removal]:
            told = await until_answered(partial(receivers.last_removal, receiver))
            restored[receiver] = restored_revision(told, made_at)
        return _decide(states, lambda state: set_removal(
            state, restored=restored.get(state.receiver, 0), at=self._claim.at
        ))  # fmt: skip

    async def route_from(self, position: int) -> None:
        """Set the consumer of the events back: it remembers the old stream. It has no readers any more."""
        try:
            await until_answered(lambda: self._reset(position))
        except ApiError as error:
            # A recreated stream has no consumer yet; a new one starts at the beginning.
            if error.code != CONSUMER_NOT_FOUND:
                raise

    async def _reset(self, position: int) -> None:
        """Reset the consumer; no fence protects it, so each attempt checks that the shard is still ours."""
        self._hold(await holds(self._js, self._names, self._claim))
        consumer = self._names.route_consumer(self._claim.shard)
        await self._js.consumer_reset(self._names.events, consumer, position)

    async def record(self, facts: Sequence[Fact], after: FlushMembers) -> None:
        """Append all facts; everything else changes only with the last of them.

        A claim of the shard after only some of them must find the loss again.
        """
        claimed = self._claim
        before = FlushMembers(floor=claimed.floor, marks=claimed.marks, unclean=claimed.unclean)
        for start in range(0, max(len(facts), 1), FLUSH_FACTS_MAX):
            known = after if start + FLUSH_FACTS_MAX >= len(facts) else before
            self._flushes += 1
            data = encode_flush(
                node=self._node,
                epoch=claimed.epoch,
                flush=self._flushes,
                floor=known.floor,
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
                expected=self._sequence,
                message_id=message_id(claimed.shard, claimed.epoch, self._flushes),
            )
            if not isinstance(done, Appended):
                raise self._overtaken("another process writes its journal")
            self._sequence = done.sequence

    async def _write(self, recovery: Recovery, states: dict[str, State], after: FlushMembers) -> None:
        """Store snapshots and checkpoint, which make the present streams the right ones from now on."""
        needed = [each for state in states.values() if (each := state.needed_position) is not None]
        listed = recovery.listed
        listed.update(states.values())
        checkpoint = Checkpoint(
            sequence=self._sequence,
            floor=after.floor,
            needed=min(recovery.checkpoint.needed, after.floor + 1, *needed),
            parked_parts=listed.as_of(self._sequence),
            unclean=after.unclean,
            created=recovery.created,
            marks=after.marks,
        )
        snapshots = Snapshots(self._js, self._names, self._claim)
        written = list(states.values())
        self._hold(
            await until_answered(lambda: snapshots.write(written, [], self._sequence, checkpoint, listed))
        )


def _decide(states: dict[str, State], decide: Callable[[State], Fact | None]) -> list[Fact]:
    """Decide for each state; `states` is updated with the facts."""
    facts = [fact for state in states.values() if (fact := decide(state)) is not None]
    states |= {fact.receiver: evolve(states[fact.receiver], fact) for fact in facts}
    return facts


def restored_revision(told: Removal | None, made_at: float) -> int:
    """The revision of the last removal that a bucket knows, if that is older than the bucket; otherwise 0.

    Such a removal was restored together with the bucket, under its old revision.
    """
    return told.revision if told is not None and told.at < made_at else 0


def _left_out(gap: LostTail, latest: Marks) -> int:
    """The count of numbers to leave out: those that an owner may have given without a record.

    If the actors have read more than the journal knows, the journal lost its tail, too, with its records.
    """
    return UNRECORDED_MAX + max(0, gap.known.position - latest.deliveries.position)


def restarts_behind(marks: Marks, gap: LostTail) -> tuple[Restart, ...]:
    """The restarts by which events after the kept ones get sources above all that were ever used."""
    above, before = gap.kept.position, marks.restarts
    highest = max((each.offset for each in before), default=0) + gap.known.position
    kept = tuple(each for each in before if each.above < above)
    return (*kept, Restart(above=above, offset=highest + SOURCE_OFFSET))
