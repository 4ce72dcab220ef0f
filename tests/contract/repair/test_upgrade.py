"""The upgrade of streams of version 1: their consumers' positions are recorded; nothing is lost."""

import msgspec
import pytest

from streams.installation.partitions import partition_of
from streams.installation.requirements import Mismatch
from streams.installation.setup import check, setup
from streams.installation.topology import STAMP_VERSION, Installation, Names, streams
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.claim import Claim, read_shard_record
from streams.journal.recovery import Recovery, recover
from streams.journal.routing_progress import RoutingProgress
from streams.nats.answers import Stored
from streams.nats.errors import NotOurs, SetupError
from streams.nats.jetstream import JetStream
from streams.repair.upgrade import upgrade
from tests.contract.support.shards import own
from tests.support.waiting import until_true

SHARDS = 4
SECOND = 1_000_000_000
OLD_FLUSH = (
    b'{"v":2,"node":"a","epoch":1,"flush":0,"floor":0,"at":1.5,"facts":[{"fact":"claimed","epoch":1,"at":1.5,'
    b'"clean":true,"position":0}]}'
)


@pytest.fixture
def installation(prefix: str) -> Installation:
    return Installation(prefix=prefix, shards=SHARDS, max_bytes=64 << 20)


@pytest.fixture
async def names(js: JetStream, installation: Installation) -> Names:
    """An installation as builds before 0.1.0 created it, with a consumer for each shard and stream."""
    await setup(js, installation)
    names = installation.names
    for config in streams(installation):
        stamp = config["metadata"] | {STAMP_VERSION: "1"}
        await js.stream_update(config | {"metadata": stamp})
    for shard in range(SHARDS):
        for stream, name, subjects in (
            (names.deliveries, f"shard-{shard}", names.deliveries_of(shard)),
            (names.events, f"route-{shard}", names.events_of(shard)),
        ):
            await js.consumer_create(
                stream,
                {"name": name, "durable_name": name, "filter_subject": subjects, "ack_policy": "explicit"},
            )
    return names


async def routed_to(js: JetStream, names: Names, shard: int) -> int:
    """Publish an event of that partition, and ack it as routers before 0.1.0 did; returns its position."""
    tenant = next(each for n in range(100) if partition_of(each := f"t{n}", SHARDS) == shard)
    answer = await js.publish(names.publish_event(tenant, "x"), b"{}")
    assert isinstance(answer, Stored)
    taken, inbox = list[str](), js.wire.new_inbox()
    await js.wire.subscribe(inbox, lambda message: taken.append(message.reply) if message.reply else None)
    ask = f"$JS.API.CONSUMER.MSG.NEXT.{names.events}.route-{shard}"
    await js.wire.publish(ask, msgspec.json.encode({"batch": 100, "expires": SECOND}), reply=inbox)

    async def acked() -> bool:
        for reply in taken:
            await js.wire.publish(reply, b"+ACK")
        info = await js.consumer_info(names.events, f"route-{shard}")
        return info is not None and info.ack_floor >= answer.position

    await until_true(acked)
    return answer.position


async def test_the_progress_of_the_old_routers_is_recorded(
    js: JetStream, names: Names, installation: Installation
) -> None:
    await js.publish(names.journal_of(1), OLD_FLUSH)
    position = await routed_to(js, names, 1)
    assert (await read_shard_record(js, names, 1)).routing is None
    assert await upgrade(js, installation) == [
        "how far events are routed, in the journals of 1 shards",
        f"deleted {SHARDS} consumers of {names.deliveries}, which are no longer used",
        f"deleted {SHARDS} consumers of {names.events}, which are no longer used",
        "upgraded 9 streams from version 1 to 2",
    ]
    past = await read_shard_record(js, names, 1)
    assert past.predecessor is not None
    assert past.routing == RoutingProgress(routed=position)
    assert (past.predecessor.node, past.predecessor.flush) == ("a", 1)
    assert await js.consumers(names.deliveries) == await js.consumers(names.events) == []
    assert await check(js, installation) == []
    assert await upgrade(js, installation) == []


async def test_the_next_claim_continues_from_there(
    js: JetStream, names: Names, installation: Installation
) -> None:
    await js.publish(names.journal_of(1), OLD_FLUSH)
    position = await routed_to(js, names, 1)
    with pytest.raises(NotOurs, match="was written by an older Angarium; stop all nodes, and run angarium"):
        await own(js, names, "b", shard=1)
    await upgrade(js, installation)
    claimed = await own(js, names, "b", shard=1)
    assert isinstance(claimed, Claim)
    assert claimed.routing.routed == position
    assert isinstance(await recover(js, names, claimed, "b"), Recovery)


async def test_a_shard_whose_journal_has_aged_out_has_it_in_the_checkpoint(
    js: JetStream, names: Names, installation: Installation
) -> None:
    old = msgspec.json.decode(encode_checkpoint(Checkpoint(v=2, journal_position=7, floor=3)))
    await js.publish(names.actor_keys.checkpoint(2), msgspec.json.encode(old))
    position = await routed_to(js, names, 2)
    await upgrade(js, installation)
    past = await read_shard_record(js, names, 2)
    assert (past.routing, past.floor, past.blank) == (RoutingProgress(routed=position), 3, False)


async def test_an_upgrade_is_refused_while_a_node_is_alive(
    js: JetStream, names: Names, installation: Installation
) -> None:
    await js.publish(names.journal_of(1), OLD_FLUSH)
    await js.publish(names.node("n1"), b'{"v":1,"node":"n1","at":1.0,"ttl_s":60}')
    with pytest.raises(SetupError, match=r"but nodes are running .*n1.*: stop all of them"):
        await upgrade(js, installation)
    assert (await read_shard_record(js, names, 1)).routing is None
    assert len(await js.consumers(names.events)) == SHARDS


async def test_nodes_refuse_what_is_not_upgraded(
    js: JetStream, names: Names, installation: Installation
) -> None:
    problems = await check(js, installation)
    assert {isinstance(each, Mismatch) and each.field for each in problems} == {"the version"}
    assert "stop all nodes, and run `angarium setup` once" in str(problems[0])
    with pytest.raises(SetupError, match="the version is 1, must be 2"):
        await setup(js, installation)


async def test_an_upgrade_that_was_interrupted_is_finished(
    js: JetStream, names: Names, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.publish(names.journal_of(1), OLD_FLUSH)
    position = await routed_to(js, names, 1)

    async def refuse(*_: object) -> None:
        raise SetupError("cut off")

    with monkeypatch.context() as cut_off:
        cut_off.setattr(js, "stream_update", refuse)
        with pytest.raises(SetupError, match="cut off"):
            await upgrade(js, installation)
    assert await upgrade(js, installation) == ["upgraded 9 streams from version 1 to 2"]
    assert (await read_shard_record(js, names, 1)).routing == RoutingProgress(routed=position)


async def test_a_new_installation_needs_none(js: JetStream, installation: Installation) -> None:
    assert await upgrade(js, installation) == []
    await setup(js, installation)
    assert await upgrade(js, installation) == []
