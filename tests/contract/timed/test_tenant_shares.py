"""The room for timed events: a tenant beyond its share waits, and others store theirs."""

from collections import Counter
from typing import Any

import pytest

from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.timed import tenant_shares
from tests.contract.support.jetstream_proxy import Call, JetStreamProxy
from tests.contract.support.routers import (
    PARTITION,
    TENANT,
    OpenOwner,
    announce,
    settled,
    stored,
    subscribe,
)
from tests.contract.support.servers import Server, opened
from tests.contract.timed.publishing import FAR_S, NEIGHBOUR, A, at, entries
from tests.support.waiting import until, until_true

LARGE = b"x" * 3_000
MANY = 50


async def has_entries(js: JetStream, names: Names, tenant: str, count: int) -> None:
    """Return when the tenant has that many entries."""

    async def has() -> bool:
        found = await js.read(names.later, names.timed_subjects.tenant_entries(tenant), 1)
        return len(found.messages) == count

    await until_true(has)


@pytest.fixture
async def small(js: JetStream, names: Names) -> None:
    """The stream of waiting events has room for a few."""
    info = await js.existing_stream(names.later)
    await js.stream_update(info.config | {"max_bytes": 40_000})


async def test_a_tenant_beyond_its_share_waits_and_others_do_not(
    js: JetStream, names: Names, open_owner: OpenOwner, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_shares, "SHARES_CHECK_EVERY_S", 0.0)
    await subscribe(js, names, A)
    for number in range(8):
        subject = f"{names.prefix}.later.{PARTITION}.99999.1.1.1.{TENANT}.x.{number + 1}"
        assert isinstance(await js.publish(subject, LARGE), Stored)
    owner = await open_owner()
    for _ in range(MANY):  # The router looks when the first one comes.
        await announce(js, names, b"much", headers=at(FAR_S))
    for number in range(3):
        await announce(js, names, b"little", tenant=NEIGHBOUR, headers=at(FAR_S))
        await has_entries(js, names, NEIGHBOUR, number + 1)
    assert len(await entries(js, names)) < 8 + MANY
    assert owner.broken == []
    info = await js.existing_stream(names.later)
    await js.stream_update(info.config | {"max_bytes": 1 << 20})
    await has_entries(js, names, TENANT, 8 + MANY)


async def test_a_full_stream_lets_events_wait_and_loses_none(
    js: JetStream, names: Names, open_owner: OpenOwner, small: None
) -> None:
    await subscribe(js, names, A)
    for number in range(12):
        subject = f"{names.prefix}.later.{PARTITION}.99999.1.1.1.{NEIGHBOUR}.x.{number + 1}"
        assert isinstance(await js.publish(subject, LARGE), Stored)
    await open_owner()
    await announce(js, names, LARGE * 2, headers=at(FAR_S))
    await announce(js, names, b"{}", tenant=NEIGHBOUR)
    info = await js.existing_stream(names.later)
    assert await entries(js, names) == []
    await js.stream_update(info.config | {"max_bytes": 1 << 20})
    await settled(js, names, 2)
    assert [each.data for each in await entries(js, names)] == [LARGE * 2]
    assert await stored(js, names, A) == []


class CountedJetStream(JetStreamProxy):
    """Counts the requests, by subject."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.requests = Counter[str]()

    async def around(self, method: str, call: Call, *args: Any, **options: Any) -> Any:
        if method == "request":
            self.requests[args[0]] += 1
        return await call()


async def test_the_room_is_looked_at_once_for_all_tenants(server: Server, names: Names, small: None) -> None:
    """The stream is half full, so that the share of each is estimated."""
    async with opened(server, CountedJetStream) as js:
        for number in range(8):
            subject = f"{names.prefix}.later.{PARTITION}.99999.1.1.1.{TENANT}.x.{number + 1}"
            assert isinstance(await js.publish(subject, LARGE), Stored)
        js.requests.clear()
        shares = tenant_shares.TenantShares(js, names, PARTITION, pytest.fail)
        for tenant in (TENANT, NEIGHBOUR, "t", TENANT):
            assert shares.refusal_reason(tenant) == ""
        await until(lambda: bool(shares.refusal_reason(TENANT)))
        await shares.stop()
        assert js.requests[f"$JS.API.STREAM.INFO.{names.later}"] == 1
        assert shares.refusal_reason(NEIGHBOUR) == ""
        await shares.stop()
