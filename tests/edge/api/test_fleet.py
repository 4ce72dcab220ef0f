"""The fleet and the tokens over HTTP, for the scope `operate` alone."""

import time

import httpx
import pytest
from msgspec.structs import replace

from actors.machine.state import Alert, State
from angarium.api import recent_findings
from angarium.node.app import open_node
from tests.contract.observation import snapshots
from tests.edge.api.conftest import SHARDS, Api, problem
from tests.support.command_line import COMMAND_LINE
from tests.support.plain_http import plain_client
from tests.support.waiting import until, until_true

TOKENS = "/v1/tokens"
READ_AND_CHANGE = {"GET", "PUT", "PATCH", "DELETE"}


async def operator(api: Api) -> httpx.AsyncClient:
    return await api.client("*", ["operate"])


async def test_nodes_and_shards_are_seen(api: Api) -> None:
    async with await operator(api) as client:
        none = {"nodes": [], "problems": [], "shards_unowned": SHARDS, "unowned_since": None}
        assert (await client.get("/v1/nodes")).json() == none
        unowned = {
            "node": None, "claimed_at": None, "alive": False, "refused": None,
            "waiting": 0, "oldest_at": None,
        }  # fmt: skip
        assert (await client.get("/v1/shards")).json() == {
            "shards": [unowned | {"shard": n} for n in range(SHARDS)]
        }
        async with open_node(replace(api.to.settings, node="a", ttl_s=2.0)) as node:
            await until(lambda: len(node.owned) == SHARDS)
            fleet = (await client.get("/v1/nodes")).json()
            shards = (await client.get("/v1/shards")).json()["shards"]
        stopped = (await client.get("/v1/nodes")).json()
    (seen,) = fleet["nodes"]
    assert (fleet["shards_unowned"], fleet["unowned_since"]) == (0, None)
    assert stopped["shards_unowned"] == SHARDS
    assert stopped["unowned_since"] > seen["started_at"]
    assert (seen["node"], seen["ttl_s"]) == ("a", 2.0)
    assert (seen["shards_owned"], seen["shards_wanted"], seen["draining"]) == (SHARDS, SHARDS, False)
    assert [(each["shard"], each["node"], each["alive"]) for each in shards] == [
        (number, "a", True) for number in range(SHARDS)
    ]


async def test_a_node_that_reaches_no_host_is_named_with_the_remedy(api: Api) -> None:
    async with (
        await operator(api) as client,
        open_node(replace(api.to.settings, node="a", ttl_s=2.0)) as node,
    ):
        outage = node.context.outage
        assert outage is not None

        async def shown() -> bool:
            return bool((await client.get("/v1/nodes")).json()["nodes"][0]["outage"])

        await until(lambda: len(node.owned) == SHARDS)
        assert not await shown()
        outage.begin()
        await until_true(shown)
        found = [
            each for each in (await client.get("/v1/alerts")).json()["findings"] if "host" in each["text"]
        ]
        (finding,) = found
        assert (finding["level"], finding["subject"]) == ("problem", "nodes")
        assert finding["text"].startswith("a can connect to no host")
        assert "DNS" in finding["remedy"]


async def test_unhealthy_receivers_are_listed(api: Api) -> None:
    """The process takes the number of shards from the installation, not from its settings."""
    await api.js.publish(api.names.receiver("acme.typo"), b'{"url": "nowhere"}')
    await snapshots.put(api.js, api.names, snapshots.disabled("acme.gone", time.time()))
    async with await operator(api) as client:
        answer = await client.get("/v1/alerts")
        assert answer.status_code == 200, answer.text
        found = {(each["level"], each["subject"]): each for each in answer.json()["findings"]}
        asked_again = (await client.get("/v1/alerts")).json()
    assert [each["level"] for each in answer.json()["findings"]] == ["problem"] * 2 + ["warning"] * 2
    assert not COMMAND_LINE.search(answer.text)
    assert found["problem", "nodes"]["text"] == "no node is alive"
    typo, gone = found["problem", "receivers"], found["warning", "receivers"]
    assert (typo["receiver"], typo["condition"]) == ("acme.typo", "misconfigured")
    assert (gone["receiver"], gone["condition"]) == ("acme.gone", "disabled")
    assert "it answered 410" in gone["text"]
    assert asked_again == answer.json()
    async with await api.client("*", ["read", "manage", "publish"]) as reader:
        problem(await reader.get("/v1/alerts"), 404, "not-found")


async def test_raised_alerts_are_listed_the_latest_first_until_they_are_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_findings, "KEPT_TIME_S", 0.0)

    def with_alerts(*alerts: Alert) -> State:
        return State(receiver="acme.shop", opened=True, alerts=alerts)

    failing = Alert(kind="failing", raised_at=1_700_000_000.0, raised=True)
    behind = Alert(kind="behind", raised_at=1_700_000_060.0, raised=True)
    await snapshots.put(api.js, api.names, with_alerts(failing, behind))
    async with await operator(api) as client:
        answer = (await client.get("/v1/alerts")).json()
        raised, total = answer["alerts"], answer["alerts_total"]
        await snapshots.put(api.js, api.names, with_alerts(replace(failing, raised=False), behind))
        later = (await client.get("/v1/alerts")).json()["alerts"]
    assert raised == [
        {"receiver": "acme.shop", "alert": "behind", "raised_at": "2023-11-14T22:14:20Z"},
        {"receiver": "acme.shop", "alert": "failing", "raised_at": "2023-11-14T22:13:20Z"},
    ]
    assert (total, later) == (2, raised[:1])


async def test_a_token_is_made_used_listed_and_revoked(api: Api) -> None:
    async with await operator(api) as client:
        made = await client.post(
            TOKENS, json={"tenant": "acme", "scopes": ["publish"], "lasts_s": 60, "note": "x"}
        )
        assert made.status_code == 201, made.text
        assert made.headers["cache-control"] == "no-store"
        told = made.json()
        await until(lambda: api.state.tokens.get(told["id"]) is not None)
        async with api.client_with(told["token"]) as producer:

            async def answers(status: int) -> bool:
                return (await producer.post("/v1/tenants/acme/events/order", json={})).status_code == status

            assert await answers(202)
            listed = await client.get(TOKENS)
            assert made.headers["location"] == f"{TOKENS}/{told['id']}"
            assert (await client.delete(made.headers["location"])).status_code == 204
            await until_true(lambda: answers(401))
        problem(await client.delete(f"{TOKENS}/{told['id']}"), 404, "not-found")
        problem(await client.delete(f"{TOKENS}/a.b*"), 404, "not-found")
    shown = {each["id"]: each for each in listed.json()["tokens"]}[told["id"]]
    assert (shown["tenant"], shown["scopes"], shown["note"]) == ("acme", ["publish"], "x")
    assert shown["created_by"].startswith("token ")
    assert told["token"].split("_", 2)[2] not in listed.text
    assert "hash" not in listed.text


async def test_tokens_are_listed_page_by_page(api: Api) -> None:
    made = sorted([(await api.token()).id for _ in range(4)])
    async with await operator(api) as client:
        first = (await client.get(TOKENS, params={"limit": 3})).json()
        rest = (await client.get(TOKENS, params={"limit": 3, "cursor": first["next_cursor"]})).json()
        problem(await client.get(TOKENS, params={"limit": 201}), 422, "invalid")
    seen = [each["id"] for each in first["tokens"] + rest["tokens"]]
    assert (len(seen), rest["next_cursor"]) == (5, None)
    assert seen == sorted(seen)
    assert set(made) < set(seen)
    # The test that made them has no name.
    assert {each["created_by"] for each in first["tokens"] if each["id"] in made} == {None}


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"tenant": "acme", "scopes": []}, "/scopes"),
        ({"tenant": "acme", "scopes": ["all"]}, "/scopes/0"),
        ({"tenant": "acme", "scopes": ["operate"]}, "/scopes"),
        ({"tenant": "a.b", "scopes": ["read"]}, "/tenant"),
        ({"tenant": "acme", "scopes": ["read"], "rate": 0}, "/rate"),
        ({"tenant": "acme", "scopes": ["read"], "lasts_s": 1e300}, "/lasts_s"),
        ({"tenant": "acme", "scopes": ["read"], "note": "x" * 201}, "/note"),
        ({"tenant": "acme", "scopes": ["read"], "hash": "x"}, "/hash"),
        ([], ""),
    ],
)
async def test_a_token_that_cannot_be_is_refused(api: Api, asked: object, pointer: str | None) -> None:
    async with await operator(api) as client:
        refused = await client.post(TOKENS, json=asked)
    problem(refused, 422, "invalid")
    assert next(iter(refused.json().get("errors", [{}]))).get("pointer") == pointer


async def test_the_methods_of_a_path_are_shown_without_a_token(api: Api) -> None:
    async with plain_client(base_url=api.url) as client:
        for path, methods in ((TOKENS, {"GET", "POST"}), ("/v1/tenants/acme/receivers/x", READ_AND_CHANGE)):
            answer = await client.request("OPTIONS", path)
            problem(answer, 405, "method-not-allowed")
            assert methods <= set(answer.headers["allow"].split(", "))


async def test_no_other_scope_sees_the_fleet(api: Api) -> None:
    token = await api.token("*", ["publish", "read", "manage"])
    async with api.client_with(token.text) as client:
        for method, path in (
            ("GET", "/v1/nodes"), ("GET", "/v1/shards"), ("GET", TOKENS), ("POST", TOKENS),
            ("DELETE", f"{TOKENS}/{token.id}"),
        ):  # fmt: skip
            problem(await client.request(method, path), 404, "not-found")
    assert api.state.tokens.get(token.id) is not None
