"""Accepting that a stream lost its tail: the way out for shards that are refused, and for nobody else.

The shard is claimed as any other, so the fence holds off whoever owned it. What its journal ever said of the
streams tells the last message that is still the same. Actors that are beyond it go back to it, by a fact each
(`actors.repairing`); the router goes on behind it, under sources above all earlier ones. The flush that
completes this says so by its marks and its floor, which fall here and nowhere else. Until the end
the refusal stands, on record, so the command may be cut off anywhere, and run again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from actors.ids import UNKNOWN
from actors.machine.decide import evolve
from actors.machine.facts import Repaired
from actors.machine.state import State
from actors.repairing import UNRECORDED_MAX, repair
from streams.clock import Timekeeper
from streams.fleet import members
from streams.fleet.lease import MARGIN_S
from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.claim import Claim, Lost, Owner, claim, read_owner, release
from streams.journal.envelope import encode_fact, encode_flush, message_id
from streams.journal.fence import EXPECTED, Appended, append
from streams.journal.history import History, last_same, read_history
from streams.journal.recovery import LOADS_AT_ONCE, Recovery, recover
from streams.journal.snapshots import Snapshots
from streams.journal.tails import (
    Loss,
    Mark,
    Marks,
    Refusal,
    Restart,
    higher,
    is_missing,
    lift,
    lost,
    read_refusal,
    refuse,
)
from streams.nats.answers import Forbidden
from streams.nats.errors import ApiError, NotPermitted, RepairError
from streams.nats.jetstream import CONSUMER_NOT_FOUND, JetStream
from streams.nats.retry import stream_info, until_answered
from streams.versions import read_versioned

FACTS_MAX = 64
"""Facts of one flush: each names 512 positions at most, so these fit into a quarter of any message."""
SOURCES_APART = 1_000_000_000
"""Above whatever source somebody may have given unrecorded."""
TTL_S = 10.0
"""How long a node is watched whose key is gone: none has a longer TTL by default."""
_member = msgspec.json.Decoder(Member)
_NEVER = Mark(position=1 << 62)
"""No stream ever has this message: while it is on record, no node runs the shard."""


class Gap(Struct, frozen=True, kw_only=True):
    """A loss of a stream: everything behind `kept`, which is still there, up to `known` at least."""

    stream: str
    kept: Mark
    known: Mark


class Damage(Struct, frozen=True, kw_only=True):
    """The damage to a shard's streams. `remade`: those that were made anew, or restored.

    `missing`: the shard is refused for a message that is not there again, though no gap is found: its place
    was purged since.
    """

    shard: int
    gaps: tuple[Gap, ...]
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


async def _examine(js: JetStream, names: Names, shard: int) -> tuple[Damage, History]:
    history, recorded = await read_history(js, names, shard), await read_refusal(js, names, shard)
    checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
    infos = {name: await stream_info(js, name) for name in names.streams}
    remade = tuple(
        name for name, info in infos.items() if checkpoint.created.get(name, info.created) != info.created
    )
    gaps: list[Gap] = []
    for stream, latest, marks in (
        (names.deliveries, history.latest.deliveries, history.deliveries),
        (names.events, history.latest.events, history.events),
    ):
        cut_off = recorded is not None and recorded.mark == _NEVER
        if recorded is not None and not cut_off and recorded.stream == stream:
            latest = higher(recorded.mark, latest)
        if stream in remade:
            gaps.append(Gap(stream=stream, kept=Mark(position=infos[stream].first - 1), known=latest))
        elif await lost(js, stream, latest) is not None:
            gaps.append(Gap(stream=stream, kept=await last_same(js, stream, marks), known=latest))
    prefix = names.actor(shard, "")
    keys = await until_answered(lambda: js.subjects(names.actors, f"{prefix}*.*"))
    damage = Damage(
        shard=shard, gaps=tuple(gaps), remade=remade,
        receivers=sum(not each.removeprefix(prefix).startswith("_") for each in keys),
        cut_off=recorded is not None and recorded.mark == _NEVER,
        missing=not gaps and recorded is not None and await is_missing(js, recorded),
    )  # fmt: skip
    return damage, history


async def accept_loss(
    js: JetStream, names: Names, shard: int, node: str, time: Timekeeper,
    *, may_claim: Callable[[Owner | None], bool], agreed: Damage,
) -> tuple[Damage, int]:  # fmt: skip
    """Make the shard one that nodes run again; returns what was lost, and how many actors went back for it.

    `agreed` is what the operator was shown. Goes on however long NATS is away. Raises `RepairError` where
    the shard is somebody's, or more was lost than was agreed to, `StreamRemade`
    where journal and snapshots contradict each other, `NewerVersion` and `NotOurs`.
    """
    # Before the claim: what is not repaired is left as it was.
    _check_agreed(agreed, await examine(js, names, shard))
    claimed = await claim(js, names, shard, node, time, may_claim=may_claim, accepts_loss=True)
    if isinstance(claimed, Lost):
        raise RepairError(
            f"shard {shard} cannot be repaired: {claimed.why}; stop what owns it, and try again"
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
        f"shard {found.shard} is not repaired: more was lost than was agreed to; run the command again"
    )


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
        recorded = await read_refusal(js, names, claimed.shard)
        if recorded is None:
            # Nobody may run the shard before this is complete.
            why = f"angarium repair was cut off in shard {claimed.shard}; run it again"
            refusal = Refusal(node=self._node, at=claimed.at, stream=names.deliveries)
            self._hold(await refuse(
                js, names, claimed.shard, claimed.epoch, Loss(names.deliveries, _NEVER, why), refusal
            ))  # fmt: skip
        damage, history = await _examine(js, names, claimed.shard)
        _check_agreed(agreed, damage)
        recovery = await recover(js, names, claimed, self._node, accepts_loss=True)
        if isinstance(recovery, Lost):
            raise self._overtaken(recovery.why)
        gaps = {gap.stream: gap for gap in damage.gaps}
        facts, states, floor, marks = [], dict(recovery.states), claimed.floor, history.latest
        if (gap := gaps.get(names.deliveries)) is not None:
            gap_max = UNRECORDED_MAX + max(0, gap.known.position - history.latest.deliveries.position)
            facts = await self._bring_back(states, gap.kept.position, gap_max)
            floor = min(floor, gap.kept.position)
            marks = msgspec.structs.replace(marks, deliveries=gap.kept)
        if (gap := gaps.get(names.events)) is not None:
            await self._route_from(gap.kept.position + 1)
            marks = msgspec.structs.replace(marks, events=gap.kept, restarts=_restarts(marks, gap))
        await self._record(facts, floor, marks)
        await self._write(recovery, states, floor, marks)
        self._hold(await lift(js, names, claimed.shard, claimed.epoch))
        await release(js, names, claimed, self._node)
        return damage, len(facts)

    def _hold(self, done: bool) -> None:
        if not done:
            raise self._overtaken("another process claimed it")

    def _overtaken(self, why: str) -> RepairError:
        return RepairError(f"the repair of shard {self._claim.shard} was overtaken: {why}; run it again")

    async def _bring_back(self, states: dict[str, State], position: int, gap: int) -> list[Repaired]:
        """The facts by which actors go back; then `states` has all actors of the shard, as they are after."""
        snapshots = Snapshots(self._js, self._names, self._claim)
        stored = (UNKNOWN, *await until_answered(snapshots.receivers))
        away = [each for each in stored if each not in states]
        for start in range(0, len(away), LOADS_AT_ONCE):
            some = away[start : start + LOADS_AT_ONCE]
            loaded = await asyncio.gather(*(until_answered(partial(snapshots.load, each)) for each in some))
            states |= {state.receiver: state for state in loaded if state is not None}
        claimed, facts = self._claim, list[Repaired]()
        for receiver, state in states.items():
            fact = repair(state, position=position, gap=gap, at=claimed.at, epoch=claimed.epoch)
            if fact is not None:
                facts.append(fact)
                states[receiver] = evolve(state, fact)
        return facts

    async def _route_from(self, position: int) -> None:
        """Sets the consumer of the events back: it remembers the stream that was. Its readers are gone."""
        consumer = self._names.route_consumer(self._claim.shard)
        try:
            await until_answered(lambda: self._js.consumer_reset(self._names.events, consumer, position))
        except ApiError as error:
            # A stream that was made anew has none yet, and what makes one begins at the beginning.
            if error.code != CONSUMER_NOT_FOUND:
                raise

    async def _record(self, facts: Sequence[Repaired], floor: int, marks: Marks) -> None:
        """All facts; only with the last of them floor and marks are those that hold from now on."""
        claimed = self._claim
        for start in range(0, max(len(facts), 1), FACTS_MAX):
            last = start + FACTS_MAX >= len(facts)
            self._flushes += 1
            data = encode_flush(
                node=self._node,
                epoch=claimed.epoch,
                flush=self._flushes,
                floor=floor if last else claimed.floor,
                at=claimed.at,
                unclean=claimed.unclean,
                marks=marks if last else claimed.marks,
                facts=[encode_fact(each) for each in facts[start : start + FACTS_MAX]],
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

    async def _write(self, recovery: Recovery, states: dict[str, State], floor: int, marks: Marks) -> None:
        """Snapshots and checkpoint: the streams are from now on those that are there now."""
        needed = [each for state in states.values() if (each := state.needed_position) is not None]
        listed = recovery.listed
        listed.update(states.values())
        checkpoint = Checkpoint(
            sequence=self._sequence,
            floor=floor,
            needed=min(recovery.checkpoint.needed, floor + 1, *needed),
            parked_parts=listed.as_of(self._sequence),
            unclean=self._claim.unclean,
            created=recovery.created,
            marks=marks,
        )
        snapshots = Snapshots(self._js, self._names, self._claim)
        written = list(states.values())
        self._hold(
            await until_answered(lambda: snapshots.write(written, [], self._sequence, checkpoint, listed))
        )


def _restarts(marks: Marks, gap: Gap) -> tuple[Restart, ...]:
    """The events behind what was kept have sources above all that were ever given."""
    above, before = gap.kept.position, marks.restarts
    highest = max((each.offset for each in before), default=0) + gap.known.position
    kept = tuple(each for each in before if each.above < above)
    return (*kept, Restart(above=above, offset=highest + SOURCES_APART))


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
    await asyncio.sleep(max(ttl_s for _, ttl_s in before.values()) + MARGIN_S)
    return frozenset([node for node in holders if (await _heartbeat(js, names, node))[0] == before[node][0]])


def free_or_of(dead: frozenset[str]) -> Callable[[Owner | None], bool]:
    """Tells whether a shard may be claimed: nobody holds it, or somebody who is dead."""
    return lambda owner: owner is None or owner.released is not None or owner.node in dead


async def _heartbeat(js: JetStream, names: Names, node: str) -> tuple[int, float]:
    """The revision of a node's key, 0 where there is none, and how long a heartbeat of it is good for."""
    message = await until_answered(lambda: js.last_message(names.nodes, names.node(node)))
    if message is None or not message.data:
        return 0, TTL_S
    member = read_versioned(_member, message.data, members.VERSION, message.subject)
    return message.sequence, member.ttl_s or TTL_S
