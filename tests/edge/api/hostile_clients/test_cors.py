"""Web pages of other origins: named origins may use the API, and others may not."""

import httpx
import pytest
from msgspec.structs import replace

from angarium.settings import Settings
from tests.edge.api.conftest import Api, problem

NAMED, STRANGE = "https://app.example.com", "https://evil.example.com"
EVENTS = "/v1/tenants/acme/events/order.created"
RECEIVER = "/v1/tenants/acme/receivers/billing"
PREFLIGHT = {
    "access-control-request-method": "PUT",
    "access-control-request-headers": "authorization,if-match",
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, cors_origins=(NAMED,))


def cors(answer: httpx.Response) -> dict[str, str]:
    """The headers by which a browser decides."""
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def test_a_page_of_a_named_origin_may_ask_and_read_the_answer(api: Api) -> None:
    origin = {"origin": NAMED}
    async with await api.client("acme", ["publish", "manage"]) as client:
        for path in (EVENTS, RECEIVER):
            preflight = await client.options(path, headers=origin | PREFLIGHT | {"authorization": ""})
            assert preflight.status_code == 204
            told = cors(preflight)
            assert told["access-control-allow-origin"] == NAMED
            assert "PUT" in told["access-control-allow-methods"].split(", ")
            assert "Authorization" in told["access-control-allow-headers"].split(", ")
        await api.receiver("acme.billing")
        for answer in (
            await client.post(EVENTS, json={}, headers=origin),
            await client.put(RECEIVER, json={"url": "https://example.com/"}, headers=origin),
        ):
            assert answer.status_code in (200, 202), answer.text
            assert cors(answer)["access-control-allow-origin"] == NAMED
            assert answer.headers["vary"] == "Origin"
        assert "ETag" in cors(answer)["access-control-expose-headers"].split(", ")
        refused = await client.get("/v1/tenants/other/receivers", headers=origin)
        problem(refused, 404, "not-found")
        assert cors(refused)["access-control-allow-origin"] == NAMED


async def test_a_page_of_any_other_origin_gets_nothing(api: Api) -> None:
    origin = {"origin": STRANGE}
    async with await api.client("acme", ["publish", "manage"]) as client:
        preflight = await client.options(RECEIVER, headers=origin | PREFLIGHT)
        problem(preflight, 405, "method-not-allowed")
        answers = [preflight, await client.post(EVENTS, json={}, headers=origin), await client.post(EVENTS)]
        assert [cors(each) for each in answers] == [{}, {}, {}]


async def test_a_request_that_only_looks_like_a_preflight_is_answered_normally(api: Api) -> None:
    async with await api.client() as client:
        problem(await client.options(EVENTS, headers={"origin": NAMED}), 405, "method-not-allowed")
        answer = await client.post(EVENTS, json={}, headers={"origin": NAMED} | PREFLIGHT)
    assert answer.status_code == 202
