"""The wall between tenants, along everything that the API says it has: no operation can be left out of it."""

import re
from typing import Any

import httpx

from angarium.api.problems import HIDDEN
from tests.edge.api.conftest import Api, problem

VALUES = {"tenant": "acme", "name": "billing", "type": "order.created"}


async def operations(api: Api) -> list[tuple[str, str, dict[str, Any]]]:
    """Each operation of the description: its method, a path of acme's, and what is said of it."""
    async with httpx.AsyncClient(base_url=api.url) as client:
        described = (await client.get("/openapi.json")).json()
    assert described["openapi"].startswith("3.1")
    found = []
    for path, item in described["paths"].items():
        filled = re.sub(r"{(\w+)}", lambda name: VALUES.get(name[1], "7"), path)
        found += [(method.upper(), filled, operation) for method, operation in item.items()]
    return found


async def test_another_tenants_token_finds_nothing_anywhere(api: Api) -> None:
    await api.receiver("acme.billing")
    every = await operations(api)
    gated = [(method, path) for method, path, _ in every if path.startswith("/v1/")]
    assert len(gated) >= 4
    async with (
        await api.client("other", ["publish", "read", "manage"]) as stranger,
        httpx.AsyncClient(base_url=api.url) as nobody,
    ):
        for method, path in gated:
            if "/tenants/" in path:
                detail = problem(await stranger.request(method, path, json={}), 404, "not-found")
                assert detail == HIDDEN, (method, path)
            problem(await nobody.request(method, path, json={}), 401, "unauthorized")
    assert await api.stored(api.names.events) == await api.stored(api.names.deliveries) == []


async def test_an_operation_is_called_like_what_it_does(api: Api) -> None:
    ids = [operation["operationId"] for _, _, operation in await operations(api)]
    assert {"publishEvent", "getReceiver", "redriveDeadLetters", "healthz"} <= {*ids}
    assert len(ids) == len({*ids})


async def test_each_operation_shows_an_example_of_each_answer_and_body(api: Api) -> None:
    for method, path, operation in await operations(api):
        assert operation["summary"], (method, path)
        for status, answer in operation["responses"].items():
            shown = [media.get("examples") for media in answer.get("content", {}).values()]
            assert all(shown), (method, path, status)
        body = operation.get("requestBody", {"content": {}})
        assert all(media["examples"] for media in body["content"].values()), (method, path)


async def test_what_needs_no_token_tells_nothing(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as client:
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            assert "server" not in answer.headers
        origin = {"origin": "https://evil.example.com"}
        assert "access-control-allow-origin" not in (await client.get("/healthz", headers=origin)).headers
        problem(await client.get("/nothing"), 404, "not-found")
        problem(await client.delete("/healthz"), 405, "method-not-allowed")
