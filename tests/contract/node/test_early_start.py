"""A node with very many configurations: alone it delivers before it has read them all, else it waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt
from angarium.node.app import joined_node
from angarium.node.early_start import Look
from angarium.node.monitor import unready
from angarium.node.node import Node
from streams.buckets import follower
from streams.clock import SystemTime
from streams.fleet.seen_members import seen_members
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

    async def send(self, attempt: Attempt) -> Outcome:
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
async def running(
    server: Server, names: Names, node: str, recorder: Recorder, look: Look = seen_members
) -> AsyncIterator[Node]:
    wire = await server.connect(node)
    settings = replace(node_settings(names), node=node)
    try:
        async with joined_node(wire, settings, SystemTime(), recorder, patience_s=0.01, look=look) as started:
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
        assert not ready.done()
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
        looks: list[list[str]] = []

        async def looked(js: JetStream, names: Names) -> Any:
            seen = await seen_members(js, names)
            looks.append([each.node for each in seen[0]])
            return seen

        joining = running(server, names, "b", recorder, looked)
        starting = asyncio.ensure_future(joining.__aenter__())
        await until(lambda: len(looks) > 2)
        assert looks == [["a"]] * len(looks)
        assert old.context.members.live == ("a",)
        assert not starting.done()
        reads.release()
        new = await starting
        await new.until_ready()
        assert new.owned
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
