"""The scenario of the demo: NATS, a node, a producer, a kill -9 and a restart, a redrive.

It decides nothing: it acts, reports each step, and leaves the records to the verdict.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from pathlib import Path

import msgspec

from actors.errors import Unavailable
from angarium.access import installation, open_jetstream
from angarium.demo import sample_payloads
from angarium.demo.receivers import TENANT, DemoReceiver
from angarium.demo.records import PublishedEvent
from angarium.development.local_node import LocalNode
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.setup import setup
from streams.nats.answers import Stored
from streams.producer import Producer, producer
from streams.server.embedded import EmbeddedServer

NODE_TTL_S = 2
"""Silence after which, and half a second, a node counts as dead."""
EVENT_COUNT = 320
PUBLISHED_OVER_S = 8.0
NODE_DEAD_FOR_S = 5.0
DEMO_TIMEOUT_S = 45.0
"""Time limit of the demo; events that have not arrived in time count as lost."""
PROGRESS_POLL_S = 0.02


class Scenario:
    """One run. `show` gets what happens, as sentences; `node` is the state of the node in a word."""

    def __init__(
        self, directory: Path, receivers: Sequence[DemoReceiver], show: Callable[[float, str], None]
    ) -> None:
        self.receivers = receivers
        self.node = "not started"
        self._directory = directory
        self._show = show
        self._started_at = time.monotonic()
        self._half = asyncio.Event()
        self._url = ""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_at

    @property
    def published(self) -> int:
        return sum(len(receiver.record.published) for receiver in self.receivers)

    async def play(self) -> None:
        """Play everything, from the start of NATS to the last answer. Raises what makes that impossible."""
        async with AsyncExitStack() as stack:
            for receiver in self.receivers:
                stack.callback(receiver.close)
            server = await stack.enter_async_context(EmbeddedServer(self._directory / "nats", port=0))
            self._say(f"nats-server runs on {server.url}")
            self._url = server.url
            await self._set_up(server.url)
            node = LocalNode(self._directory, {"nats": [server.url], "ttl_s": NODE_TTL_S})
            stack.push_async_callback(node.stop)
            await node.start()
            await node.until_ready()
            self._node_is("running", "a node runs and owns all shards")
            client = await stack.enter_async_context(producer(server.url))
            for receiver in self.receivers:
                receiver.record.began_at = time.monotonic()
            await self._act(client, node)
            await self._all_settled(node)
            await self._say_paces(node)
            await node.stop()
            self._node_is("stopped", "the node has stopped cleanly")

    def _say(self, what: str) -> None:
        self._show(self.elapsed_s, what)

    def _node_is(self, state: str, what: str) -> None:
        self.node = state
        self._say(what)

    async def _set_up(self, url: str) -> None:
        """Streams, buckets, and the receivers' configurations, stored as the commands would store them."""
        settings = Settings(nats=(url,))
        async with open_jetstream(settings) as js:
            installed = installation(settings)
            await setup(js, installed)
            store = StoredConfigurations(js, installed.names)
            for receiver in self.receivers:
                if not receiver.role.late:
                    await receiver.open()
                answer = await store.put(receiver.id, msgspec.json.encode(receiver.config))
                if not isinstance(answer, Stored):
                    raise Unavailable(f"NATS did not take the configuration of {receiver.id}: {answer}")
        self._say(f"{len(self.receivers)} receivers are configured; one of them does not listen yet")

    async def _act(self, client: Producer, node: LocalNode) -> None:
        """Publish, kill and restart the node, and start the dead receiver, all at once; then redrive."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish(client))
            group.create_task(self._crash(node))
            group.create_task(self._rise())
        for receiver in self.receivers:
            if receiver.role.rejected:
                await self._redrive(receiver, node)

    async def _publish(self, client: Producer) -> None:
        """Publish to all who subscribe, evenly over `PUBLISHED_OVER_S`."""
        samples = cycle(sample_payloads.load())
        started_at = time.monotonic()
        self._say(f"{EVENT_COUNT} events are being published to {TENANT}, by nats-py")
        for number in range(1, EVENT_COUNT + 1):
            await asyncio.sleep(started_at + number * PUBLISHED_OVER_S / EVENT_COUNT - time.monotonic())
            sample = next(samples)
            event = PublishedEvent(str(uuid.uuid4()), hashlib.sha256(sample.body).digest(), sample.type)
            for receiver in self.receivers:
                if receiver.role.wants(sample.type):
                    receiver.record.published.append(event)
            await client.publish(f"angarium.events.{TENANT}.{sample.type}", sample.body, event_id=event.id)
            if number == EVENT_COUNT // 2:
                self._half.set()
        self._say(f"everything is published: {self.published} deliveries to make")

    async def _crash(self, node: LocalNode) -> None:
        """Kill the node with -9 half-way, and start a new one, which waits for the old one's lease."""
        await self._half.wait()
        await node.kill()
        self._node_is("killed", "the node was killed with -9")
        await node.start()
        await node.until_ready()
        self._node_is("running", "a new process has taken over all shards")

    async def _rise(self) -> None:
        await asyncio.sleep(NODE_DEAD_FOR_S)
        for receiver in self.receivers:
            if receiver.role.late:
                await receiver.open()
                self._say(f"{receiver.role.name} listens now")

    async def _redrive(self, receiver: DemoReceiver, node: LocalNode) -> None:
        """Repair the rejecting receiver once everything it rejects is a dead letter, and redrive that."""
        wanted = sum(each.type == receiver.role.rejected for each in receiver.record.published)
        dead = f"angarium.dead.{receiver.id}"
        settings = Settings(nats=(self._url,))
        async with open_jetstream(settings) as js:
            stream = installation(settings).names.dead_letters
            with suppress(TimeoutError):
                async with asyncio.timeout(DEMO_TIMEOUT_S - self.elapsed_s):
                    while (await js.subjects(stream, dead)).get(dead, 0) < wanted:
                        node.check()
                        await asyncio.sleep(PROGRESS_POLL_S)
        receiver.mended = True
        self._say(f"{receiver.role.name} is repaired: angarium dead redrive {receiver.id}")
        self._say(await node.command("dead", "redrive", receiver.id))

    async def _say_paces(self, node: LocalNode) -> None:
        """Say which pace was learnt of the receivers with a hidden limit, as `inspect` shows it."""
        for receiver in self.receivers:
            if receiver.role.hidden_limit:
                shown = await node.command("inspect", receiver.id, "--json")
                rate = (msgspec.json.decode(shown)["pace"] or {}).get("effective_limit")
                found = "none" if rate is None else f"{rate:.3g} a second"
                self._say(f"angarium inspect {receiver.id}: learnt rate {found}")

    async def _all_settled(self, node: LocalNode) -> None:
        """Return when everything was accepted, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DEMO_TIMEOUT_S - self.elapsed_s):
                while not all(receiver.record.is_complete for receiver in self.receivers):
                    node.check()
                    await asyncio.sleep(PROGRESS_POLL_S)
                self._say("everything has arrived")
                return
        self._say("time is up")
