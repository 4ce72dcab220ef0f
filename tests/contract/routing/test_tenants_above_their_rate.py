"""Tenants above their rate may wait for hours; one without a rate does not wait for them."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count, islice

import pytest

from actors.configuration.policy import Rate
from actors.tenant_settings import SettingsByTenant, TenantSettings
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.routing import router, tenants
from tests.contract.support.routers import PARTITION, OpenOwner, Owner, announce, has_stored, subscribe
from tests.support.installation import SHARDS
from tests.support.waiting import until

TURN_S = 0.1
EVENTS = 200

_names = (f"t{number}" for number in count())
QUICK, *LIMITED = islice((each for each in _names if partition_of(each, SHARDS) == PARTITION), 10)
LARGE = b"x" * 20_000
SLOW = TenantSettings(rate=Rate(limit=1, per="hour"))


@pytest.fixture
async def owner(open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Owner]:
    """A router with room for ten large events, which asks for a few at a time; its clock goes on."""
    monkeypatch.setattr(router, "PULL_BATCH", 8)
    monkeypatch.setattr(router, "EVENT_BYTES_MAX", 10 * len(LARGE))
    owner = await open_owner(tenant_settings=SettingsByTenant(dict.fromkeys(LIMITED, SLOW)))

    async def turn() -> None:
        while True:
            await asyncio.sleep(TURN_S)
            owner.clocks.turn(TURN_S)

    turning = asyncio.ensure_future(turn())
    yield owner
    turning.cancel()


async def others_are_routed(js: JetStream, names: Names) -> None:
    """Return when all events of a tenant without a rate are routed."""
    bodies = [b"%d" % number for number in range(EVENTS)]
    for body in bodies:
        await announce(js, names, body, tenant=QUICK)
    await has_stored(js, names, f"{QUICK}.b", bodies)


async def flood(js: JetStream, names: Names) -> None:
    await subscribe(js, names, f"{QUICK}.b")
    for _ in range(3):
        for each in LIMITED:
            await announce(js, names, LARGE, tenant=each)


async def test_tenants_that_wait_for_tokens_do_not_fill_the_memory_of_their_partition(
    js: JetStream, names: Names, owner: Owner
) -> None:
    await flood(js, names)
    await until(lambda: set(owner.router.progress.parked_tenants) == set(LIMITED))
    await others_are_routed(js, names)
    # One event of each is routed by the token that a new owner has. The others' tenant may park for a moment.
    await until(lambda: set(owner.router.progress.parked_tenants) == set(LIMITED))
    assert owner.totals.events == len(LIMITED) + EVENTS


async def test_the_next_events_of_tenants_that_wait_for_tokens_do_not_fill_it_either(
    js: JetStream, names: Names, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests for events end before a tenant without a rate publishes."""
    monkeypatch.setattr(router, "EVENT_BYTES_MAX", 2 * len(LARGE))
    await flood(js, names)
    await until(lambda: set(owner.router.progress.parked_tenants) == set(LIMITED))
    await others_are_routed(js, names)
    await until(lambda: set(owner.router.progress.parked_tenants) == set(LIMITED))
    assert owner.totals.events == len(LIMITED) + EVENTS


async def test_tenants_that_wait_for_tokens_and_cannot_be_parked_hold_no_other_up(
    js: JetStream, names: Names, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are waived: the rate of the others holds."""
    monkeypatch.setattr(tenants, "PARKED_MAX", 2)
    await flood(js, names)
    await others_are_routed(js, names)
    await until(lambda: owner.totals.events == 2 + 3 * (len(LIMITED) - 2) + EVENTS)
    last = EVENTS + 3 * len(LIMITED)
    await until(lambda: owner.router.progress.routed == last)
    assert len(owner.router.progress.parked_tenants) == 2
