"""Very many parked receivers: stored, found again, and loaded while other work continues."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct, field

from actors.ids import stable_hash
from actors.machine.outcome import Answered, Outcome
from actors.machine.state import State
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import COLLECT_AFTER, joined_node
from angarium.node.node import Node
from angarium.settings import Settings
from streams.clock import SystemTime
from streams.installation import topology
from streams.installation.partitions import shard_of
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim, claim, release
from streams.journal.parked_receivers import ParkedReceivers
from streams.journal.recovery import Recovery, recover
from streams.journal.snapshots import Snapshots
from streams.nats.answers import Stored
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.server.embedded import EmbeddedServer
from tests.contract.support.shards import own
from tests.support.installation import install
from tests.support.waiting import until

URL = "https://example.com/a"
AT_ONCE = 500
READY_S = 20.0
DUE = 500
"""Receivers that are due at once; the others wake in ten minutes at the earliest."""


async def test_more_than_one_message_holds_are_stored_and_found(js: JetStream, prefix: str) -> None:
    """13,000 with the longest names: 2 MB, where a message takes 1 MiB."""
    names = await install(js, prefix)
    claimed = await own(js, names, "a")
    listed = ParkedReceivers()
    listed.update(State(receiver=f"t{n:063}.{n:064}", parked=True) for n in range(13_000))
    checkpoint = Checkpoint(
        journal_position=claimed.journal_position, parked_parts=listed.as_of(claimed.journal_position)
    )
    assert await Snapshots(js, names, claimed).write([], [], claimed.journal_position, checkpoint, listed)
    recovery = await recover(js, names, await own(js, names, "b"), "b")
    assert isinstance(recovery, Recovery)
    assert len(recovery.parked) == 13_000
    assert recovery.parked == listed.receivers()


class Sender:
    """Every receiver takes everything. `sent` says when each got its last event."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self.sent[attempt.receiver] = time.monotonic()
        return Answered(status=200, latency_ms=1.0)


class ManyParked(Struct):
    """An installation whose last owner left many parked receivers behind."""

    url: str
    js: JetStream
    names: Names
    shards: int
    receivers: dict[int, list[str]] = field(default_factory=dict)

    def draw(self, count: int) -> None:
        chance = random.Random(1)
        share = count // self.shards
        self.receivers = {shard: [] for shard in range(self.shards)}
        while any(len(each) < share for each in self.receivers.values()):
            tenant, name = f"t{chance.randrange(1000)}", f"receiver-{chance.getrandbits(48):012x}"
            of = self.receivers[shard_of(tenant, name, self.shards)]
            if len(of) < share:
                of.append(f"{tenant}.{name}")

    async def park(self) -> None:
        body = msgspec.json.encode({"url": URL})
        everybody = [receiver for each in self.receivers.values() for receiver in each]
        for start in range(0, len(everybody), AT_ONCE):
            some = everybody[start : start + AT_ONCE]
            await asyncio.gather(*(self.js.publish(self.names.receiver(each), body) for each in some))
        created = {name: (await stream_info(self.js, name)).created for name in self.names.streams}
        for shard, receivers in self.receivers.items():
            claimed = await claim(
                self.js, self.names, shard, "old", SystemTime(), may_claim=lambda owner: True
            )
            assert isinstance(claimed, Claim)
            states = [self._state(each, number) for number, each in enumerate(receivers)]
            listed, at = ParkedReceivers(), claimed.journal_position
            listed.update(states)
            checkpoint = Checkpoint(journal_position=at, parked_parts=listed.as_of(at), created=created)
            assert await Snapshots(self.js, self.names, claimed).write(states, [], at, checkpoint, listed)
            assert await release(self.js, self.names, claimed, "old")

    def _state(self, receiver: str, number: int) -> State:
        """The last ones of each shard are due."""
        share = len(self.receivers[0])
        due = number >= share - DUE // self.shards
        backoff_until = 0.0 if due else time.time() + 600 + number
        return State(
            receiver=receiver, parked=True, opened=True, target=stable_hash(URL), backoff_until=backoff_until
        )

    async def publish(self, receivers: list[str]) -> None:
        for receiver in receivers:
            assert isinstance(await self.js.publish(self.names.publish_to(receiver), b"{}"), Stored)


@pytest.fixture
def collecting_as_a_node() -> Iterator[None]:
    """The garbage collector looks as seldom as it does in a node: else it takes seconds."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
async def many_parked(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ManyParked]:
    shards, count = request.param
    async with EmbeddedServer(tmp_path, port=0) as server:
        wire = await connect(ConnectOptions(servers=(server.url,), name="test"))
        js = JetStream(wire)
        await js.start()
        await setup(js, topology.Installation(shards=shards, max_bytes=1 << 30))
        many_parked = ManyParked(server.url, js, Names(), shards)
        many_parked.draw(count)
        await many_parked.park()
        yield many_parked
        await js.stop()
        await wire.close()


def away(node: Node) -> int:
    return sum(len(shard.host.residents.not_loaded) for shard in node.owned.values())


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("collecting_as_a_node")
@pytest.mark.parametrize("many_parked", [(64, 100_000), (1, 100_000)], indirect=True)
async def test_a_takeover_keeps_its_lease_and_continues_to_deliver(
    many_parked: ManyParked, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING)
    sender, wire = Sender(), await connect(ConnectOptions(servers=(many_parked.url,), name="node"))
    due = [each[-1] for each in many_parked.receivers.values()][:20]
    late = [
        each[-DUE // many_parked.shards - n] for each in many_parked.receivers.values() for n in range(1, 21)
    ][-20:]
    await many_parked.publish(due)
    settings = Settings(node="new", shards=many_parked.shards, drain_s=1.0)
    async with joined_node(wire, settings, SystemTime(), sender) as node:
        began_at = time.monotonic()
        async with asyncio.timeout(READY_S):
            await node.until_ready()
        ready_s = time.monotonic() - began_at
        async with asyncio.timeout(READY_S - ready_s):
            await until(lambda: all(each in sender.sent for each in due))
        due_s, left = time.monotonic() - began_at, away(node)
        assert left > 0
        hosts = [node.host_of(each) for each in late]
        assert all(host and each in host.residents.not_loaded for host, each in zip(hosts, late, strict=True))
        await many_parked.publish(late)
        published_at = time.monotonic()
        waiting = list(zip(hosts, late, strict=True))
        await until(lambda: not any(host and each in host.residents.not_loaded for host, each in waiting))
        late_s = time.monotonic() - published_at
        assert away(node) > 0
        while away(node):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        back_s = time.monotonic() - began_at
        lapses = [each.message for each in caplog.records if each.message.startswith(("lease", "shard.e"))]
        assert not lapses
        assert node.context.members.lease.is_valid()
    with capsys.disabled():
        print(f"\n{many_parked.shards} shards: ready after {ready_s:.1f} s, all back after {back_s:.0f} s")
        print(f"the due ones were served after {due_s:.1f} s, with {left} still away")
        print(f"{len(late)} who got an event were back within {late_s:.2f} s")
    await wire.close()
