"""The age of a shard's snapshots, as metrics tell it: it grows while none can be written."""

from unittest.mock import AsyncMock

import pytest

from actors.errors import Unavailable
from angarium.node.app import member
from streams.clock import SystemTime
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.node.senders import NobodySends
from tests.contract.support.shards import SHARD
from tests.support.installation import install, node_settings
from tests.support.waiting import until


async def test_snapshots_that_cannot_be_written_grow_older(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.01)
    names = await install(js, prefix)
    async with member(wire, node_settings(names), SystemTime(), NobodySends()) as node:
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
