"""A node with very many configurations: alone it delivers before it has read them all, else it waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import joined_node
from angarium.node.monitor import unready
from angarium.node.node import Node
from streams.buckets import follower
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.support.servers import Server
from tests.support.installation import install, node_settings, publish
from tests.support.waiting import until

READ, UNREAD = "acme.read", "acme.unread"
CONFIGURATION = b'{"url": "https://early-start.example", "unsigned": true}'


class Recorder:
    """Delivers everything at once."""

    def __init__(self) -> None:
        self.receivers: list[str] = []

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        assert attempt.may_start()
        self.receivers.append(attempt.receiver)
        return Answered(status=200, latency_ms=1.0)


class HeldReads:
    """Lets the first configuration be read, and the others after `release`."""

    def __init__(self, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stream = names.receivers
        self.held = asyncio.Event()
        self._released = asyncio.Event()
        self._read = JetStream.read
        monkeypatch.setattr(follower, "READ_MESSAGES_MAX", 1)
        monkeypatch.setattr(JetStream, "read", lambda *arguments: self.read(*arguments))

    def release(self) -> None:
        self._released.set()

    async def read(self, js: JetStream, stream: str, subject: str, start: int, *rest: Any) -> Any:
        if stream == self._stream and start > 1:
            self.held.set()
            await self._released.wait()
        return await self._read(js, stream, subject, start, *rest)


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    names = await install(js, prefix)
    for receiver in (READ, UNREAD):
        await js.publish(names.receiver(receiver), CONFIGURATION)
    return names


@asynccontextmanager
async def running(server: Server, names: Names, node: str, recorder: Recorder) -> AsyncIterator[Node]:
    wire = await server.connect(node)
    settings = replace(node_settings(names), node=node)
    try:
        async with joined_node(wire, settings, SystemTime(), recorder, patience_s=0.01) as started:
            yield started
    finally:
        await wire.close()


async def test_a_node_that_is_alone_delivers_to_known_receivers_and_keeps_events_of_others(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, recorder = HeldReads(names, monkeypatch), Recorder()
    for receiver in (UNREAD, READ, UNREAD):
        await publish(js, names, receiver)
    async with running(server, names, "a", recorder) as node:
        await until(lambda: READ in recorder.receivers)
        await until(lambda: len(node.owned) == node.shards)
        assert unready(node).startswith("configurations are being read")
        ready = asyncio.ensure_future(node.until_ready())
        assert recorder.receivers == [READ]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ready), 0.05)
        reads.release()
        await ready
        await until(lambda: recorder.receivers == [READ, UNREAD, UNREAD])
        assert not unready(node)


async def test_a_node_joins_others_only_once_it_knows_all_configurations(
    server: Server, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    async with running(server, names, "a", recorder) as old:
        await old.until_ready()
        reads = HeldReads(names, monkeypatch)
        looks: list[str] = []
        next_message = JetStream.next_message

        async def looked(js: JetStream, stream: str, subject: str, position: int) -> Any:
            found = await next_message(js, stream, subject, position)
            if stream == names.nodes:
                looks.append(found.subject if found else "")
            return found

        monkeypatch.setattr(JetStream, "next_message", looked)
        joining = running(server, names, "b", recorder)
        starting = asyncio.ensure_future(joining.__aenter__())
        await until(lambda: len(looks) > 2)
        assert looks == [names.node("a")] * len(looks)
        assert old.context.members.live == ("a",)
        assert not starting.done()
        reads.release()
        new = await starting
        await new.until_ready()
        assert new.owned
        await joining.__aexit__(None, None, None)


async def test_a_node_that_cannot_see_whether_others_live_does_not_join_early(
    server: Server, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, reads, unanswered = Recorder(), HeldReads(names, monkeypatch), 0
    next_message = JetStream.next_message

    async def looked(js: JetStream, stream: str, subject: str, position: int) -> Any:
        nonlocal unanswered
        if stream == names.nodes:
            unanswered += 1
            raise Unavailable("no leader")
        return await next_message(js, stream, subject, position)

    monkeypatch.setattr(JetStream, "next_message", looked)
    joining = running(server, names, "a", recorder)
    starting = asyncio.ensure_future(joining.__aenter__())
    await until(lambda: unanswered > 2)
    assert not starting.done()
    reads.release()
    await (await starting).until_ready()
    await joining.__aexit__(None, None, None)


async def test_a_node_may_be_stopped_before_it_has_joined(
    server: Server, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    async with running(server, names, "a", recorder) as old:
        await old.until_ready()
        reads = HeldReads(names, monkeypatch)
        starting = asyncio.ensure_future(running(server, names, "b", recorder).__aenter__())
        await reads.held.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert old.context.members.live == ("a",)


async def test_a_configuration_that_was_replaced_long_ago_is_not_used(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that still reads knows old configurations, so its actors ask the leader."""
    await js.publish(names.receiver(READ), CONFIGURATION.replace(b"}", b', "paused": true}'))
    reads, recorder = HeldReads(names, monkeypatch), Recorder()
    for receiver in (READ, UNREAD):
        await publish(js, names, receiver)
    async with running(server, names, "a", recorder) as node:
        await until(lambda: bool((host := node.host_of(READ)) and READ in host.actors))
        host = node.host_of(READ)
        assert host is not None
        await until(lambda: host.actors[READ].live.policy is not None)
        policy = host.actors[READ].live.policy
        assert policy is not None
        assert policy.paused
        reads.release()
        await node.until_ready()
        await until(lambda: recorder.receivers == [UNREAD])
        assert host.actors[READ].live.policy is node.context.configurations.policy(READ)


@pytest.mark.parametrize("version", [1, 99])
async def test_a_node_is_not_alone_by_a_replica_that_lags_or_with_a_newer_version(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    other = {"v": version, "node": "other", "started_at": 0.0, "version": "9", "heartbeat": 5, "ttl_s": 60.0}
    await js.publish(names.node("other"), msgspec.json.encode(other))
    reads, recorder = HeldReads(names, monkeypatch), Recorder()
    read = JetStream.read

    async def lagging(self: JetStream, stream: str, *rest: Any) -> Any:
        page = await read(self, stream, *rest)
        return replace(page, messages=[]) if stream == names.nodes else page

    monkeypatch.setattr(JetStream, "read", lagging)
    starting = asyncio.ensure_future(running(server, names, "b", recorder).__aenter__())
    await reads.held.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(starting), 0.2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
