"""Tenants above their rate may wait for hours; one without a rate does not wait for them."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count, islice

import pytest

from actors.policy import Rate
from actors.tenant_settings import SettingsByTenant, TenantSettings
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.routing import router
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
    """A router with room for ten large events; its clock goes on."""
    monkeypatch.setattr(router, "OPEN_BYTES_MAX", 10 * len(LARGE))
    owner = await open_owner(by_tenant=SettingsByTenant(dict.fromkeys(LIMITED, SLOW)))

    async def turn() -> None:
        while True:
            await asyncio.sleep(TURN_S)
            owner.clocks.turn(TURN_S)

    turning = asyncio.ensure_future(turn())
    yield owner
    turning.cancel()


async def test_tenants_that_wait_for_tokens_do_not_fill_the_memory_of_their_partition(
    js: JetStream, names: Names, owner: Owner
) -> None:
    await subscribe(js, names, f"{QUICK}.b")
    for _ in range(3):
        for each in LIMITED:
            await announce(js, names, LARGE, tenant=each)
    await until(lambda: set(owner.router.progress.parked_tenants) == set(LIMITED))
    bodies = [b"%d" % number for number in range(EVENTS)]
    for body in bodies:
        await announce(js, names, body, tenant=QUICK)
    await has_stored(js, names, f"{QUICK}.b", bodies)
    # One event of each is routed by the token that a new owner has.
    assert set(owner.router.progress.parked_tenants) == set(LIMITED)
