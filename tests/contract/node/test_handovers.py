"""Nodes that hand shards over: few of them wait for their new owner at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from angarium.node.app import member
from angarium.node.node import Node
from angarium.node.shard import Shard
from streams.clock import SystemTime
from streams.fleet.placement import PLACEMENT_VERSION, even_owners
from streams.fleet.turns import HANDOVERS_AT_ONCE
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.fleet.looking import show
from tests.contract.node.senders import NobodySends
from tests.support.installation import installation, node_settings
from tests.support.waiting import until

MANY_SHARDS = 16
DRAIN_S = 60.0
"""No turn ends before its shard is taken, on a busy machine either."""


class Still:
    """Shards that no node delivers for: from the beginning of a handover to the start by the next owner."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: set[int] = set()
        self.most = self.moved = 0
        hand_over, start = Shard.hand_over, Shard.start

        async def begins(shard: Shard, drain_s: float) -> bool:
            self.now.add(shard.number)
            self.most = max(self.most, len(self.now))
            return await hand_over(shard, drain_s)

        async def ends(shard: Shard) -> None:
            await start(shard)
            self.moved += shard.number in self.now
            self.now.discard(shard.number)

        monkeypatch.setattr(Shard, "hand_over", begins)
        monkeypatch.setattr(Shard, "start", ends)


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """An installation with so many shards that turns make a difference."""
    monkeypatch.setattr("streams.fleet.turns.TURN_MAX_S", DRAIN_S)
    await setup(js, replace(installation(prefix), shards=MANY_SHARDS))
    return Names(prefix)


@asynccontextmanager
async def node(wire: Wire, names: Names, name: str, drain_s: float = DRAIN_S) -> AsyncIterator[Node]:
    settings = replace(node_settings(names), node=name, shards=MANY_SHARDS, drain_s=drain_s)
    async with member(wire, settings, SystemTime(), NobodySends()) as opened:
        yield opened


async def test_two_shards_at_most_are_still_while_nodes_join_and_stop(
    wire: Wire, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = even_owners(MANY_SHARDS, ["one", "two"]).count("two")
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        still = Still(monkeypatch)
        async with node(wire, names, "two") as two:
            await until(lambda: len(two.owned) == share and len(one.owned) == MANY_SHARDS - share)
            assert (still.moved, still.most) == (share, HANDOVERS_AT_ONCE)
        await until(lambda: len(one.owned) == MANY_SHARDS)
        assert (still.moved, still.most) == (2 * share, HANDOVERS_AT_ONCE)


async def test_a_node_stops_in_time_if_the_others_take_nothing(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """Another node lives by its heartbeats, and hangs otherwise."""
    drain_s = 1.0
    async with node(wire, names, "one", drain_s) as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        await show(js, names, "two", placement=PLACEMENT_VERSION, ttl_s=3600.0)
        await until(lambda: "two" in one.context.members.live)
        async with asyncio.timeout(DRAIN_S / 2):
            await one.stop()
        assert not one.owned


async def test_a_node_that_is_alone_hands_everything_over_at_once(
    wire: Wire, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        still = Still(monkeypatch)
        await one.stop()
        assert still.most == MANY_SHARDS
