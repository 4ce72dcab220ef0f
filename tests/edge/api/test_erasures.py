"""Erasing over HTTP: on record at once, in the name of the token; a node carries it out."""

from streams.erasing.erasures import Erasures, finished
from tests.edge.api.conftest import Api, problem

EVENT = "/v1/tenants/acme/events/order-17"


async def test_a_request_is_on_record_with_who_made_it(api: Api) -> None:
    async with await api.client("acme", ["manage", "read"]) as client:
        problem(await client.get(f"{EVENT}/erasure"), 404, "not-found")
        asked = await client.delete(EVENT)
        assert asked.status_code == 202
        assert asked.json()["done"] is False
        assert asked.json()["requested_by"].startswith("token ")
        # Who asks again joins it.
        assert (await client.delete(EVENT)).json() == asked.json()
        assert (await client.get(f"{EVENT}/erasure")).json() == asked.json()

        erasures = Erasures(api.js, api.names)
        async for request, revision in erasures.pending():
            await erasures.note(finished(request, request.at + 1, 1), revision)
        done = (await client.get(f"{EVENT}/erasure")).json()
        assert (done["done"], done["waits_for"]) == (True, None)
        assert [each async for each in erasures.pending()] == []
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
