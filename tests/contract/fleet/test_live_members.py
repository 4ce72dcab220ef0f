"""Membership: which node should own shards after reconnects and long sleeps.

With a connection the time begins again after which shards may be claimed from a silent node. That does not
make it live again.
"""

import msgspec
import pytest
from msgspec.structs import replace

from streams.fleet.live_members import live_members
from streams.fleet.members import Members
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.fleet.bucket_reads import DEAD_S, ROUND_S, TTL_S, BucketReads, Join, show
from tests.contract.support.shards import Clocks
from tests.support.waiting import until


async def test_a_dead_node_gets_no_share_after_a_reconnect(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    await show(counted, names, "b")
    members = await join(counted, "a")
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a",))
    changes: list[tuple[str, ...]] = []
    members.on_change(lambda: changes.append(members.live))
    members.connection_changed(False)
    members.connection_changed(True)
    await counted.another_read()
    assert not members.is_node_silent("b"), "a claim waits, counted from the reconnect"
    assert members.wanted_shards(64) == list(range(64))
    clocks.turn(DEAD_S)
    await until(lambda: members.is_node_silent("b"))
    assert not changes


async def test_a_dead_node_whose_key_is_gone_gets_no_share_after_a_long_sleep(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    """A heartbeat may have come and gone unseen, so a claim waits; but nothing shows that it lives."""
    await show(counted, names, "b")
    members = await join(counted, "a")
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a",))
    counted.blind = True
    clocks.turn(TTL_S)
    info = await counted.stream_info(names.nodes)
    assert info is not None
    await counted.purge(names.nodes, info.last + 1)
    members.connection_changed(True)
    counted.blind = False
    await counted.another_read()
    assert not members.is_node_silent("b")
    assert members.live == ("a",)


async def test_a_node_that_died_while_nats_was_away_keeps_its_share_until_silent(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    """The node owned its share before, and may just be slower to reconnect than this one."""
    await show(counted, names, "b")
    members = await join(counted, "a")
    members.connection_changed(False)
    counted.blind = True
    clocks.turn(10 * DEAD_S)
    counted.blind = False
    members.connection_changed(True)
    await counted.another_read()
    assert members.live == ("a", "b")
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a",))


async def test_a_node_that_was_dead_gets_its_share_with_its_next_heartbeat(
    names: Names, clocks: Clocks, counted: BucketReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, although the regular reads are a minute apart here."""
    await show(counted, names, "b")
    members = Members(counted, names, "a", clocks, ttl_s=TTL_S, version="1.2.3")
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / ROUND_S)
    await members.start()
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a",))
    reads = counted.reads
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / 60)
    await until(lambda: counted.reads > reads)
    reads = counted.reads
    members.connection_changed(True)
    await until(lambda: counted.reads > reads)
    await show(counted, names, "b", 2)
    await until(lambda: members.live == ("a", "b"))
    await members.leave()


@pytest.mark.parametrize("known", [True, False], ids=["it saw it die", "it came after its death"])
async def test_a_revived_heartbeat_of_a_dead_node_gives_it_no_share(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join, known: bool
) -> None:
    """nats-server shows expired messages for a moment after kill -9: here, with another revision, too."""
    await join(counted, "c")
    await show(counted, names, "b")
    old = await counted.last_message(names.nodes, names.node("b"))
    assert old is not None
    if not known:
        await counted.purge(names.nodes, old.position + 1)
    members = await join(counted, "a")
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a", "c"))
    clocks.turn(DEAD_S)
    changes: list[tuple[str, ...]] = []
    members.on_change(lambda: changes.append(members.live))
    counted.revived = (old, replace(old, position=old.position - 1))
    members.connection_changed(True)
    await counted.another_read()
    counted.revived = ()
    await counted.another_read()
    assert not changes


async def test_a_node_is_live_with_lower_revisions_in_a_recreated_bucket(
    js: JetStream, names: Names, clocks: Clocks, join: Join
) -> None:
    a = await join(js, "a")
    await until(lambda: a.heartbeat > 10)
    clocks.turn(DEAD_S)
    await until(lambda: a.lease.is_valid())
    info = await js.stream_info(names.nodes)
    assert info is not None
    await js.request(f"$JS.API.STREAM.DELETE.{names.nodes}", b"")
    await js.stream_create(info.config)
    await show(js, names, "b")
    await until(lambda: a.live == ("a", "b"))


FOREVER = {"v": 1, "node": "ghost", "started_at": 0.0, "version": "x", "heartbeat": 1, "ttl_s": 1e300}


async def test_a_heartbeat_is_not_believed_that_is_to_hold_forever(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    await counted.publish(names.node("ghost"), msgspec.json.encode(FOREVER))
    members = await join(counted, "a")
    assert members.live == ("a", "ghost")
    clocks.turn(DEAD_S)
    await until(lambda: members.live == ("a",))


@pytest.mark.parametrize(
    "members",
    [{"ttl_s": 1e300}, {"started_at": 1e300, "ttl_s": 5.0}, {"node": "other", "ttl_s": 5.0}],
    ids=["forever", "no-date", "other-name"],
)
async def test_impossible_heartbeats_are_problems_and_no_nodes(
    js: JetStream, names: Names, members: dict[str, object]
) -> None:
    await js.publish(names.node("ghost"), msgspec.json.encode(FOREVER | members))
    seen, problems = await live_members(js, names)
    assert seen == []
    assert len(problems) == 1
    assert names.node("ghost") in problems[0]
