"""Claims that come late: under a lease that is not in force yet, or when the node stops already."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node import node as module
from angarium.node.app import joined_node
from angarium.node.node import CLAIMS_AT_ONCE, Node
from angarium.node.shard import NodeContext, Shard, take_over
from streams.clock import SystemTime
from streams.fleet.members import Members
from streams.installation.topology import Names
from streams.journal.claim import NotOwned, read_owner
from streams.nats.answers import Answer, Unanswered
from streams.nats.jetstream import JetStream
from tests.contract.node.senders import NobodySends
from tests.contract.support.servers import Server, opened
from tests.support.installation import install, node_settings, publish, shard
from tests.support.waiting import until

EARLY, LATE = (
    "acme.r0",
    next(f"acme.r{number}" for number in range(99) if shard(f"acme.r{number}") != shard("acme.r0")),
)


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    names = await install(js, prefix)
    for receiver in (EARLY, LATE):
        await js.publish(names.receiver(receiver), b'{"url": "https://late.example", "unsigned": true}')
    return names


class HeldHeartbeats:
    """Lets no heartbeat of a node be stored while `blocked`."""

    def __init__(self, node: Node, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocked = True
        self._js, self._subject, self._publish = (
            node.context.js,
            names.node(node.context.node),
            JetStream.publish,
        )
        monkeypatch.setattr(JetStream, "publish", lambda *arguments, **more: self.publish(*arguments, **more))

    async def publish(self, js: JetStream, subject: str, *rest: Any, **more: Any) -> Answer:
        if self.blocked and js is self._js and subject == self._subject:
            await asyncio.sleep(0.05)
            return Unanswered("no leader")
        return await self._publish(js, subject, *rest, **more)


@pytest.fixture
async def joined(server: Server, names: Names) -> AsyncIterator[Node]:
    wire = await server.connect("a")
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == node.shards)
        yield node
    await wire.close()


async def test_no_claim_is_made_after_a_wait_without_a_lease_in_force(
    server: Server, js: JetStream, names: Names, joined: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = joined.context.members
    async with opened(server, JetStream) as other:
        seen = Members(other, names, "c", SystemTime(), ttl_s=2.0, version="x")
        seen.draining = True
        await seen.start()
        await until(lambda: "c" in members.live)
        for _ in range(CLAIMS_AT_ONCE):
            await vars(joined)["_claiming"].acquire()
        await joined.owned[0].stop("as when it was fenced")
        await until(lambda: 0 not in joined.owned and 0 in vars(joined)["_under_way"])
        held, lease = HeldHeartbeats(joined, names, monkeypatch), members.lease
        await until(lambda: members.lease is not lease)
        await until(lambda: "a" not in seen.live)
        before = await read_owner(js, names, 0)
        for _ in range(CLAIMS_AT_ONCE):
            vars(joined)["_claiming"].release()
        await until(lambda: 0 not in vars(joined)["_under_way"])
        assert await read_owner(js, names, 0) == before
        held.blocked = False
        await until(lambda: 0 in joined.owned)
        await seen.leave()


async def test_no_resumption_is_made_after_a_wait_without_a_lease_in_force(
    js: JetStream, names: Names, joined: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, gate, suspend = joined.context.members, asyncio.Event(), Shard.suspend

    async def slow(self: Shard) -> None:
        await suspend(self)
        await gate.wait()

    monkeypatch.setattr(Shard, "suspend", slow)
    held, first = HeldHeartbeats(joined, names, monkeypatch), members.lease
    await until(lambda: members.lease is not first)
    second, held.blocked = members.lease, False
    await until(second.is_valid)
    await until(lambda: len(vars(joined)["_under_way"]) == joined.shards)
    held.blocked = True
    await until(lambda: members.lease is not second)
    before = await read_owner(js, names, 0)
    gate.set()
    await until(lambda: not vars(joined)["_under_way"])
    assert await read_owner(js, names, 0) == before
    held.blocked = False
    await until(lambda: not joined.owned[0].is_suspended)


async def test_a_suspended_shard_is_not_shown_as_one_that_its_node_runs(
    names: Names, joined: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others end the turn of a handover when they see that its shard runs again."""
    members = joined.context.members
    assert sorted(members.owned()) == list(range(joined.shards))
    held, lease = HeldHeartbeats(joined, names, monkeypatch), members.lease
    await until(lambda: members.lease is not lease)
    assert list(members.owned()) == []
    held.blocked = False
    await until(lambda: len(list(members.owned())) == joined.shards)


async def test_a_takeover_that_ends_while_the_node_stops_delivers_nothing_and_is_released(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLAIMS_TIMEOUT_S", 0.05)
    gate, posted, answer = asyncio.Event(), [], asyncio.Event()

    async def slow(number: int, context: NodeContext) -> Shard | NotOwned:
        if number == shard(LATE):
            await gate.wait()
        return await take_over(number, context)

    monkeypatch.setattr(module, "take_over", slow)

    class Sender:
        async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
            assert attempt.may_start()
            posted.append(attempt.receiver)
            await answer.wait()
            return Answered(status=200, latency_ms=1.0)

    wire = await server.connect("a")
    await publish(js, names, LATE)
    async with joined_node(wire, replace(node_settings(names), drain_s=10.0), SystemTime(), Sender()) as node:
        await until(lambda: len(node.owned) == node.shards - 1)
        await publish(js, names, EARLY)
        await until(lambda: posted == [EARLY])
        stopping = asyncio.ensure_future(node.stop())
        await until(lambda: node.owned[shard(EARLY)].host.draining)
        gate.set()
        await until(lambda: shard(LATE) not in vars(node)["_under_way"])
        answer.set()
        await stopping
        owner, _ = await read_owner(js, names, shard(LATE))
        assert posted == [EARLY]
        assert not node.owned
        assert owner is not None
        assert owner.released is not None
    await wire.close()
