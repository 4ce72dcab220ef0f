"""Erasing over HTTP: recorded at once, in the name of the token; a node carries it out."""

import pytest

from angarium.api.admission import unfinished_erasures
from angarium.api.routes import stored_events
from streams.erasing.erasures import Erasures, finished
from tests.edge.api.conftest import Api, problem

EVENT = "/v1/tenants/acme/events/order-17"


async def test_a_request_is_recorded_with_who_made_it(api: Api) -> None:
    async with await api.client("acme", ["manage", "read"]) as client:
        problem(await client.get(f"{EVENT}/erasure"), 404, "not-found")
        asked = await client.delete(EVENT)
        assert asked.status_code == 202
        assert asked.json()["done"] is False
        assert asked.json()["requested_by"].startswith("token ")
        # Who asks again joins it.
        assert (await client.delete(EVENT)).json() == asked.json()
        assert (await client.get(f"{EVENT}/erasure")).json() == asked.json()

        requests = Erasures(api.js, api.names)
        async for request, revision in requests.pending():
            await requests.store_progress(finished(request, request.at + 1, 1), revision)
        done = (await client.get(f"{EVENT}/erasure")).json()
        assert (done["done"], done["waits_for"]) == (True, None)
        assert [each async for each in requests.pending()] == []
        # A later event may have the same id.
        assert (await client.delete(EVENT)).json()["done"] is False
        problem(await client.delete("/v1/tenants/acme/events/a.b"), 422, "invalid")


async def test_only_who_may_manage_may_erase(api: Api) -> None:
    async with (
        await api.client("acme", ["read", "publish"]) as reader,
        await api.client("other", ["manage"]) as stranger,
    ):
        for client in (reader, stranger):
            problem(await client.delete(EVENT), 404, "not-found")
            problem(await client.get(f"{EVENT}/erasure"), 404, "not-found")


async def test_a_tenant_has_a_rate_of_its_own(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_events, "REQUESTS_PER_S", 0.001)
    async with (
        await api.client("acme", ["manage"]) as flooding,
        await api.client("other", ["manage"]) as other,
    ):
        assert (await flooding.delete(EVENT)).status_code == 202
        refused = await flooding.delete(EVENT)
        problem(refused, 429, "rate")
        assert 900 < int(refused.headers["retry-after"]) <= 1000
        assert (await other.delete("/v1/tenants/other/events/e1")).status_code == 202


async def test_a_tenant_with_many_unfinished_ones_has_to_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_erasures, "UNFINISHED_MAX", 2)
    events = "/v1/tenants/acme/events"
    async with await api.client("acme", ["manage"]) as many, await api.client("other", ["manage"]) as other:
        for event in "e1", "e2", "e1":
            assert (await many.delete(f"{events}/{event}")).status_code == 202
        refused = await many.delete(f"{events}/e3")
        problem(refused, 429, "rate")
        assert int(refused.headers["retry-after"]) > 1
        assert (await other.delete("/v1/tenants/other/events/e3")).status_code == 202

        requests = Erasures(api.js, api.names)
        async for request, revision in requests.pending():
            if request.event == "e2":
                await requests.store_progress(finished(request, request.at + 1, 1), revision)
        assert (await many.delete(f"{events}/e3")).status_code == 202
        problem(await many.delete(f"{events}/e4"), 429, "rate")
