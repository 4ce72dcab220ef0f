"""Recovers a shard after its claim: the checkpoint, the journal's tail after it, and the actors in that tail.

The tail ends exactly with our own claim. If it seems to end before that, the replica lags; anything beyond
it, the checkpoint included, belongs to another owner, and the shard is lost. If there is something that no
owner can have written, a stream is not the one that the others refer to. The shard is then refused:
continuing would take new events for ones that were settled long ago, and assign their numbers a second time.
"""

import asyncio
import logging
from collections.abc import Iterator

from msgspec import Struct

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.bucket import CLOCK_SKEW_S
from actors.machine.facts import Claimed, Fact
from actors.machine.invariants import evolve_checked
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, check_created, decode_checkpoint
from streams.journal.claim import Claim, NotOwned, still_owns
from streams.journal.envelope import Flush, decode_flush
from streams.journal.fence import predecessor_position
from streams.journal.leadership import info_since, is_last
from streams.journal.load_slots import LoadSlots
from streams.journal.parked_receivers import Incomplete, ParkedReceivers, read_parked_receivers
from streams.journal.snapshots import Snapshot, Snapshots
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.protocol import timestamp_of
from streams.nats.retry import Pauses, retry_until_answered, stream_info

LOADS_AT_ONCE = 64
log = logging.getLogger(__name__)


class Recovery(Struct, frozen=True):
    """A shard as of its claim.

    - `states`: the actors that the tail names, and no others.
    - `parked`: all others that have to return to memory by themselves, with their wake-up times, if known.
    - `parked_list`: the list of the parked receivers, as it is stored.
    - `floor`: the deliveries up to here are released.
    - `created`: when each stream and bucket was created, for the next checkpoint.
    """

    states: dict[str, State]
    parked: dict[str, float | None]
    parked_list: ParkedReceivers
    checkpoint: Checkpoint
    floor: int
    created: dict[str, str]


class RecordedFlush(Struct, frozen=True):
    """One message of the tail."""

    position: int
    stored_at: float
    flush: Flush


async def recover(
    js: JetStream,
    names: Names,
    claim: Claim,
    node: str,
    slots: LoadSlots | None = None,
    *,
    accepts_loss: bool = False,
) -> Recovery | NotOwned:
    """Restore the shard from the journal and the snapshots, as of `claim`, which belongs to `node`.

    Snapshots are read in the `slots` of the node. With `accepts_loss`, the streams to which they refer may
    have lost messages.

    Waits while NATS is away. Raises `StreamRecreated`, `NewerVersion`, `NotOurs`, and `ApiError` if a
    stream does not exist.
    """
    infos = {name: await stream_info(js, name) for name in names.streams}
    found = await _newest_checkpoint(js, names, claim)
    checkpoint = found or Checkpoint()
    if not accepts_loss:
        check_created(checkpoint, infos.values())
    if checkpoint.journal_position >= claim.journal_position:
        return await _not_owned_or_restored(
            js, names, claim, f"its checkpoint at {checkpoint.journal_position}"
        )
    tail = await read_tail(js, names, claim, node, checkpoint.journal_position)
    if isinstance(tail, NotOwned):
        return tail
    if found is None and not accepts_loss:
        _check_age(infos[names.actors], tail[0])
    snapshots = Snapshots(js, names, claim, slots)
    receivers = list(dict.fromkeys(fact.receiver for _, fact in _facts(tail)))
    loaded = await _load(snapshots, receivers)
    for receiver, snapshot in loaded.items():
        if snapshot is not None and snapshot.as_of > claim.journal_position:
            return await _not_owned_or_restored(
                js, names, claim, f"the snapshot of {receiver} at {snapshot.as_of}"
            )
    states = _fold(loaded, tail)
    deliveries = infos[names.deliveries]
    if max([claim.floor, *(each.frontier.position for each in states.values())]) > deliveries.last:
        # The answer may come from a leader that was deposed.
        deliveries = await info_since(js, names.deliveries, asyncio.get_running_loop().time())
    if not accepts_loss:
        _check_ends(states, claim.floor, deliveries)
    parked_list = await _read_parked_receivers(js, names, claim, checkpoint, snapshots)
    parked = {receiver: at for receiver, at in parked_list.receivers().items() if receiver not in states}
    created = {name: info.created for name, info in infos.items()}
    return Recovery(states, parked, parked_list, checkpoint, claim.floor, created)


async def _newest_checkpoint(js: JetStream, names: Names, claim: Claim) -> Checkpoint | None:
    """The checkpoint in force. Flushes before it may be purged, so an older checkpoint would seem broken."""
    subject, pauses = names.actor_keys.checkpoint(claim.shard), Pauses()
    while True:
        message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
        position = message.position if message else 0
        if not claim.replicated or await is_last(js, names.actor_keys.proof(claim.shard), subject, position):
            return decode_checkpoint(message.data, subject) if message and message.data else None
        await pauses.wait()


async def _not_owned_or_restored(js: JetStream, names: Names, claim: Claim, what: str) -> NotOwned:
    """The result if something is beyond our claim. While `_owner` is ours, no other node put it there."""
    if not await still_owns(js, names, claim):
        return NotOwned(f"another node owns it: {what} is beyond our claim at {claim.journal_position}")
    raise StreamRecreated(
        f"{names.journal} was restored to an older state than {names.actors}: shard {claim.shard} "
        f"has {what}, but the journal ends at {claim.journal_position}; see angarium doctor"
    )


# ---- the journal's tail


async def read_tail(
    js: JetStream, names: Names, claim: Claim, node: str, after: int
) -> list[RecordedFlush] | NotOwned:
    """The flushes after the position `after`, the last of which is our claim."""
    tail: list[RecordedFlush] = []
    at = after
    while at < claim.journal_position:
        messages = await _read_on(js, names, claim.shard, at)
        if not messages:
            return NotOwned("our claim is not in the journal any more")
        for message in messages:
            if message.position > claim.journal_position:
                return NotOwned(
                    f"another node owns it: its journal continues after our claim at {claim.journal_position}"
                )
            if predecessor_position(message) > at:
                return await _broken(js, names, claim, at, message)
            at = message.position
            flush = decode_flush(message.data, f"message {at} of {names.journal}")
            tail.append(RecordedFlush(at, message.stored_at, flush))
    last = tail[-1].flush
    if (last.node, last.epoch) != (node, claim.epoch):
        return NotOwned(f"the message of the journal at {claim.journal_position} is not our claim")
    return tail


async def _broken(js: JetStream, names: Names, claim: Claim, at: int, message: StoredMessage) -> NotOwned:
    """The result if a message of the tail is missing. While `_owner` is ours, no other node may purge it."""
    if not await still_owns(js, names, claim):
        return NotOwned(f"another node owns it: it has snapshotted more than up to {at}")
    raise StreamRecreated(
        f"{names.actors} was restored to an older state than {names.journal}, or the journal was purged: "
        f"shard {claim.shard} is known up to {at}, but what the journal has at {message.position} follows "
        f"{predecessor_position(message)}; see angarium doctor"
    )


async def _read_on(js: JetStream, names: Names, shard: int, at: int) -> list[StoredMessage]:
    """The flushes that follow `at`: many from any replica, or one from the leader if the replica lags."""
    subject = names.journal_of(shard)
    page = await retry_until_answered(lambda: js.read(names.journal, subject, at + 1))
    if page.messages:
        return page.messages
    following = await retry_until_answered(lambda: js.next_message(names.journal, subject, at + 1))
    return [] if following is None else [following]


def _facts(tail: list[RecordedFlush]) -> Iterator[tuple[int, Fact]]:
    """The facts of the tail about actors, each with its journal position."""
    for recorded in tail:
        for fact in recorded.flush.facts:
            if not isinstance(fact, Claimed):
                yield recorded.position, fact


# ---- the actors


async def _load(snapshots: Snapshots, receivers: list[str]) -> dict[str, Snapshot | None]:
    """The snapshots of these actors, a few reads at a time."""
    loaded: dict[str, Snapshot | None] = {}
    for start in range(0, len(receivers), LOADS_AT_ONCE):
        some = receivers[start : start + LOADS_AT_ONCE]
        loaded |= zip(some, await asyncio.gather(*(_load_one(snapshots, each) for each in some)), strict=True)
    return loaded


async def _load_one(snapshots: Snapshots, receiver: str) -> Snapshot | None:
    return await retry_until_answered(lambda: snapshots.read(receiver))


async def _read_parked_receivers(
    js: JetStream, names: Names, claim: Claim, checkpoint: Checkpoint, snapshots: Snapshots
) -> ParkedReceivers:
    """The list of the parked receivers.

    If a part of it is gone, all receivers with snapshots are taken for parked, since the parked ones are
    among them; the others leave memory again.
    """
    try:
        return await read_parked_receivers(js, names, claim.shard, checkpoint)
    except Incomplete as error:
        log.warning("parked.incomplete", extra={"shard": claim.shard, "why": str(error)})
    listed = ParkedReceivers()
    for receiver in (UNKNOWN_RECEIVERS, *await retry_until_answered(snapshots.receivers)):
        listed.add(receiver, None)
    return listed


def _fold(loaded: dict[str, Snapshot | None], tail: list[RecordedFlush]) -> dict[str, State]:
    """The actors after the tail. A snapshot may be newer than the checkpoint and cover a part of the tail."""
    states = {
        receiver: State(receiver=receiver) if snapshot is None else snapshot.state
        for receiver, snapshot in loaded.items()
    }
    as_of = {receiver: 0 if snapshot is None else snapshot.as_of for receiver, snapshot in loaded.items()}
    for position, fact in _facts(tail):
        if position > as_of[fact.receiver]:
            states[fact.receiver] = evolve_checked(states[fact.receiver], fact)
    return states


# ---- streams that lost messages, or were recreated


def _check_age(bucket: StreamInfo, oldest: RecordedFlush) -> None:
    """Without a checkpoint, check that the journal has all facts, unless the checkpoint's bucket is gone."""
    if oldest.stored_at < timestamp_of(bucket.created) - CLOCK_SKEW_S:
        raise StreamRecreated(
            f"{bucket.name} was recreated: it was created {bucket.created}, after the journal was started, "
            f"and the snapshots that belong to it are gone; see angarium doctor"
        )


def _check_ends(states: dict[str, State], floor: int, deliveries: StreamInfo) -> None:
    """Check that the actors have read nothing beyond the end of the stream.

    Their sources prove nothing: a source is in a header, which a producer may have forged.
    """
    if floor > deliveries.last:
        raise _shorter(deliveries, f"the journal released everything up to {floor}")
    for state in states.values():
        position = state.frontier.position
        if position > deliveries.last:
            raise _shorter(deliveries, f"{state.receiver} was given the event at {position}")


def _shorter(stream: StreamInfo, but: str) -> StreamRecreated:
    return StreamRecreated(
        f"{stream.name} was recreated, or restored to an older state: it ends at {stream.last}, but {but}; "
        f"see angarium doctor"
    )
