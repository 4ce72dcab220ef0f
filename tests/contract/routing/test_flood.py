"""Floods: what does not fit into memory is read from the stream, and other tenants are not delayed."""

import asyncio
import itertools

import pytest

from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress
from streams.nats.jetstream import JetStream
from streams.routing import ahead_reader, router, tenants
from tests.contract.support.faults import after
from tests.contract.support.routers import (
    PARTITION,
    OpenOwner,
    announce,
    announce_many,
    has_stored,
    settled,
    stored,
    subscribe,
)
from tests.support.installation import SHARDS
from tests.support.waiting import until

A = "acme.a"
NEIGHBOUR = next(name for n in itertools.count() if partition_of(name := f"t{n}", SHARDS) == PARTITION)
COUNT = 30
MANY = 1000
LARGE = b"x" * 10_000


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "EVENTS_MAX", 4)


async def at_once() -> None:
    """Delays no copy."""


async def test_others_are_routed_while_a_flood_waits(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.b")
    owner = await open_owner()
    flood_may_go = asyncio.Event()
    owner.js.faults[names.publish_to(A)].append(after(flood_may_go.wait))
    bodies = await announce_many(js, names, COUNT)
    last = await announce(js, names, b"other", tenant=NEIGHBOUR)
    await has_stored(js, names, f"{NEIGHBOUR}.b", [b"other"])
    await until(lambda: owner.record.routing == RoutingProgress(routed=last, parked_tenants={"acme": 1}))
    assert await stored(js, names, A) == []
    flood_may_go.set()
    await has_stored(js, names, A, bodies)
    await until(lambda: owner.record.routing.parked_tenants == {})
    await settled(js, names, last)


async def test_others_are_read_ahead_of_a_flood(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "PULL_BATCH", 2)
    monkeypatch.setattr(ahead_reader, "BEHIND_MIN", 4)
    others = [b"first", b"second", b"third"]
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.b")
    await announce_many(js, names, MANY)
    for body in others:
        last = await announce(js, names, body, tenant=NEIGHBOUR)
    owner = await open_owner()
    await has_stored(js, names, f"{NEIGHBOUR}.b", others)
    assert owner.router.progress.routed < MANY
    assert owner.router.mark.position == last
    await until(lambda: owner.record.routing.routed == last)
    assert owner.published(f"{NEIGHBOUR}.b") == others


async def test_another_router_continues_a_flood(js: JetStream, names: Names, open_owner: OpenOwner) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    for action in [at_once] * 3 + [asyncio.Event().wait]:
        owner.js.faults[names.publish_to(A)].append(after(action))
    bodies = await announce_many(js, names, COUNT)
    await until(lambda: owner.record.routing == RoutingProgress(routed=COUNT, parked_tenants={"acme": 4}))
    await owner.own_again()
    await has_stored(js, names, A, bodies)
    await until(lambda: owner.record.routing.parked_tenants == {})


async def test_a_flood_is_read_on_only_while_the_events_of_all_tenants_leave_memory_for_it(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of another tenant fills the memory; when it is routed, the flood is read on at once."""
    monkeypatch.setattr(router, "EVENT_BYTES_MAX", len(LARGE))
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.b")
    owner = await open_owner()
    before = await announce_many(js, names, COUNT)  # What was in memory must not count any more.
    await has_stored(js, names, A, before)
    await until(lambda: owner.record.routing == RoutingProgress(routed=COUNT))
    flood_may_go, large_may_go = asyncio.Event(), asyncio.Event()
    owner.js.faults[names.publish_to(A)].append(after(flood_may_go.wait))
    owner.js.faults[names.publish_to(f"{NEIGHBOUR}.b")].append(after(large_may_go.wait))
    bodies = await announce_many(js, names, COUNT)
    await until(lambda: owner.record.routing.routed == 2 * COUNT)
    await announce(js, names, LARGE, tenant=NEIGHBOUR)
    await until(lambda: owner.published(f"{NEIGHBOUR}.b") == [LARGE])
    flood_may_go.set()
    in_memory = bodies[: tenants.EVENTS_MAX]
    await has_stored(js, names, A, before + in_memory)
    for _ in range(50):
        assert await stored(js, names, A) == before + in_memory
    large_may_go.set()
    await has_stored(js, names, A, before + bodies)
