"""The wall between tenants, for every operation that the API's description lists."""

import re
from typing import Any

import pytest

from angarium.api.problems import HIDDEN
from angarium.operations.jobs.begin import StartedJob, begin_redrive
from streams.buckets.api_tokens import Scope
from streams.dead_letters.letters import LetterFilter
from tests.edge.api.conftest import Api, problem
from tests.support.ledgers import JournalWriter, catch_up, failed, in_file, opens
from tests.support.plain_http import plain_client

OPERATIONS: dict[str, Scope] = {
    "GET /v1/alerts": "operate",
    "GET /v1/nodes": "operate",
    "GET /v1/shards": "operate",
    "GET /v1/tokens": "operate",
    "POST /v1/tokens": "operate",
    "GET /v1/jobs": "read",
    "GET /v1/jobs/{job}": "read",
    "DELETE /v1/jobs/{job}": "manage",
    "DELETE /v1/tokens/{token_id}": "operate",
    "POST /v1/tenants/{tenant}/events": "publish",
    "GET /v1/tenants/{tenant}/events/{event}": "read",
    "POST /v1/tenants/{tenant}/events/{event}": "publish",
    "DELETE /v1/tenants/{tenant}/events/{event}": "manage",
    "GET /v1/tenants/{tenant}/events/{event}/erasure": "read",
    "GET /v1/tenants/{tenant}/later": "read",
    "DELETE /v1/tenants/{tenant}/later/{event}": "publish",
    "GET /v1/tenants/{tenant}/dead-letters": "read",
    "GET /v1/tenants/{tenant}/dead-letters/{number}": "read",
    "DELETE /v1/tenants/{tenant}/dead-letters/{number}": "manage",
    "POST /v1/tenants/{tenant}/dead-letters/redrive": "manage",
    "GET /v1/tenants/{tenant}/receivers": "read",
    "GET /v1/tenants/{tenant}/receivers/{name}": "read",
    "PUT /v1/tenants/{tenant}/receivers/{name}": "manage",
    "PATCH /v1/tenants/{tenant}/receivers/{name}": "manage",
    "DELETE /v1/tenants/{tenant}/receivers/{name}": "manage",
    "GET /v1/tenants/{tenant}/receivers/{name}/attempts": "read",
    "GET /v1/tenants/{tenant}/receivers/{name}/audit": "read",
    "POST /v1/tenants/{tenant}/receivers/{name}/events": "publish",
    "POST /v1/tenants/{tenant}/receivers/{name}/events/{type}": "publish",
    "POST /v1/tenants/{tenant}/receivers/{name}/forget": "manage",
    "GET /v1/tenants/{tenant}/receivers/{name}/history": "read",
    "GET /v1/tenants/{tenant}/receivers/{name}/minutes": "read",
    "POST /v1/tenants/{tenant}/receivers/{name}/pause": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/ping": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/replay": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/resume": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/rotate-secret": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/test-filter": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/test-transform": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/skip": "manage",
    "POST /v1/tenants/{tenant}/receivers/{name}/verify": "manage",
    "GET /v1/tenants/{tenant}/receivers/{name}/state": "read",
    "GET /v1/tenants/{tenant}/tail": "read",
    "GET /v1/tenants/{tenant}/top": "read",
    "POST /v1/tenants/{tenant}/portal-links": "operate",
}
"""All of them, with the scope that each needs: a new one is written here, and so it is tried without, too."""
UNSEEN = ("/state", "/tail", "/erasure", "/later")
VALUES = {
    "name": "billing", "type": "order.created", "event": "order.created", "number": "7",
    "token_id": "k3f6w2m5qzra", "job": "replay.acme.billing.9f86d081884c7d65",
}  # fmt: skip


async def operations(api: Api, tenant: str = "acme", **more: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Each operation of the description: its method, a path of the tenant's, and what is said of it."""
    values = VALUES | {"tenant": tenant} | more
    found = []
    for path, item in (await description(api))["paths"].items():
        filled = re.sub(r"{(\w+)}", lambda name: values[name[1]], path)
        found += [(method.upper(), filled, operation) for method, operation in item.items()]
    return found


async def description(api: Api) -> Any:
    async with plain_client(base_url=api.url) as client:
        described = (await client.get("/openapi.json")).json()
    assert described["openapi"].startswith("3.1")
    return described


async def test_the_operations_are_these(api: Api) -> None:
    paths = (await description(api))["paths"]
    described = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    assert {each for each in described if " /v1/" in each} == OPERATIONS.keys()


async def test_another_tenants_token_finds_nothing_anywhere(api: Api) -> None:
    await api.receiver("acme.billing")
    gated = [(method, path) for method, path, _ in await operations(api) if path.startswith("/v1/")]
    assert len(gated) == len(OPERATIONS)
    assert isinstance(await begin_redrive(api.to, "acme", LetterFilter(receivers="acme.*")), StartedJob)
    async with (
        await api.client("other", ["publish", "read", "manage"]) as stranger,
        plain_client(base_url=api.url) as anonymous,
    ):
        for method, path in gated:
            # What has no tenant in its path is the fleet's, except the list of the token's own jobs.
            answer = await stranger.request(method, path, json={})
            if (method, path) == ("GET", "/v1/jobs"):
                assert answer.json() == {"jobs": [], "next_cursor": None}
            else:
                assert problem(answer, 404, "not-found") == HIDDEN, (method, path)
            problem(await anonymous.request(method, path, json={}), 401, "unauthorized")
    assert await api.stored(api.names.events) == await api.stored(api.names.deliveries) == []


async def test_an_operation_needs_its_scope(api: Api) -> None:
    """An operation without the scope answers 404, as for another tenant: the token learns nothing."""
    await api.receiver("acme.billing")
    scopes: list[Scope] = ["publish", "read", "manage", "operate"]
    clients = {scope: await api.client("*", [scope]) for scope in scopes}
    for operation, needed in OPERATIONS.items():
        method, path = operation.split()
        filled = re.sub(r"{(\w+)}", lambda name: (VALUES | {"tenant": "acme"})[name[1]], path)
        for scope in scopes:
            if scope != needed:
                detail = problem(await clients[scope].request(method, filled, json={}), 404, "not-found")
                assert detail == HIDDEN, (operation, scope)
    for client in clients.values():
        await client.aclose()


async def test_nothing_that_is_read_shows_anything_of_another_tenant(api: Api) -> None:
    """Both tenants have a receiver of the same name, a dead letter, and an attempt at the same event id."""
    journal, seen = JournalWriter(api.js, api.names), {"acme": "", "zenith": ""}
    for tenant in seen:
        receiver = f"{tenant}.billing"
        await api.receiver(receiver, url=f"https://{tenant}.example.com/")
        await api.bury(receiver, 1, body=tenant.encode())
        attempt = failed(1, receiver=receiver, answer=f"{tenant} says no")
        await journal.flush(opens(receiver), attempt, receiver=receiver)
    await catch_up(api.js, api.names, in_file(api.to.settings.ledger))
    letters = [each.subject.split(".")[2] for each in await api.stored(api.names.dead_letters)]
    async with await api.client("*", ["read"]) as reader:
        for tenant in seen:
            number = {"number": str(letters.index(tenant) + 1), "event": "e1"}
            asked = [path for method, path, _ in await operations(api, tenant, **number) if method == "GET"]
            asked = [path for path in asked if f"/{tenant}/" in path]
            asked = [path for path in asked if not path.endswith(UNSEEN)]  # They have tests of their own.
            assert len(asked) == 10
            for path in asked:
                answer = await reader.get(path)
                assert answer.status_code == 200, (path, answer.text)
                assert tenant in answer.text, path
                seen[tenant] += answer.text
            foreign = f"/v1/tenants/{tenant}/dead-letters/{2 - letters.index(tenant)}"
            problem(await reader.get(foreign), 404, "not-found")
    assert "zenith" not in seen["acme"]
    assert "acme" not in seen["zenith"]


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


async def test_routes_without_a_token_reveal_nothing(api: Api) -> None:
    async with plain_client(base_url=api.url) as client:
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            assert "server" not in answer.headers
        origin = {"origin": "https://evil.example.com"}
        assert "access-control-allow-origin" not in (await client.get("/healthz", headers=origin)).headers
        for path in ("/nothing", "/openapi.json/x", "/openapi.json/openapi.json"):
            problem(await client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/healthz", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
        ("/v1/tenants/acme/events", "POST"),
        ("/v1/tenants/acme/events/order.created", "DELETE, GET, HEAD, POST"),
        ("/v1/tenants/acme/receivers/billing", "DELETE, GET, HEAD, PATCH, PUT"),
    ],
)
async def test_a_wrong_method_gets_the_allowed_ones(api: Api, path: str, methods: str) -> None:
    async with plain_client(base_url=api.url) as client:
        answer = await client.request("PROPFIND", path)
        assert methods in problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == methods
        if path.startswith("/v1/"):
            assert (await client.options(path)).headers["allow"] == methods


async def test_head_answers_as_get_without_a_body(api: Api) -> None:
    async with await api.client("acme", ["read"]) as client:
        for path, status in (("/healthz", 200), ("/v1/tenants/acme/receivers", 200), ("/v1/nodes", 404)):
            answer, got = await client.head(path), await client.get(path)
            assert (answer.status_code, answer.content) == (status, b"")
            same = answer.headers["content-length"], answer.headers["content-type"]
            assert same == (got.headers["content-length"], got.headers["content-type"])
        assert (await client.head("/v1/tenants/acme/events")).status_code == 405


@pytest.mark.parametrize(
    ("path", "unknown", "hint"),
    [
        ("/v1/tenants/acme/receivers", "limti", "did you mean limit?"),
        ("/v1/tenants/acme/dead-letters", "Reason", "did you mean reason?"),
        ("/v1/tenants/acme/tail", "types", "did you mean type?"),
        ("/v1/tenants/acme/receivers/billing/audit", "zzz", "the parameters are since, until"),
        ("/v1/tenants/acme/receivers/billing", "x" * 1000, "…; this path has none"),
    ],
)
async def test_an_unknown_parameter_is_reported_with_the_nearest_one(
    api: Api, path: str, unknown: str, hint: str
) -> None:
    await api.receiver("acme.billing")
    async with await api.client("acme", ["read", "manage"]) as client, plain_client() as anonymous:
        refused = await client.get(path, params={unknown: "3"})
        assert problem(refused, 422, "invalid").endswith(hint)
        (fault,) = refused.json()["errors"]
        assert fault["parameter"].removesuffix("…") == unknown[:40]
        assert len(refused.content) < 1000
        problem(await anonymous.get(f"{api.url}{path}?{unknown}=3"), 401, "unauthorized")


async def test_every_operation_refuses_a_parameter_that_it_does_not_have(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client("*", ["publish", "read", "manage", "operate"]) as client:
        for method, path, _ in await operations(api):
            if path.startswith("/v1/"):
                answer = await client.request(
                    method, path, params={"not_there": "", "nor_this": "1"}, json={}
                )
                problem(answer, 422, "invalid")
                named = [each["parameter"] for each in answer.json()["errors"]]
                assert named == ["nor_this", "not_there"], (method, path)
    assert await api.stored(api.names.events) == await api.stored(api.names.deliveries) == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tokens",
        "/v1/jobs",
        "/v1/tenants/acme/receivers",
        "/v1/tenants/acme/dead-letters",
        "/v1/tenants/acme/events/e1",
    ],
)
async def test_a_cursor_that_no_page_gave_is_refused(api: Api, path: str) -> None:
    async with await api.client("*", ["read", "operate"]) as client:
        for cursor in ("zzz", "after:", "after:a.b", "after:" + "x" * 65):
            refused = await client.get(path, params={"cursor": cursor})
            problem(refused, 422, "invalid")
            assert refused.json()["errors"][0]["parameter"] == "cursor"
