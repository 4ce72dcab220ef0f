"""The metrics of a running node: names as its settings say, and the age of its snapshots."""

from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from angarium.node.app import joined_node
from angarium.node.metrics.node_metrics import NodeMetrics
from angarium.node.node import Node
from streams.clock import SystemTime
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.node.senders import NobodySends
from tests.contract.support.shards import RECEIVER, SHARD
from tests.support.installation import install, node_settings, publish
from tests.support.waiting import until


async def test_snapshots_that_cannot_be_written_grow_older(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.01)
    names = await install(js, prefix)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: SHARD in node.owned)
        shard = node.owned[SHARD]
        before = shard.claim.at
        await until(lambda: shard.snapshots.current_at > before)
        tries = AsyncMock(side_effect=Unavailable("no leader"))
        with monkeypatch.context() as broken:
            broken.setattr("streams.journal.snapshots.Snapshots.write", tries)
            begun = tries.await_count
            shard.journal.flush_soon()
            await until(lambda: tries.await_count > begun + 1)
            stopped_at = shard.snapshots.current_at
            begun = tries.await_count
            await until(lambda: tries.await_count > begun + 2)
            assert shard.snapshots.current_at == stopped_at
        await until(lambda: shard.snapshots.current_at > stopped_at)


@pytest.mark.parametrize(("most", "expected"), [(0, {"_other"}), (1, {RECEIVER, "_other"})])
async def test_a_node_names_as_many_receivers_as_its_settings_say(
    wire: Wire, js: JetStream, prefix: str, most: int, expected: set[str]
) -> None:
    names = await install(js, prefix)
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example", "paused": true}')
    settings = replace(node_settings(names), metrics_names=most)

    def told(node: Node) -> dict[str, float]:
        (metric,) = (each for each in NodeMetrics(node).collect() if each.name == "angarium_backlog_events")
        return {each.labels["receiver"]: each.value for each in metric.samples}

    async with joined_node(wire, settings, SystemTime(), NobodySends()) as node:
        await publish(js, names, RECEIVER)
        await until(lambda: sum(told(node).values()) == 1)
        assert told(node).keys() == expected
