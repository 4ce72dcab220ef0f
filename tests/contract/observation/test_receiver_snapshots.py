"""Receivers seen from outside: from their snapshots, and from the stream if these are old."""

import asyncio
import time

import msgspec
import pytest

from actors.machine.numbering import Frontier
from actors.machine.state import OpenEvent, State
from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.claim import Owner
from streams.nats.answers import Put, Stored
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.observation.receiver_snapshots import (
    BacklogCount,
    ReceiverSnapshot,
    ShardProgress,
    count_waiting,
    receiver_snapshots,
    shard_count,
    shard_progress,
    waiting_events,
)
from streams.reading import newest as reading
from streams.reading.newest import newest
from tests.contract.observation.snapshots import write
from tests.contract.support.owners import own_all_shards
from tests.contract.support.servers import RealServer, Server
from tests.support.installation import SHARDS, publish, shard

RECEIVER = "acme.billing"
WORKED = ShardProgress(0, 0.0, behind=False)


@pytest.fixture
def server(nats_url: str) -> Server:
    """Only the real server has such consumers; nothing of the protocol rests on them."""
    return RealServer(nats_url)


async def seen(js: JetStream, names: Names, tenant: str = "*") -> dict[str, ReceiverSnapshot]:
    return {each.receiver: each async for each in receiver_snapshots(js, names, tenant)}


@pytest.mark.parametrize(("batch", "size"), [(512, 4 << 20), (7, 4 << 20), (512, 2000)])
async def test_all_are_seen_in_batches_of_any_size(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, batch: int, size: int
) -> None:
    monkeypatch.setattr(reading, "BATCH_MESSAGES", batch)
    monkeypatch.setattr(reading, "BATCH_BYTES", size)
    assert await seen(js, names) == {}
    wanted = {f"{tenant}.r{number}" for tenant in ("acme", "other") for number in range(35)}
    for receiver in sorted(wanted):
        await write(js, names, State(receiver=receiver, frontier=Frontier(position=7, window=b"12345678")))
    await js.publish(names.actor_keys.checkpoint(1), encode_checkpoint(Checkpoint()))
    await js.publish(names.actor_keys.actor(1, "_unknown"), b"{}")
    await js.publish(names.actor_keys.parked_receivers(1, 0), b"{}")
    found = await seen(js, names)
    assert found.keys() == wanted
    assert {each.shard for each in found.values()} == set(range(SHARDS))
    state = found["acme.r1"].state
    assert state is not None
    assert state.frontier == Frontier(position=7)
    assert (await seen(js, names, "other")).keys() == {each for each in wanted if each.startswith("other")}


async def test_the_end_of_one_batch_is_not_taken_for_that_of_the_next(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports the end of a batch after its last message, when the next batch is requested."""
    monkeypatch.setattr(reading, "BATCH_MESSAGES", 2)
    asked = []
    publish_it = js.wire.publish

    async def counting(subject: str, *rest: bytes | str) -> None:
        asked.append(subject)
        await publish_it(subject, *rest)  # type: ignore[arg-type]

    for start in range(0, 1200, 600):
        puts = [
            Put(names.actor_keys.actor(1, f"acme.r{number}"), b'{"v": 99}')
            for number in range(start, start + 600)
        ]
        assert isinstance(await js.publish_batch(puts), Stored)
    monkeypatch.setattr(js.wire, "publish", counting)
    assert len(await seen(js, names)) == 1200
    assert sum("MSG.NEXT" in subject for subject in asked) <= 601


async def test_an_unreadable_or_deleted_snapshot_does_not_count_as_healthy(
    js: JetStream, names: Names
) -> None:
    await js.publish(names.actor_keys.actor(1, "acme.strange"), b"mine!")
    await js.publish(names.actor_keys.actor(1, "acme.newer"), b'{"v": 99}')
    await js.publish(names.actor_keys.actor(1, "acme.gone"), b"", {"KV-Operation": "DEL"})
    assert {name: each.state for name, each in (await seen(js, names)).items()} == {
        "acme.strange": None, "acme.newer": None
    }  # fmt: skip


async def test_constant_writes_do_not_keep_a_reader_busy_forever(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "REPEATED_MAX", 5)
    read = 0
    await write(js, names, State(receiver=RECEIVER))
    async for _ in newest(js, names.actors, [names.actor_keys.actor(shard(RECEIVER), RECEIVER)]):
        read += 1
        await write(js, names, State(receiver=RECEIVER))
        await write(js, names, State(receiver="acme.other"))
    assert read <= 7


async def test_a_snapshot_that_is_replaced_while_it_is_read_is_not_left_out(
    js: JetStream, names: Names
) -> None:
    receivers = {f"acme.r{number}" for number in range(4)}
    for receiver in receivers:
        await write(js, names, State(receiver=receiver))

    async def replace() -> None:
        while True:
            await write(js, names, State(receiver="acme.r3"))

    async with asyncio.TaskGroup() as tasks:
        replacing = tasks.create_task(replace())
        for _ in range(50):
            assert set(await seen(js, names)) == receivers
        replacing.cancel()


async def test_a_stream_that_is_missing_is_an_error(js: JetStream) -> None:
    with pytest.raises(ApiError):
        [each async for each in newest(js, "NONE", [">"])]


# ---- what waits


async def test_the_snapshot_shows_that_a_receiver_is_not_parked() -> None:
    state = State(
        receiver=RECEIVER, open=(OpenEvent(sequence=1, position=4, id="a", stored_at=30.0),)
    )  # fmt: skip
    assert waiting_events(ReceiverSnapshot(RECEIVER, 0, state), WORKED) == BacklogCount(1, 30.0)
    assert waiting_events(ReceiverSnapshot(RECEIVER, 0, State(receiver=RECEIVER)), WORKED) == BacklogCount(0)
    assert waiting_events(ReceiverSnapshot(RECEIVER, 0, None), WORKED) is None
    parked = State(receiver=RECEIVER, parked=True)
    assert waiting_events(ReceiverSnapshot(RECEIVER, 0, parked), WORKED) is None
    assert (
        waiting_events(
            ReceiverSnapshot(RECEIVER, 0, State(receiver=RECEIVER)), ShardProgress(0, 99.0, behind=True)
        )
        is None
    )


async def test_a_parked_receiver_is_counted_from_the_frontier_on(js: JetStream, names: Names) -> None:
    positions = [await publish(js, names, RECEIVER) for _ in range(5)]
    await publish(js, names, "acme.other")
    opened = OpenEvent(sequence=2, position=positions[1], id="a", stored_at=30.0)
    frontier = Frontier(position=positions[1])
    state = State(receiver=RECEIVER, parked=True, open=(opened,), frontier=frontier)
    found = await count_waiting(js, names, ReceiverSnapshot(RECEIVER, shard(RECEIVER), state), WORKED)
    assert found == BacklogCount(4, 30.0)
    state = State(receiver=RECEIVER, parked=True, frontier=frontier)
    found = await count_waiting(js, names, ReceiverSnapshot(RECEIVER, shard(RECEIVER), state), WORKED)
    assert found.count == 3
    assert found.oldest_at == pytest.approx(time.time(), abs=60)
    state = State(receiver=RECEIVER, parked=True, frontier=Frontier(position=positions[-1]))
    assert await count_waiting(
        js, names, ReceiverSnapshot(RECEIVER, shard(RECEIVER), state), WORKED
    ) == BacklogCount(0)


async def test_released_events_are_not_counted_for_a_receiver_that_is_not_parked(
    js: JetStream, names: Names
) -> None:
    positions = [await publish(js, names, RECEIVER) for _ in range(5)]
    behind = ShardProgress(positions[2], 99.0, behind=True)
    nothing = ReceiverSnapshot(RECEIVER, shard(RECEIVER), State(receiver=RECEIVER))
    assert (await count_waiting(js, names, nothing, behind)).count == 2


# ---- how far shards are worked


async def test_a_shard_without_an_owner_is_behind(js: JetStream, names: Names) -> None:
    assert await shard_count(js, names) == SHARDS
    alone = ShardProgress(0, 0.0, behind=False, owned=False)
    assert await shard_progress(js, names, SHARDS) == [alone] * SHARDS
    position = await publish(js, names, RECEIVER)
    found = await shard_progress(js, names, SHARDS)
    assert [each.behind for each in found] == [number == shard(RECEIVER) for number in range(SHARDS)]
    checkpoint = encode_checkpoint(Checkpoint(floor=position))
    await js.publish(names.actor_keys.checkpoint(shard(RECEIVER)), checkpoint)
    found = await shard_progress(js, names, SHARDS)
    assert found[shard(RECEIVER)] == ShardProgress(position, 0.0, behind=False, owned=False)


async def test_a_shard_that_a_live_node_owns_is_only_behind_before_its_first_checkpoint(
    js: JetStream, names: Names
) -> None:
    await own_all_shards(js, names)
    assert await shard_progress(js, names, SHARDS) == [WORKED] * SHARDS
    await publish(js, names, RECEIVER)
    assert (await shard_progress(js, names, SHARDS))[shard(RECEIVER)].behind
    await js.publish(names.actor_keys.checkpoint(shard(RECEIVER)), encode_checkpoint(Checkpoint()))
    assert await shard_progress(js, names, SHARDS) == [WORKED] * SHARDS


async def test_the_shards_of_a_node_without_a_heartbeat_are_unowned(js: JetStream, names: Names) -> None:
    await own_all_shards(js, names)
    await js.publish(names.actor_keys.owner(1), msgspec.json.encode(Owner(node="dead", at=0.0)))
    await js.publish(names.actor_keys.owner(2), msgspec.json.encode(Owner(node="n1", at=0.0, released=7)))
    found = await shard_progress(js, names, SHARDS)
    assert [number for number, each in enumerate(found) if not each.owned] == [1, 2]


async def test_a_node_that_was_started_again_does_not_own_what_it_has_not_claimed_again(
    js: JetStream, names: Names
) -> None:
    """The new process has the name of the one that died, whose shards no live node owns."""
    await own_all_shards(js, names)
    started = Member(node="n1", started_at=1.0, version="1", heartbeat=1, run="second")
    await js.publish(names.node("n1"), msgspec.json.encode(started))
    for number, run in ((1, "first"), (2, "second")):
        owner = Owner(node="n1", at=0.0, run=run)
        await js.publish(names.actor_keys.owner(number), msgspec.json.encode(owner))
    found = await shard_progress(js, names, SHARDS)
    assert [number for number, each in enumerate(found) if not each.owned] == [1]


async def test_snapshots_are_as_old_as_the_first_flush_that_they_do_not_know(
    js: JetStream, names: Names
) -> None:
    for _ in range(2):
        await js.publish(names.journal_of(1), b"{}")
    last = await js.last_message(names.journal, names.journal_of(1))
    assert last is not None
    await js.publish(
        names.actor_keys.checkpoint(1), encode_checkpoint(Checkpoint(journal_position=last.position - 2))
    )
    assert (await shard_progress(js, names, SHARDS))[1].age_s > 0
    await js.publish(
        names.actor_keys.checkpoint(1), encode_checkpoint(Checkpoint(journal_position=last.position))
    )
    assert (await shard_progress(js, names, SHARDS))[1].age_s == 0.0
