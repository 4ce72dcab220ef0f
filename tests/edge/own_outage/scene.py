"""A node in a network of its own, which is taken away and comes back; run by `test_own_outage.py`.

The receivers have an address each; nats-server is at the loopback, which stays. `unreachable`: the addresses
are gone, and no route is left. `silent`: packets to them go into a cable without an end. With `names` the
receivers have names; their name server is at the loopback, too.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import run
from typing import Any
from unittest.mock import patch

import msgspec

from angarium.delivery.connections.resolver import DnsResolver
from angarium.delivery.own_outage import outage_detector
from angarium.node import app
from angarium.node.node import Node
from angarium.settings import Settings
from streams.fleet.live_members import live_members
from streams.installation.setup import setup
from streams.installation.topology import Installation, Names
from streams.journal.envelope import decode_flush
from streams.nats.answers import Stored
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer
from tests.contract.transport.addresses.dns import NameServer, Records
from tests.support.fleet import sink as sinks
from tests.support.fleet.sink import Sink
from tests.support.waiting import until_true

COUNT = 24
RECEIVERS = [f"t{number % 4}.r{number}" for number in range(COUNT)]
SHARDS = 4
PATIENCE_S = 60.0
LOOK_S = 0.02
names = Names()


def ip(*command: str) -> None:
    run(("ip", *command), check=True)


def address(number: int) -> str:
    return f"10.9.{number}.1"


def connect_network() -> None:
    for number in range(COUNT):
        ip("address", "add", f"{address(number)}/32", "dev", "lo")


def disconnect(manner: str) -> None:
    for number in range(COUNT):
        ip("address", "delete", f"{address(number)}/32", "dev", "lo")
    if manner == "silent":
        ip("route", "add", "10.9.0.0/16", "via", "10.8.0.2")


def reconnect(manner: str) -> None:
    if manner == "silent":
        ip("route", "delete", "10.9.0.0/16")
    connect_network()


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110  # What is waited for has no event.
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"it never came about that {what}") from None


class Scene:
    """The installation: its connection, its node, its receivers."""

    def __init__(self, js: JetStream, node: Node, sink: Sink) -> None:
        self.js = js
        self.node = node
        self.sink = sink
        self.published = 0

    @property
    def outage(self) -> outage_detector.OutageDetector:
        found = self.node.context.outage
        assert found is not None
        return found

    @property
    def ended(self) -> int:
        """The attempts that are over."""
        return sum(self.node.context.totals.actors.attempts.values())

    async def publish(self) -> None:
        """An event to each receiver."""
        self.published += 1
        for receiver in RECEIVERS:
            assert isinstance(await self.js.publish(names.publish_to(receiver), b"{}"), Stored)

    async def is_seen(self) -> bool:
        """True if the node's heartbeat says that it has an outage."""
        (member,) = (await live_members(self.js, names))[0]
        return member.outage

    async def delivered(self) -> None:
        """Return when each receiver has each event.

        What was sent into the silence may come, too: the kernel repeats it once there is a network again.
        """

        def all_delivered() -> bool:
            return all(
                {arrival.sequence for arrival in self.sink.arrivals[each]} == {*range(1, self.published + 1)}
                for each in RECEIVERS
            )

        await until(all_delivered, "each receiver has each event")

    async def failed(self) -> list[Any]:
        """The failures that are recorded."""
        found = list[Any]()
        after = 1
        while page := (await self.js.read(names.journal, "angarium.journal.*", after)).messages:
            for message in page:
                flush = decode_flush(message.data, "")
                found += [each for each in flush.facts if type(each).__name__ == "AttemptFailed"]
            after = page[-1].position + 1
        return found


@asynccontextmanager
async def scene(named: bool) -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory() as directory, patch.object(sinks, "HOST", "0.0.0.0"):
        async with EmbeddedServer(Path(directory), port=0) as server, Sink() as sink, NameServer() as dns:
            wire = await connect(ConnectOptions(servers=(server.url,), name="test"))
            js = JetStream(wire)
            await js.start()
            await setup(js, Installation(shards=SHARDS))
            for number, receiver in enumerate(RECEIVERS):
                host = f"hook.zone{number}.example" if named else address(number)
                dns.names[host] = Records(address(number), ttl=0)
                raw = {
                    "url": f"http://{host}:{sink.port}/{receiver}", "timeout_s": 3.0,
                    "retry": {"base_s": 0.1, "cap_s": 1.0, "max_attempts": 3},
                }  # fmt: skip
                stored = await js.publish(names.receiver(receiver), msgspec.json.encode(raw))
                assert isinstance(stored, Stored)
            settings = Settings(
                nats=(server.url,),
                shards=SHARDS,
                node="one",
                allow_http=True,
                allow_networks=("10.9.0.0/16",),
            )
            with patch.object(app, "DnsResolver", lambda: DnsResolver([dns.address])):
                async with app.open_node(settings) as node:
                    await node.until_ready()
                    yield Scene(js, node, sink)
            await js.stop()
            await wire.close()


async def main(manner: str, named: bool) -> None:
    connect_network()
    async with scene(named) as stage:
        await stage.publish()
        await stage.delivered()
        disconnect(manner)
        await stage.publish()
        await until(lambda: stage.outage.since is not None, "the outage is noticed")
        await stage.publish()
        attempts = stage.ended
        probed = stage.outage.probed
        await until_true(stage.is_seen)
        await until(lambda: stage.outage.probed > probed + COUNT, "hosts are probed in turn")
        begun = stage.ended - attempts
        assert begun <= COUNT, f"{begun} attempts ended during the outage"
        reconnect(manner)
        await until(lambda: stage.outage.since is None, "the outage is over")
        await stage.delivered()
        failed = await stage.failed()
        assert failed
        assert all(each.ours for each in failed), [each for each in failed if not each.ours]
        print("ours", len(failed) > 0, "begun", stage.outage.outage_count)


if __name__ == "__main__":
    ip("link", "set", "lo", "up")
    ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for device in ("v0", "v1"):
        ip("link", "set", device, "up")
    ip("address", "add", "10.8.0.1/24", "dev", "v0")
    ip("neighbour", "add", "10.8.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v0")
    asyncio.run(main(sys.argv[1], "names" in sys.argv[2:]))
