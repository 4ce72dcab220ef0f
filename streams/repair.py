"""Accepting that a stream lost its tail: the way out for refused shards, and for no others.

The shard is claimed as any other, so the fence holds off its former owner. What its journal ever said of the
streams tells the last message that is still the same. Actors that are beyond it go back to it, by a fact each
(`actors.machine.repairing`); the router goes on behind it, under sources above all earlier ones. The flush
that completes this says so by its marks and its floor, which fall here and nowhere else. Until the end
the refusal stands, on record, so the command may be cut off anywhere, and run again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
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
from streams.fleet import members
from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.claim import Claim, NotOwned, Owner, claim, holds, read_owner, release
from streams.journal.envelope import encode_fact, encode_flush, message_id
from streams.journal.fence import Appended, append
from streams.journal.leadership import info_since
from streams.journal.recovery import LOADS_AT_ONCE, Recovery, recover
from streams.journal.snapshots import Snapshots
from streams.journal.stream_history import StreamHistory, last_same, read_history
from streams.journal.tails import (
    NO_MARK,
    Loss,
    Mark,
    Marks,
    RecordedLoss,
    Restart,
    find_loss,
    higher,
    is_missing,
    is_there,
    lift,
    read_recorded_loss,
    refuse,
)
from streams.nats.answers import Forbidden, StreamInfo
from streams.nats.codes import CONSUMER_NOT_FOUND
from streams.nats.errors import ApiError, NotPermitted, RepairError
from streams.nats.headers import EXPECTED
from streams.nats.jetstream import JetStream
from streams.nats.protocol import epoch_of
from streams.nats.retry import stream_info, until_answered
from streams.receivers import Receivers
from streams.versions import read_versioned

FLUSH_FACTS_MAX = 64
"""Facts of one flush: each names 512 positions at most, so these fit into a quarter of any message."""
SOURCE_OFFSET = 1_000_000_000
"""Above any source that an owner may have given without recording it."""
UNKNOWN_TTL_S = 10.0
"""Time that a node without a key is watched: no node has a longer TTL by default."""
_member = msgspec.json.Decoder(Member)
_NEVER = Mark(position=1 << 62)
"""No stream ever has this message: while it is on record, no node runs the shard."""


class LostTail(Struct, frozen=True, kw_only=True):
    """A loss of a stream: everything behind `kept`, which is still there, up to `known` at least."""

    stream: str
    kept: Mark
    known: Mark


class Damage(Struct, frozen=True, kw_only=True):
    """The damage to a shard's streams. `remade`: those that were recreated, or restored.

    `missing`: the shard is refused for a message that is not there again, though no gap is found: its place
    was purged since.
    """

    shard: int
    gaps: tuple[LostTail, ...]
    remade: tuple[str, ...]
    receivers: int
    cut_off: bool = False
    missing: bool = False

    @property
    def nothing(self) -> bool:
        return not (self.gaps or self.remade or self.cut_off or self.missing)


async def examine(js: JetStream, names: Names, shard: int) -> Damage:
    """Finds what would be accepted as lost. Raises `NewerVersion` and `NotOurs`."""
    return (await _examine(js, names, shard))[0]


async def _examine(js: JetStream, names: Names, shard: int) -> tuple[Damage, StreamHistory]:
    history, recorded = await read_history(js, names, shard), await read_recorded_loss(js, names, shard)
    checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
    infos = {name: await stream_info(js, name) for name in names.streams}
    remade = tuple(
        name for name, info in infos.items() if checkpoint.created.get(name, info.created) != info.created
    )
    gaps: list[LostTail] = []
    for stream, latest, marks in (
        (names.deliveries, history.latest.deliveries, history.deliveries),
        (names.events, history.latest.events, history.events),
    ):
        concerned = recorded is not None and recorded.mark != _NEVER and recorded.stream == stream
        accused = recorded.mark if recorded is not None and concerned else NO_MARK
        if stream in remade:
            kept = Mark(position=infos[stream].first - 1)
            gaps.append(LostTail(stream=stream, kept=kept, known=higher(accused, latest)))
        elif (gap := await _find_gap(js, infos[stream], latest, accused, marks)) is not None:
            gaps.append(gap)
    prefix = names.actor(shard, "")
    keys = await until_answered(lambda: js.subjects(names.actors, f"{prefix}*.*"))
    damage = Damage(
        shard=shard, gaps=tuple(gaps), remade=remade,
        receivers=sum(not each.removeprefix(prefix).startswith("_") for each in keys),
        cut_off=recorded is not None and recorded.mark == _NEVER,
        missing=not gaps and recorded is not None and await is_missing(js, recorded),
    )  # fmt: skip
    return damage, history


async def _find_gap(
    js: JetStream, info: StreamInfo, latest: Mark, accused: Mark, marks: set[Mark]
) -> LostTail | None:
    """Find what the stream has lost. `accused` is the message for which it is refused on record.

    That its place is empty, though the stream goes on before and behind it, proves nothing against the loss.
    """
    for mark in sorted({accused, latest} - {NO_MARK}, key=lambda each: each.position):
        gone = await find_loss(js, info.name, mark) is not None
        if not gone and (mark.position < info.first or await is_there(js, info.name, mark)):
            continue
        kept, differs = await last_same(js, info.name, marks, mark)
        if gone or differs or mark == accused:
            return LostTail(stream=info.name, kept=kept, known=higher(accused, latest))
    return None


async def accept_loss(
    js: JetStream, names: Names, shard: int, node: str, time: Timekeeper,
    *, may_claim: Callable[[Owner | None], bool], agreed: Damage,
) -> tuple[Damage, int]:  # fmt: skip
    """Repair the shard so that nodes run it again; returns what was lost, and how many actors were set back.

    `agreed` is what the operator was shown. Goes on however long NATS is away. Raises `RepairError` where
    another node owns the shard, or more was lost than was agreed to, `StreamRemade`
    where journal and snapshots contradict each other, `NewerVersion` and `NotOurs`.
    """
    # Before the claim: what is not repaired is left as it was.
    _check_agreed(agreed, await examine(js, names, shard))
    claimed = await claim(js, names, shard, node, time, may_claim=may_claim, accepts_loss=True)
    if isinstance(claimed, NotOwned):
        raise RepairError(
            f"shard {shard} cannot be repaired: {claimed.why}; stop the node that owns it, and try again"
        )
    repairing = _Repair(js, names, claimed, node)
    return await repairing.run(agreed)


def _check_agreed(agreed: Damage, found: Damage) -> None:
    """Raise `RepairError` where more was lost than the operator agreed to."""
    known = {gap.stream: gap for gap in agreed.gaps}
    for gap in found.gaps:
        shown = known.get(gap.stream)
        if (
            shown is None
            or gap.kept.position < shown.kept.position
            or gap.known.position > shown.known.position
        ):
            break
    else:
        if set(found.remade) <= set(agreed.remade):
            return
    raise RepairError(
        f"shard {found.shard} is not repaired: more was lost than you accepted; run the command again"
    )


class _After(Struct, frozen=True):
    """The members of a flush except its facts."""

    floor: int
    marks: Marks
    unclean: Unclean | None


class _Repair:
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
            # No node may run the shard before this is complete.
            why = f"angarium repair was interrupted in shard {claimed.shard}; run it again"
            refusal = RecordedLoss(node=self._node, at=claimed.at, stream=names.deliveries)
            self._hold(await refuse(
                js, names, claimed.shard, claimed.epoch, Loss(names.deliveries, _NEVER, why), refusal
            ))  # fmt: skip
        damage, history = await _examine(js, names, claimed.shard)
        _check_agreed(agreed, damage)
        recovery = await recover(js, names, claimed, self._node, accepts_loss=True)
        if isinstance(recovery, NotOwned):
            raise self._overtaken(recovery.why)
        gaps = {gap.stream: gap for gap in damage.gaps}
        facts, states, after = list[Fact](), dict(recovery.states), await self._unchanged(history.latest)
        if names.deliveries in gaps or names.receivers in damage.remade:
            states |= await self._load_others(states)
        if (gap := gaps.get(names.deliveries)) is not None:
            facts += self._bring_back(states, gap.kept.position, _left_out(gap, history.latest))
            marks = replace(after.marks, deliveries=gap.kept)
            after = replace(after, floor=min(after.floor, gap.kept.position), marks=marks)
        brought_back = len(facts)
        if names.receivers in damage.remade:
            facts += await self._set_removals(states, recovery.created[names.receivers])
        if (gap := gaps.get(names.events)) is not None:
            await self._route_from(gap.kept.position + 1)
            marks = replace(after.marks, events=gap.kept, restarts=_restarts(after.marks, gap))
            after = replace(after, marks=marks)
        await self._record(facts, after)
        await self._write(recovery, states, after)
        self._hold(await lift(js, names, claimed.shard, claimed.epoch))
        await release(js, names, claimed, self._node)
        return damage, brought_back

    def _hold(self, done: bool) -> None:
        if not done:
            raise self._overtaken("another process claimed it")

    def _overtaken(self, why: str) -> RepairError:
        return RepairError(f"the repair of shard {self._claim.shard} was overtaken: {why}; run it again")

    async def _unchanged(self, marks: Marks) -> _After:
        """The members of the last flush where nothing was lost.

        The last unclean claim keeps no position beyond the end of the deliveries: what lay there is gone, and
        new events will have those positions.
        """
        unclean = self._claim.unclean
        if unclean is not None:
            asked_at = asyncio.get_running_loop().time()
            end = (await info_since(self._js, self._names.deliveries, asked_at)).last
            unclean = replace(unclean, position=min(unclean.position, end))
        return _After(floor=self._claim.floor, marks=marks, unclean=unclean)

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

    def _bring_back(self, states: dict[str, State], position: int, left_out: int) -> list[Fact]:
        """The facts by which actors go back; then `states` has them as they are after."""
        claimed = self._claim
        return _decide(states, lambda state: repair(
            state, position=position, gap=left_out, at=claimed.at, epoch=claimed.epoch
        ))  # fmt: skip

    async def _set_removals(self, states: dict[str, State], created: str) -> list[Fact]:
        """The facts by which actors go on with the bucket of the receivers that was created then."""
        receivers, made_at, restored = Receivers(self._js, self._names), epoch_of(created), dict[str, int]()
        for receiver in [each for each, state in states.items() if state.removal]:
            told = await until_answered(partial(receivers.last_removal, receiver))
            restored[receiver] = _restored(told, made_at)
        return _decide(states, lambda state: set_removal(
            state, restored=restored.get(state.receiver, 0), at=self._claim.at
        ))  # fmt: skip

    async def _route_from(self, position: int) -> None:
        """Sets the consumer of the events back: it remembers the stream that was. Its readers are gone."""
        try:
            await until_answered(lambda: self._reset(position))
        except ApiError as error:
            # A stream that was recreated has none yet, and what makes one begins at the beginning.
            if error.code != CONSUMER_NOT_FOUND:
                raise

    async def _reset(self, position: int) -> None:
        """No fence guards a consumer, so each try looks whether the shard is still ours."""
        self._hold(await holds(self._js, self._names, self._claim))
        consumer = self._names.route_consumer(self._claim.shard)
        await self._js.consumer_reset(self._names.events, consumer, position)

    async def _record(self, facts: Sequence[Fact], after: _After) -> None:
        """Append all facts; everything else changes only with the last of them.

        A claim of the shard after a part of them has to find the loss again.
        """
        claimed = self._claim
        before = _After(floor=claimed.floor, marks=claimed.marks, unclean=claimed.unclean)
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

    async def _write(self, recovery: Recovery, states: dict[str, State], after: _After) -> None:
        """Store snapshots and checkpoint: the present streams are the right ones from now on."""
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
    """Decide for each of them; then `states` has them as they are after."""
    facts = [fact for state in states.values() if (fact := decide(state)) is not None]
    states |= {fact.receiver: evolve(states[fact.receiver], fact) for fact in facts}
    return facts


def _restored(told: Removal | None, made_at: float) -> int:
    """The revision of the last removal that a bucket knows of, if that is older than the bucket; else 0.

    It was restored with the bucket then, under the revision that it always had.
    """
    return told.revision if told is not None and told.at < made_at else 0


def _left_out(gap: LostTail, latest: Marks) -> int:
    """The count of numbers to leave out: those that an owner may have given and not recorded.

    Where more was read than the journal knows of, it lost its tail, too, and with it what was recorded.
    """
    return UNRECORDED_MAX + max(0, gap.known.position - latest.deliveries.position)


def _restarts(marks: Marks, gap: LostTail) -> tuple[Restart, ...]:
    """The events behind what was kept have sources above all that were ever given."""
    above, before = gap.kept.position, marks.restarts
    highest = max((each.offset for each in before), default=0) + gap.known.position
    kept = tuple(each for each in before if each.above < above)
    return (*kept, Restart(above=above, offset=highest + SOURCE_OFFSET))


# ---- who may be in the way


async def check_rights(js: JetStream, names: Names) -> None:
    """Raise `NotPermitted` where our user may not write what a repair writes. Nothing is stored."""
    for subject in (names.refusal(0), names.journal_of(0)):
        answer = await js.publish(subject, b"", {EXPECTED: str(_NEVER.position)})
        if isinstance(answer, Forbidden):
            raise NotPermitted(answer.why)


async def dead_holders(js: JetStream, names: Names, shards: Sequence[int]) -> frozenset[str]:
    """The nodes that hold one of these shards and show no heartbeat for a TTL and half a second."""
    owners = [(await read_owner(js, names, each))[0] for each in shards]
    holders = {each.node for each in owners if each is not None and each.released is None}
    before = {node: await _heartbeat(js, names, node) for node in holders}
    if not holders:
        return frozenset()
    await asyncio.sleep(max(ttl_s for _, ttl_s in before.values()) + LEASE_MARGIN_S)
    return frozenset([node for node in holders if (await _heartbeat(js, names, node))[0] == before[node][0]])


def free_or_of(dead: frozenset[str]) -> Callable[[Owner | None], bool]:
    """True if a shard may be claimed: it has no owner, or a dead one."""
    return lambda owner: owner is None or owner.released is not None or owner.node in dead


async def _heartbeat(js: JetStream, names: Names, node: str) -> tuple[int, float]:
    """The revision of a node's key, 0 where there is none, and how long a heartbeat of it is good for."""
    message = await until_answered(lambda: js.last_message(names.nodes, names.node(node)))
    if message is None or not message.data:
        return 0, UNKNOWN_TTL_S
    member = read_versioned(_member, message.data, members.VERSION, message.subject)
    return message.sequence, member.ttl_s or UNKNOWN_TTL_S
