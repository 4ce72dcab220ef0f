"""Nodes that hand shards over: few of them wait for their new owner at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from angarium.node.app import joined_node
from angarium.node.node import Node
from angarium.node.shard import NodeContext, Shard, take_over
from streams.clock import SystemTime
from streams.fleet.handover_turns import HANDOVERS_AT_ONCE
from streams.fleet.members import BELIEVED_TTL_MAX_S
from streams.fleet.placement import PLACEMENT_VERSION, even_owners
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.journal.claim import NotOwned
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.nats.wire_names import KV_DELETED
from tests.contract.fleet.bucket_reads import show
from tests.contract.node.senders import NobodySends
from tests.support.installation import installation, node_settings
from tests.support.waiting import until

MANY_SHARDS = 16
DRAIN_S = 3600.0
"""No turn ends before its shard is taken, on a busy machine either."""


class SilentShards:
    """Shards that no node delivers for: from the beginning of a handover to the start by the next owner.

    `tries`: claims that were begun.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: set[int] = set()
        self.most = self.moved = self.tries = 0
        hand_over, start = Shard.hand_over, Shard.start

        async def begins(shard: Shard, drain_s: float) -> bool:
            self.now.add(shard.number)
            self.most = max(self.most, len(self.now))
            return await hand_over(shard, drain_s)

        async def ends(shard: Shard) -> None:
            await start(shard)
            self.moved += shard.number in self.now
            self.now.discard(shard.number)

        async def tried(shard: int, context: NodeContext) -> Shard | NotOwned:
            self.tries += 1
            return await take_over(shard, context)

        monkeypatch.setattr("angarium.node.node.take_over", tried)
        monkeypatch.setattr(Shard, "hand_over", begins)
        monkeypatch.setattr(Shard, "start", ends)


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """An installation with so many shards that turns make a difference."""
    monkeypatch.setattr("streams.fleet.handover_turns.TURN_MAX_S", DRAIN_S)
    await setup(js, replace(installation(prefix), shards=MANY_SHARDS))
    return Names(prefix)


@asynccontextmanager
async def silent_node(js: JetStream, names: Names, placement: int = PLACEMENT_VERSION) -> AsyncIterator[None]:
    """A node "two" that lives by its heartbeats, and takes nothing."""
    await show(js, names, "two", placement=placement, ttl_s=BELIEVED_TTL_MAX_S)
    yield
    await js.publish(names.node("two"), b"", KV_DELETED)


@asynccontextmanager
async def node(wire: Wire, names: Names, name: str, drain_s: float = DRAIN_S) -> AsyncIterator[Node]:
    settings = replace(node_settings(names), node=name, shards=MANY_SHARDS, drain_s=drain_s)
    async with joined_node(wire, settings, SystemTime(), NobodySends()) as opened:
        yield opened


async def test_two_shards_at_most_are_still_while_nodes_join_and_stop(
    wire: Wire, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard is claimed when a heartbeat says that it was released: regular rounds are an hour apart."""
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", DRAIN_S)
    share = even_owners(MANY_SHARDS, ["one", "two"]).count("two")
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        silent = SilentShards(monkeypatch)
        async with node(wire, names, "two") as two:
            await until(lambda: len(two.owned) == share and len(one.owned) == MANY_SHARDS - share)
            assert (silent.moved, silent.most) == (share, HANDOVERS_AT_ONCE)
            assert silent.tries < 3 * share, "one when the node joined, and one when the shard was released"
        await until(lambda: len(one.owned) == MANY_SHARDS)
        assert (silent.moved, silent.most) == (2 * share, HANDOVERS_AT_ONCE)


async def test_a_node_stops_in_time_if_the_others_take_nothing(
    wire: Wire, js: JetStream, names: Names
) -> None:
    drain_s = 1.0
    async with node(wire, names, "one", drain_s) as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        async with silent_node(js, names):
            await until(lambda: "two" in one.context.members.live)
            async with asyncio.timeout(30.0):
                await one.stop()
        assert not one.owned


@pytest.mark.parametrize("older", [False, True], ids=["alone", "beside an older node"])
async def test_shards_that_no_other_node_takes_before_this_one_is_gone_end_at_once(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """A node of an older version leaves no node out that is drained."""
    async with AsyncExitStack() as stack:
        if older:
            await stack.enter_async_context(silent_node(js, names, placement=0))
        one = await stack.enter_async_context(node(wire, names, "one"))
        await one.until_ready()
        share, begun, hand_over = len(one.owned), set[int](), Shard.hand_over
        assert share > HANDOVERS_AT_ONCE

        async def once_all_have_begun(shard: Shard, drain_s: float) -> bool:
            begun.add(shard.number)
            await until(lambda: len(begun) == share)
            return await hand_over(shard, drain_s)

        monkeypatch.setattr(Shard, "hand_over", once_all_have_begun)
        await one.stop()


async def test_the_time_that_a_shard_waits_for_its_turn_counts_as_time_to_drain(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_s, given, hand_over = 0.05, list[float](), Shard.hand_over
    monkeypatch.setattr("streams.fleet.handover_turns.TURN_MAX_S", turn_s)

    async def noted(shard: Shard, drain_s: float) -> bool:
        given.append(drain_s)
        return await hand_over(shard, drain_s)

    monkeypatch.setattr(Shard, "hand_over", noted)
    share = even_owners(MANY_SHARDS, ["one", "two"]).count("two")
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        async with silent_node(js, names):
            await until(lambda: len(given) == share)
        turns_before_the_last = (share - 1) // HANDOVERS_AT_ONCE
        assert given[-1] <= DRAIN_S - turns_before_the_last * turn_s


async def test_released_shards_return_at_once_if_the_node_that_should_own_them_leaves(
    wire: Wire, js: JetStream, names: Names
) -> None:
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        async with silent_node(js, names):
            await until(lambda: len(one.owned) == MANY_SHARDS - HANDOVERS_AT_ONCE)
        await until(lambda: len(one.owned) == MANY_SHARDS)


async def test_a_shard_that_is_refused_while_it_waits_for_its_turn_counts_as_refused(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.fleet.handover_turns.TURN_MAX_S", 0.2)
    why = "a fact breaks an invariant"
    async with node(wire, names, "one") as one:
        await until(lambda: len(one.owned) == MANY_SHARDS)
        waiting = MANY_SHARDS - 1
        async with silent_node(js, names):
            await until(lambda: "two" in one.context.members.live)
            await one.context.members.set_draining(True)
            await until(lambda: len(one.owned) < MANY_SHARDS)
            one.owned[waiting].refuse(why)
            await until(lambda: waiting not in one.owned)
            assert one.refused == {waiting: why}
