"""Copies of an erased event that come late: what is waited for, and what is erased once they have come."""

import asyncio
import time

import pytest

from angarium.node.housekeeping import eraser as eraser_room
from angarium.node.housekeeping.eraser import Eraser
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing.erasures import Erasure, Erasures
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.support.installation import SHARDS, publish

LATE_S = 1.0
SECRET = {"Angarium-Id": "e1"}
NAMELESS = "acme._late"
"""No receiver can have this name, so the eraser itself deletes what was sent to it."""


async def status(js: JetStream, names: Names) -> Erasure:
    found = await Erasures(js, names).get("acme", "e1")
    assert found is not None
    return found


async def test_a_node_that_gets_shard_0_back_waits_for_late_copies_from_the_beginning(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that had it meanwhile has erased a copy, and copies of that may be on their way."""
    monkeypatch.setattr(eraser_room, "LATE_COPIES_S", LATE_S)
    epoch = 1
    first, second = (
        Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, owned)
        for owned in (lambda: epoch, lambda: 2)
    )
    await publish(js, names, NAMELESS, b"secret", SECRET)
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    await first.erase_due()
    await asyncio.sleep(1.1 * LATE_S)
    await publish(js, names, NAMELESS, b"secret", SECRET | {"Nats-Msg-Id": "late"})
    await second.erase_due()
    assert (await status(js, names)).deliveries == 2
    epoch = 3
    await first.erase_due()
    assert (await status(js, names)).done_at is None
    await asyncio.sleep(1.1 * LATE_S)
    await first.erase_due()
    assert (await status(js, names)).done_at is not None


async def test_a_node_that_loses_shard_0_during_its_search_does_not_end_the_erasure(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser_room, "LATE_COPIES_S", 0.0)
    epochs = iter((1, 1, 2, 2, 2, 2))
    working = Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, lambda: next(epochs))
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    for _ in range(2):
        await working.erase_due()
    found = await status(js, names)
    assert (found.done_at, found.waits_for) == (None, "another node may have erased a copy meanwhile")
    for _ in range(2):
        await working.erase_due()
    assert (await status(js, names)).done_at is not None
