"""Drains: a node says in its heartbeats that it is to be left out, and all leave it out or none does."""

import asyncio
from typing import Any

import msgspec
import pytest

from streams.control_requests.node_requests import LAST_NODE_CODE, OLDER_NODES_CODE, NodeControl
from streams.control_requests.requests import ControlRequest, Denied, Granted
from streams.fleet import rendezvous
from streams.fleet.members import FACTS_KNOWN, Member, Members
from streams.fleet.placement import PLACEMENT_VERSION, even_owners
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.fleet.bucket_reads import DEAD_S, TTL_S, BucketReads, Join, show
from tests.contract.support.faults import FaultyJetStream, request_lost
from tests.contract.support.shards import Clocks
from tests.support.waiting import until

SHARDS = 64


async def asked(members: Members, verb: str) -> Granted | Denied:
    """The answer to a request to that node."""
    return await NodeControl(members).handle(ControlRequest(verb, f"_nodes.{members.node}", b""))


async def test_a_drained_node_owns_nothing_until_it_is_resumed(js: JetStream, join: Join) -> None:
    a, b = await join(js, "a"), await join(js, "b")
    await until(lambda: a.live == ("a", "b"))
    assert await asked(a, "drain") == Granted({"draining": True})
    assert a.wanted_shards(SHARDS) == []
    await until(lambda: b.wanted_shards(SHARDS) == list(range(SHARDS)))
    assert await asked(a, "resume") == Granted({"draining": False})
    await until(lambda: b.wanted_shards(SHARDS) == shares("b", "a", "b"))
    assert a.wanted_shards(SHARDS) == shares("a", "a", "b")


def shares(node: str, *live: str) -> list[int]:
    return [shard for shard, owner in enumerate(even_owners(SHARDS, live)) if owner == node]


async def test_a_drain_is_seen_at_once(
    js: JetStream, names: Names, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regular reads are a minute apart here, so this one is extra."""
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / 60)
    a, b = (Members(js, names, node, clocks, ttl_s=TTL_S, version="1.2.3") for node in "ab")
    await a.start()
    await b.start()
    await until(lambda: a.live == ("a", "b"))
    await b.set_draining(True)
    await until(lambda: a.wanted_shards(SHARDS) == list(range(SHARDS)))
    await b.leave()
    await a.leave()


async def test_a_restart_ends_a_drain(js: JetStream, names: Names, join: Join) -> None:
    a, b = await join(js, "a"), await join(js, "b")
    await until(lambda: a.live == ("a", "b"))
    await asked(b, "drain")
    await b.leave()
    await join(js, "b")
    await until(lambda: a.wanted_shards(SHARDS) == shares("a", "a", "b"))


async def test_a_drain_is_granted_only_once_a_heartbeat_says_so(
    faulty: FaultyJetStream, names: Names, join: Join
) -> None:
    """The next heartbeat tells it, so the operator who asks again is granted it."""
    a, b = await join(faulty, "a"), await join(faulty, "b")
    await until(lambda: a.live == ("a", "b"))
    faulty.faults[names.node("a")].append(request_lost)
    answers = [await asked(a, "drain") for _ in range(3)]
    assert Granted({"draining": True}) in answers
    await until(lambda: b.wanted_shards(SHARDS) == list(range(SHARDS)))


async def test_the_last_node_is_not_drained(js: JetStream, join: Join) -> None:
    a = await join(js, "a")
    alone = await asked(a, "drain")
    assert isinstance(alone, Denied)
    assert alone.code == LAST_NODE_CODE
    b = await join(js, "b")
    await until(lambda: a.live == ("a", "b"))
    await asked(b, "drain")
    await until(lambda: any(each.draining for each in a.live_nodes))
    last = await asked(a, "drain")
    assert isinstance(last, Denied)
    assert last.code == LAST_NODE_CODE
    assert a.wanted_shards(SHARDS) == list(range(SHARDS))


async def test_nodes_that_are_all_drained_share_the_shards(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    """Two were asked at the same moment, or the one that had taken the shards died: they must deliver."""
    await show(counted, names, "c", placement=PLACEMENT_VERSION)
    a, b = await join(counted, "a"), await join(counted, "b")
    await until(lambda: a.live == b.live == ("a", "b", "c"))
    await asyncio.gather(asked(a, "drain"), asked(b, "drain"))
    await until(lambda: not a.wanted_shards(SHARDS) and not b.wanted_shards(SHARDS))
    clocks.turn(DEAD_S)
    await until(lambda: a.live == b.live == ("a", "b"))
    assert sorted(a.wanted_shards(SHARDS) + b.wanted_shards(SHARDS)) == list(range(SHARDS))


async def test_while_an_older_node_lives_its_placement_is_used(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    """A rolling upgrade, or the way back: each shard is wanted by one node, drained nodes included."""
    a, b = await join(counted, "a"), await join(counted, "b")
    await until(lambda: a.live == b.live == ("a", "b"))
    await asked(b, "drain")
    await until(lambda: a.wanted_shards(SHARDS) == list(range(SHARDS)))
    await show(counted, names, "older")
    await until(lambda: a.live == b.live == ("a", "b", "older"))
    owners = rendezvous.wanted_owners(SHARDS, ("a", "b", "older"))
    for each in (a, b):
        assert each.wanted_shards(SHARDS) == [n for n, owner in enumerate(owners) if owner == each.node]
    denied = await asked(a, "drain")
    assert isinstance(denied, Denied)
    assert denied.code == OLDER_NODES_CODE
    clocks.turn(DEAD_S)
    await until(lambda: a.wanted_shards(SHARDS) == list(range(SHARDS)) and not b.wanted_shards(SHARDS))


async def test_facts_are_known_to_all_only_while_no_older_node_lives(
    names: Names, clocks: Clocks, counted: BucketReads, join: Join
) -> None:
    a, b = await join(counted, "a"), await join(counted, "b")
    await until(lambda: a.live == b.live == ("a", "b"))
    assert a.all_know_facts(FACTS_KNOWN)
    await show(counted, names, "older")
    await until(lambda: a.live == ("a", "b", "older"))
    assert not a.all_know_facts(FACTS_KNOWN)
    clocks.turn(DEAD_S)
    await until(lambda: a.live == ("a", "b"))
    assert a.all_know_facts(FACTS_KNOWN)


async def test_a_heartbeat_of_an_older_version_knows_no_placement_and_no_drain() -> None:
    older = b'{"v":1,"node":"a","started_at":0.0,"version":"1","heartbeat":1,"ttl_s":5.0,"run":"r"}'
    member = msgspec.json.decode(older, type=Member)
    assert (member.placement, member.draining) == (0, False)


async def test_a_request_that_no_node_knows_is_denied(js: JetStream, join: Join) -> None:
    denied = await asked(await join(js, "a"), "dance")
    assert isinstance(denied, Denied)
    assert denied.code == "unknown_verb"


async def test_quick_joins_and_leaves_touch_no_other_node(js: JetStream, join: Join) -> None:
    """One node comes and goes ten times: the others are seen to live all the time."""
    a, c = await join(js, "a"), await join(js, "c")
    await until(lambda: a.live == c.live == ("a", "c"))
    changes: list[tuple[str, ...]] = []
    a.on_change(lambda: changes.append(a.live))
    for _ in range(10):
        b = await join(js, "b")
        await until(lambda: a.live == c.live == ("a", "b", "c"))
        await b.leave()
        await until(lambda: a.live == c.live == ("a", "c"))
    assert changes == [("a", "b", "c"), ("a", "c")] * 10


async def test_only_a_stored_heartbeat_counts_as_the_last_one(
    js: JetStream, names: Names, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim names it, and others take a number that they have not seen for a sign of life."""
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", 1.0)
    members = Members(js, names, "a", clocks, ttl_s=TTL_S, version="1.2.3")
    await members.start()
    await until(lambda: members.stored == 2)  # The next regular renewal is a TTL away.
    publish, gates = js.publish, list[asyncio.Event]()

    async def held(*arguments: Any) -> Any:
        gates.append(gate := asyncio.Event())
        await gate.wait()
        return await publish(*arguments)

    monkeypatch.setattr(js, "publish", held)
    first, second = (asyncio.ensure_future(members.set_draining(draining)) for draining in (True, False))
    await until(lambda: len(gates) == 2)
    gates[0].set()
    assert await first
    assert members.stored == 3
    gates[1].set()
    assert await second
    assert members.stored == 4
    monkeypatch.undo()
    await members.leave()
