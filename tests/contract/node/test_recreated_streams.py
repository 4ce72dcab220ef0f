"""A node whose streams are recreated or strange, which its shards notice only while they run."""

import msgspec
import pytest

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import joined_node
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.observation.installation_status import recreated
from tests.support.installation import SHARDS, install, node_settings, publish, shard
from tests.support.waiting import until

RECEIVER = "acme.billing"
SHARD = shard(RECEIVER)


class JumpingTime(SystemTime):
    """A clock whose wall time is off by some seconds."""

    off_s = 0.0

    def wall(self) -> float:
        return super().wall() + self.off_s


class Sends:
    """Every attempt succeeds at once."""

    def __init__(self) -> None:
        self.sequences: list[int | None] = []

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self.sequences += [sequence for _, sequence in attempt.numbered]
        return Answered(status=200, latency_ms=1.0)


@pytest.fixture
def sender() -> Sends:
    return Sends()


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """An installation with one receiver."""
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.02)
    names = await install(js, prefix)
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
    return names


@pytest.mark.parametrize("strange", [b'{"v": 2}', b'{"v": 1, "as_of": "\xff"}'])
async def test_a_snapshot_that_cannot_be_understood_refuses_its_shard(
    wire: Wire, js: JetStream, names: Names, sender: Sends, monkeypatch: pytest.MonkeyPatch, strange: bytes
) -> None:
    """The node does not guess a number; it delivers the event once the snapshot is correct again."""
    monkeypatch.setattr("angarium.node.node.RETRY_REFUSED_AFTER_S", 0.05)
    subject = names.actor_keys.actor(SHARD, RECEIVER)
    async with joined_node(wire, node_settings(names), SystemTime(), sender):
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1])
    snapshot = await js.last_message(names.actors, subject)
    assert snapshot is not None
    await js.publish(subject, strange)
    async with joined_node(wire, node_settings(names), SystemTime(), sender) as node:
        await until(lambda: len(node.owned) == SHARDS)
        await publish(js, names, RECEIVER)
        await until(lambda: subject in node.refused.get(SHARD, ""))
        assert sender.sequences == [1]
        await js.publish(subject, snapshot.data)
        await until(lambda: sender.sequences == [1, 2])


async def test_a_bucket_of_snapshots_that_is_deleted_delays_no_event(
    wire: Wire,
    js: JetStream,
    names: Names,
    sender: Sends,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for patience in ("snapshots.BATCH_TIMEOUT_S", "claim.RELEASE_TIMEOUT_S"):
        monkeypatch.setattr(f"streams.journal.{patience}", 0.05)
    async with joined_node(wire, node_settings(names), SystemTime(), sender):
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1])
        await js.request(f"$JS.API.STREAM.DELETE.{names.actors}", b"")
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1, 2])
        await until(lambda: caplog.messages.count("snapshot.delayed") > SHARDS)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_clock_that_jumps_by_an_hour_stops_nothing(
    wire: Wire, js: JetStream, names: Names, sender: Sends, jump_s: float
) -> None:
    """The clock jumps under the owner, and back under its successor; no delivery waits for a token."""
    time = JumpingTime()
    rate = b'{"url": "https://a.example", "rate": {"limit": 100, "per": "second"}}'
    await js.publish(names.receiver(RECEIVER), rate)
    async with joined_node(wire, node_settings(names), time, sender) as node:
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1])
        time.off_s = jump_s
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1, 2])
        assert node.context.members.lease.is_valid()
    async with joined_node(wire, node_settings(names), time, sender):
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1, 2, 3])
        time.off_s = 0.0
        await publish(js, names, RECEIVER)
        await until(lambda: sender.sequences == [1, 2, 3, 4])


async def test_streams_are_known_that_are_others_than_the_shards_know(js: JetStream, names: Names) -> None:
    info = await js.stream_info(names.deliveries)
    assert info is not None
    for created, expected in ((info.created, []), ("2026-01-31T12:00:00Z", [names.deliveries])):
        checkpoint = {"v": 1, "created": {names.deliveries: created}}
        await js.publish(names.actor_keys.checkpoint(SHARD), msgspec.json.encode(checkpoint))
        assert await recreated(js, names, SHARDS) == expected
