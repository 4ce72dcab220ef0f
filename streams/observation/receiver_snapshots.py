"""The receivers as seen from outside: by their snapshots, and by the stream.

Nodes write the snapshots of changed actors every five seconds. In a receiver that is not parked, no event
waits for longer than two seconds, unless no node runs its shard. So only the events of parked receivers, and
of such shards, are counted in the stream.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import Unusable
from actors.machine.state import State
from streams.bounded_gather import gather_bounded
from streams.clock import server_time
from streams.fleet.live_members import live_members
from streams.installation.partitions import shard_of_receiver
from streams.installation.topology import STAMP_SHARDS, Names
from streams.journal import snapshots
from streams.journal.checkpoint import Checkpoint, decode_checkpoint
from streams.journal.snapshots import Snapshot
from streams.nats.jetstream import JetStream
from streams.observation.installation_status import is_alive, owners_of
from streams.reading.messages import stored_event
from streams.reading.newest import newest
from streams.versions import read_versioned

APPENDED_AFTER_S = 0.5
"""Time after which the journal has what an owner settles; usually 200 ms."""
SNAPSHOTS_TIMEOUT_S = 8.0
"""Time to wait for the next snapshots, which are written every 5 s."""
SNAPSHOT_POLL_S = 0.25

_snapshot = msgspec.json.Decoder(Snapshot)


class ReceiverSnapshot(Struct, frozen=True):
    """A receiver's last snapshot: its state without the dedup window; None if it cannot be read."""

    receiver: str
    shard: int
    state: State | None


class ShardProgress(Struct, frozen=True):
    """The progress of a shard.

    - `floor`: all deliveries up to here are settled, or their receivers are parked.
    - `age_s`: the age of its snapshots; 0 if they lack no fact.
    - `behind`: deliveries wait that no node has read.
    - `ahead_since`: when the first facts were stored that its snapshots lack; None if they lack none.
    - `owned`: a live node owns it.
    """

    floor: int
    age_s: float
    behind: bool
    ahead_since: float | None = None
    owned: bool = True


class BacklogCount(Struct, frozen=True):
    """The number of events that wait, and the time at which the oldest of them was accepted."""

    count: int
    oldest_at: float | None = None


class SettledSince(Struct, frozen=True):
    """The events of a receiver that were settled since its snapshot.

    - `positions`: theirs in the stream.
    - `discarded_to`: all up to there were discarded.
    - `in_order`: they are settled in the order of the stream.
    """

    positions: frozenset[int] = frozenset()
    discarded_to: int = 0
    in_order: bool = True


NOTHING_SETTLED = SettledSince()


async def receiver_snapshots(
    js: JetStream, names: Names, tenant: str = "*"
) -> AsyncIterator[ReceiverSnapshot]:
    """Every receiver that has a snapshot; one may come twice, the newer last. Raises like `newest`."""
    async for message in newest(js, names.actors, [names.actor_keys.snapshots_of(tenant)]):
        if message.data and (found := names.actor_keys.shard_and_actor(message.subject)) is not None:
            shard, receiver = found
            yield ReceiverSnapshot(receiver, shard, _state(message.data, message.subject))


async def last_snapshot(js: JetStream, names: Names, receiver: str) -> ReceiverSnapshot | None:
    """The last snapshot of one receiver; None if it has none. Raises `Unavailable` and `ApiError`."""
    if not (shards := await shard_count(js, names)):
        return None
    return await last_snapshot_in(js, names, receiver, shard_of_receiver(receiver, shards))


async def last_snapshot_in(js: JetStream, names: Names, receiver: str, shard: int) -> ReceiverSnapshot | None:
    """The last snapshot of a receiver of that shard. Raises like `last_snapshot`."""
    message = await js.last_message(names.actors, names.actor_keys.actor(shard, receiver))
    if message is None or not message.data:
        return None
    return ReceiverSnapshot(receiver, shard, _state(message.data, message.subject))


async def wait_for_snapshots(js: JetStream, names: Names, receiver: str) -> bool:
    """Wait until the snapshots hold what the owner of the receiver's shard has settled by now.

    False if that takes too long: no node runs the shard. Raises `Unavailable` and `ApiError`.
    """
    shard = shard_of_receiver(receiver, await shard_count(js, names) or 1)
    await asyncio.sleep(APPENDED_AFTER_S)
    last, key = (
        await js.last_message(names.journal, names.journal_of(shard)),
        names.actor_keys.checkpoint(shard),
    )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SNAPSHOTS_TIMEOUT_S
    while last is not None:
        found = await js.last_message(names.actors, key)
        if found and found.data and decode_checkpoint(found.data, key).journal_position >= last.position:
            break
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(SNAPSHOT_POLL_S)
    return True


def _state(data: bytes, subject: str) -> State | None:
    try:
        state = read_versioned(_snapshot, data, snapshots.VERSION, subject).state
    except Unusable:
        return None
    return replace(state, frontier=replace(state.frontier, window=b""))


async def shard_count(js: JetStream, names: Names) -> int:
    """The number of shards, from the stamp of the installation. Raises `Unavailable` and `ApiError`."""
    info = await js.stream_info(names.deliveries)
    metadata = (info.config.get("metadata") if info else None) or {}
    return int(metadata.get(STAMP_SHARDS, 0))


async def shard_progress(js: JetStream, names: Names, shards: int) -> list[ShardProgress]:
    """The progress of each shard. Raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`."""
    return [*(await progress_by_shard(js, names, range(shards))).values()]


async def progress_by_shard(js: JetStream, names: Names, shards: Sequence[int]) -> dict[int, ShardProgress]:
    """The progress of these shards, in their order. Raises like `shard_progress`."""
    now = await server_time(js, names.deliveries)
    members, _ = await live_members(js, names)
    recorded = await owners_of(js, names, shards) if members else [None] * len(shards)
    owners = dict(zip(shards, recorded, strict=True))

    async def one(shard: int) -> ShardProgress:
        return await _progress_of(js, names, shard, now, owned=is_alive(owners[shard], members))

    return dict(zip(shards, await gather_bounded(shards, one), strict=True))


async def _progress_of(js: JetStream, names: Names, shard: int, now: float, *, owned: bool) -> ShardProgress:
    """The progress of one shard.

    An event for a receiver that is parked already makes no fact, so the floor of a shard that a node runs may
    lie below it for hours.
    """
    key = names.actor_keys.checkpoint(shard)
    found = await js.last_message(names.actors, key)
    checkpoint = decode_checkpoint(found.data, key) if found and found.data else Checkpoint()
    later = await js.next_message(names.journal, names.journal_of(shard), checkpoint.journal_position + 1)
    behind = False
    if not owned or not found:
        last = await js.last_message(names.deliveries, names.deliveries_of(shard))
        behind = last is not None and last.position > checkpoint.floor
    ahead_since = later.stored_at if later else None
    age_s = max(0.0, now - later.stored_at) if later else 0.0
    return ShardProgress(checkpoint.floor, age_s, behind, ahead_since, owned)


def waiting_events(snapshot: ReceiverSnapshot, progress: ShardProgress) -> BacklogCount | None:
    """The waiting events of a receiver, by its snapshot; None if they must be counted in the stream."""
    state = snapshot.state
    if state is None or state.parked or progress.behind:
        return None
    return BacklogCount(len(state.open), min((each.accepted_at for each in state.open), default=None))


async def count_waiting(
    js: JetStream,
    names: Names,
    snapshot: ReceiverSnapshot,
    progress: ShardProgress,
    since: SettledSince = NOTHING_SETTLED,
) -> BacklogCount:
    """The waiting events of a receiver with a known state, counted in the stream. Raises `Unavailable`."""
    state = snapshot.state or State(receiver=snapshot.receiver)
    # An event that an owner released without parking the receiver is settled.
    after = max(state.frontier.position, 0 if state.parked else progress.floor, since.discarded_to)
    if since.in_order:
        after = max(after, *since.positions, 0)
    settled = sum(each > after for each in since.positions)
    subject = names.delivery(snapshot.shard, snapshot.receiver)
    page = await js.read(names.deliveries, subject, after + 1, batch=1, max_bytes=1)
    still_open = [
        each.accepted_at
        for each in state.open
        if each.position not in since.positions and each.position > since.discarded_to
    ]
    accepted = still_open + [stored_event(each).accepted_at for each in page.messages]
    count = max(0, len(accepted) + page.pending - settled)
    return BacklogCount(count, min(accepted, default=None) if count else None)


async def count_since(js: JetStream, names: Names, snapshot: ReceiverSnapshot, since: int) -> int:
    """Count the events of a receiver that are in the stream at or above a position. Raises `Unavailable`."""
    subject = names.delivery(snapshot.shard, snapshot.receiver)
    page = await js.read(names.deliveries, subject, since, batch=1, max_bytes=1)
    return len(page.messages) + page.pending
