"""Receivers over HTTP: conditional writes, hidden secrets, removal with waiting events."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from angarium.settings import Settings
from streams.buckets.sealing_marker import mark_sealing
from streams.sealing.key_file import new_key_line
from tests.edge.api.conftest import SECRET, URL, Api, manager, opened_api, problem
from tests.support.command_line import COMMAND_LINE
from tests.support.waiting import until

LIST = "/v1/tenants/acme/receivers"
BILLING = f"{LIST}/billing"


def pointers(answer: httpx.Response) -> list[str]:
    return [each["pointer"] for each in answer.json()["errors"]]


async def test_a_new_receiver_gets_a_secret_that_one_answer_shows(api: Api) -> None:
    async with await manager(api) as client:
        made = await client.put(BILLING, json={"url": URL, "headers": {"x-team": "blue"}})
        shown = await client.get(BILLING)
        again = await client.put(BILLING, json=shown.json(), headers={"if-match": shown.headers["etag"]})
    assert made.status_code == 201
    assert made.headers["location"] == BILLING
    assert made.headers["cache-control"] == "no-store"
    told = made.json()
    assert told["secret"].startswith("whsec_")
    assert made.headers["etag"] == shown.headers["etag"] == f'"{told["revision"]}"'
    assert shown.json() == {"url": URL, "headers": {"x-team": "…"}, "secrets": ["…"]}
    assert (again.status_code, again.json()["secret"], again.json()["changes"]) == (200, None, [])
    stored = await api.in_bucket()
    assert (stored["secrets"], stored["headers"]) == ([told["secret"]], {"x-team": "blue"})


async def test_secrets_are_sealed_by_an_api_with_the_key_file_only(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.file_value.FILES_CHECKED_EVERY_S", 0.01)
    (tmp_path / "keys").touch(mode=0o600)
    (tmp_path / "keys").write_text(first := new_key_line("one"))
    keyed = replace(settings, key_file=str(tmp_path / "keys"))
    async with opened_api(settings) as keyless:
        async with opened_api(keyed) as api, await manager(api) as client:
            made = await client.put(BILLING, json={"url": URL, "headers": {"x-team": "blue"}})
            assert (await api.in_bucket())["secrets"][0].startswith("sealed:one:")
            shown = await client.get(BILLING)
            assert "blue" not in str(await api.in_bucket())
            (tmp_path / "keys").write_text(f"{new_key_line('two')}\n{first}")
            await until(lambda: api.state.access.keys().present == "two")
            assert (await client.patch(BILLING, json={"timeout_s": 4})).status_code == 200
            assert (await api.in_bucket())["secrets"][0].startswith("sealed:two:")
            assert (await client.patch(BILLING, json={"timeout_s": None})).status_code == 200
        await mark_sealing(keyless.js, keyless.names, "one")
        async with await manager(keyless) as client:
            assert (await client.get(BILLING)).json() == shown.json()
            kept = await client.put(BILLING, json=shown.json() | {"timeout_s": 5})
            new = await client.put(f"{LIST}/other", json={"url": URL})
    assert (made.status_code, kept.status_code) == (201, 200)
    detail = problem(new, 422, "invalid")
    assert "this installation seals secrets, and this process has no key" in detail + new.text
    assert pointers(new) == ["/secrets/0"]


async def test_no_secrets_leave_it_unsigned(api: Api) -> None:
    async with await manager(api) as client:
        made = await client.put(BILLING, json={"url": URL, "secrets": []})
    assert (made.status_code, made.json()["secret"], made.json()["secrets"]) == (201, None, 0)


async def test_a_condition_keeps_what_another_client_changed(api: Api) -> None:
    async with await manager(api) as client:
        first = await client.put(BILLING, json={"url": URL}, headers={"if-none-match": "*"})
        second = await client.put(BILLING, json={"url": URL}, headers={"if-none-match": "*"})
        mine, theirs = {"if-match": first.headers["etag"]}, {"if-match": "W/" + first.headers["etag"]}
        assert (await client.patch(BILLING, json={"paused": True}, headers=mine)).status_code == 200
        late = [
            await client.put(BILLING, json={"url": URL}, headers=mine),
            await client.patch(BILLING, json={"paused": False}, headers=mine),
            await client.delete(BILLING, headers=mine),
            await client.delete(BILLING, headers=theirs),
            await client.put(f"{LIST}/new", json={"url": URL}, headers=mine),
        ]
        problem(
            await client.put(f"{LIST}/new", json={"url": URL}, headers={"if-match": "*"}), 404, "not-found"
        )
        any_one = await client.put(BILLING, json={"url": URL}, headers={"if-match": "*"})
    problem(second, 412, "precondition-failed")
    for each in late:
        problem(each, 412, "precondition-failed")
    assert any_one.status_code == 200
    assert "paused" not in await api.in_bucket()


@pytest.mark.parametrize(
    ("condition", "detail"),
    [
        ({"if-none-match": '"5"'}, "only If-None-Match: *"),
        ({"if-match": '"5", "6"'}, "a single entity-tag"),
        ({"if-match": '"5"', "if-none-match": "*"}, "not both"),
    ],
)
async def test_a_condition_that_a_change_cannot_have_changes_nothing(
    api: Api, condition: dict[str, str], detail: str
) -> None:
    async with await manager(api) as client:
        refused = await client.put(BILLING, json={"url": URL}, headers=condition)
        assert detail in problem(refused, 400, "not-http")
        problem(await client.get(BILLING), 404, "not-found")
        new_alone = await client.patch(BILLING, json={"url": URL}, headers={"if-none-match": "*"})
        assert "PATCH changes an existing configuration" in problem(new_alone, 400, "not-http")


async def test_a_put_that_would_lose_members_needs_a_condition(api: Api) -> None:
    await api.receiver("acme.billing", rate="10/second", secrets=[SECRET], retry={"base_s": 1})
    async with await manager(api) as client:
        refused = await client.put(BILLING, json={"url": URL})
        same = await client.put(BILLING, json={"url": URL, "rate": "10/second", "retry": {"base_s": 1}})
        etag = same.headers["etag"]
        meant = await client.put(BILLING, json={"url": URL}, headers={"if-match": etag})
    assert "If-Match" in problem(refused, 428, "precondition-required")
    assert pointers(refused) == ["/rate", "/retry/base_s"]
    assert (same.status_code, meant.status_code) == (200, 200)
    assert await api.in_bucket() == {"url": URL, "secrets": [SECRET]}


async def test_a_client_with_the_current_revision_gets_304(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await manager(api) as client:
        etag = (await client.get(BILLING)).headers["etag"]
        known = await client.get(BILLING, headers={"if-none-match": f'"9", {etag}'})
        other = await client.get(BILLING, headers={"if-none-match": '"0"'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)
    assert other.status_code == 200


async def test_a_patch_changes_only_the_members_that_it_names(api: Api) -> None:
    await api.receiver(
        "acme.billing",
        url=URL,
        secrets=[SECRET],
        headers={"x-a": "1", "x-b": "2"},
        rate={"limit": 10, "burst": 3},
    )
    async with await manager(api) as client:
        patched = await client.patch(
            BILLING,
            json={"headers": {"x-a": "…", "x-b": None}, "rate": {"burst": None}, "secrets": ["…"]},
            headers={"content-type": "application/merge-patch+json"},
        )
        missing = await client.patch(f"{LIST}/other", json={"paused": True})
    assert patched.status_code == 200, patched.text
    assert await api.in_bucket() == {
        "url": URL, "secrets": [SECRET], "headers": {"x-a": "1"}, "rate": {"limit": 10},
    }  # fmt: skip
    assert SECRET not in patched.text
    assert problem(missing, 404, "not-found") == "there is no receiver acme.other"


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"url": "ftp://x", "rate": {"limit": 0}, "retri": 1}, ["/rate/limit", "/retri", "/url"]),
        ({"url": URL, "secrets": ["whsec_x", 7]}, ["/secrets/1"]),
        ({"url": URL, "secrets": ["whsec_x"]}, ["/secrets/0"]),
        ({"url": URL, "secrets": ["…"]}, ["/secrets"]),
        ({"url": URL, "headers": {"webhook.id/x": "\n"}}, ["/headers"]),
        ({"url": URL, "headers": {"x~a": "\n"}}, ["/headers/x~0a"]),
        ({"url": URL, "headers": {"x-a": 7}}, ["/headers/x-a"]),
        ({"url": URL, "events": ["a", "b c"]}, ["/events/1"]),
        ({}, ["/url"]),
    ],
)
async def test_each_bad_member_has_its_pointer(
    api: Api, configuration: dict[str, Any], expected: list[str]
) -> None:
    async with await manager(api) as client:
        answer = await client.put(BILLING, json=configuration)
        problem(answer, 422, "invalid")
        assert sorted(pointers(answer)) == expected
        problem(await client.get(BILLING), 404, "not-found")


async def test_a_refusal_names_no_flag_of_the_command_line(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await manager(api) as client:
        refused = await client.put(BILLING, json={"paused": True})
    assert problem(refused, 422, "invalid").startswith("url: missing")
    assert "angarium " not in refused.text
    assert "--" not in refused.text


@pytest.mark.parametrize("url", ["http://example.com/", "https://127.0.0.1/", "https://10.0.0.1/"])
async def test_a_note_names_no_flag_of_the_command_line(api: Api, url: str) -> None:
    async with await manager(api) as client:
        put = await client.put(BILLING, json={"url": url})
        patched = await client.patch(BILLING, json={"url": url + "other"})
    for answer in (put, patched):
        (note,) = answer.json()["notes"]
        assert note.startswith("only nodes that ")
        assert not COMMAND_LINE.search(note)


async def test_a_body_that_is_not_a_configuration_is_refused(api: Api) -> None:
    await api.receiver("acme.billing")
    json = {"content-type": "application/json"}
    async with await manager(api) as client:
        for method in ("PUT", "PATCH"):
            for body in (b"", b"{", b"\xff", b"[" * 5_000):
                problem(await client.request(method, BILLING, content=body, headers=json), 400, "not-json")
            problem(await client.request(method, BILLING, content=b"[]", headers=json), 422, "invalid")
            large = await client.request(method, BILLING, content=b"{" + b" " * (64 << 10), headers=json)
            problem(large, 413, "too-large")
            problem(await client.request(method, BILLING, data={"url": URL}), 415, "unsupported")
            both = json | {"if-match": "*", "if-none-match": "*"}
            problem(await client.request(method, BILLING, content=b"{}", headers=both), 400, "not-http")
        for name in ("_x", "a.b", "a%20b", "x" * 65):
            for answer in (
                await client.get(f"{LIST}/{name}"),
                await client.put(f"{LIST}/{name}", json={"url": URL}),
            ):
                problem(answer, 422, "invalid")


async def test_a_removal_says_what_it_discards(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client("acme", ["publish", "manage"]) as client:
        assert (await client.post(f"{BILLING}/events", json={})).status_code == 202
        gone = await client.delete(BILLING)
        again = await client.delete(BILLING)
    assert gone.status_code == 200
    assert gone.json() == {"receiver": "acme.billing", "discarded": 1, "certain": False, "recorded": False}
    problem(again, 404, "not-found")


async def test_receivers_are_listed_page_by_page(api: Api) -> None:
    names = [f"r{number}" for number in range(7)]
    for name in names:
        await api.receiver(f"acme.{name}", secrets=[SECRET])
    await api.receiver("other.foreign")
    async with await manager(api) as client:
        assert (await client.delete(f"{LIST}/r3")).status_code == 200
        pages, cursor = [], ""
        while True:
            page = (await client.get(LIST, params={"limit": 2, "cursor": cursor})).json()
            pages.append([each["name"] for each in page["receivers"]])
            if (cursor := page["next_cursor"]) is None:
                break
        whole = await client.get(LIST)
        for limit in ("0", "201", "x"):
            refused = await client.get(LIST, params={"limit": limit})
            problem(refused, 422, "invalid")
            assert refused.json()["errors"][0]["parameter"] == "limit"
    assert pages == [["r0", "r1"], ["r2", "r4"], ["r5", "r6"]]
    assert whole.json()["receivers"][0] == {
        "receiver": "acme.r0", "name": "r0", "revision": 1, "problems": [], "health": None,
        "configuration": {"url": "https://example.com/", "secrets": ["…"]},
    }  # fmt: skip
    assert SECRET not in whole.text


async def test_a_tenant_changes_no_more_receivers_than_its_rate(api: Api) -> None:
    """Requests that are invalid, or name no receiver, neither count nor get 429."""
    api.state.changes.per_s = 0.001
    path = "/v1/tenants/{}/receivers/billing"
    async with await manager(api) as client, await manager(api, "other") as other:
        mine, others = path.format("acme"), path.format("other")
        problem(await client.put(mine, json={"url": "ftp://x"}), 422, "invalid")
        problem(await client.delete(mine), 404, "not-found")
        stored = await client.put(mine, json={"url": URL})
        assert stored.status_code == 201
        for refused in (
            await client.put(mine, json={"url": f"{URL}/2"}),
            await client.patch(mine, json={"rate": "5/second"}),
            await client.post(f"{mine}/rotate-secret"),
            await client.delete(mine),
        ):
            problem(refused, 429, "rate")
            assert 900 < int(refused.headers["retry-after"]) <= 1000
            assert refused.headers["ratelimit-policy"] == '"tenant";q=1;w=1'
            assert refused.headers["ratelimit"].startswith('"tenant";r=0;t=')
        problem(await client.put(mine, json={"url": "ftp://x"}), 422, "invalid")
        problem(await client.delete(f"{LIST}/nobody"), 404, "not-found")
        assert (await client.get(mine)).headers["etag"] == stored.headers["etag"]
        assert (await other.put(others, json={"url": URL})).status_code == 201


async def test_another_tenants_token_finds_no_receiver(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await manager(api, "other") as stranger, await api.client("acme", ["read"]) as reader:
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            problem(await stranger.request(method, BILLING, json={"url": URL}), 404, "not-found")
            if method != "GET":
                problem(await reader.request(method, BILLING, json={"url": URL}), 404, "not-found")
        problem(await stranger.get(LIST), 404, "not-found")
        assert (await stranger.get("/v1/tenants/other/receivers")).json()["receivers"] == []
    assert await api.in_bucket() == {"url": "https://example.com/"}


async def test_the_list_and_the_state_show_the_health(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await manager(api) as client:
        [item] = (await client.get(LIST, params={"health": "true"})).json()["receivers"]
        problem(await client.get(LIST, params={"health": "perhaps"}), 422, "invalid")
    assert item["health"] == {
        "phase": "idle", "waiting": 0, "oldest_at": None, "failing_since": None, "disabled": None,
        "in_per_s": 0.0, "out_per_s": 0.0, "empty_in_s": 0.0, "limited_by": None,
    }  # fmt: skip


async def test_a_filter_is_tried_on_the_last_events(api: Api) -> None:
    await api.receiver("acme.billing", filter="total > `2`", events=["order"])
    async with await manager(api) as client:
        shown = (await client.get(BILLING)).json()
        async with await api.client() as producer:
            for total in range(5):
                await producer.post("/v1/tenants/acme/events/order", json={"total": total})
        own = await client.post(f"{BILLING}/test-filter")
        other = await client.post(f"{BILLING}/test-filter", json={"filter": "total == `4`", "last": 3})
        wrong = await client.post(f"{BILLING}/test-filter", json={"filter": "total >"})
        many = await client.post(f"{BILLING}/test-filter", json={"last": 1001})
        missing = await client.post(f"{LIST}/missing/test-filter")
    assert shown["filter"] == "total > `2`"
    assert own.status_code == 200
    told = own.json()
    assert (told["sent"], told["not_sent"], told["failed"], told["cut"]) == (2, 3, 0, False)
    assert [each["result"] for each in told["events"]] == ["filter"] * 3 + ["sent"] * 2
    assert [each["result"] for each in other.json()["events"]] == ["filter", "filter", "sent"]
    assert "not JMESPath" in problem(wrong, 422, "invalid")
    assert pointers(many) == ["/last"]
    problem(missing, 404, "not-found")


async def test_a_transform_is_tried_on_the_last_events(api: Api) -> None:
    await api.receiver("acme.billing", transform={"drop": ["/email"]}, events=["order"])
    async with await manager(api) as client:
        async with await api.client() as producer:
            await producer.post("/v1/tenants/acme/events/order", json={"email": "a@example.com", "id": 7})
        own = await client.post(f"{BILLING}/test-transform")
        other = await client.post(f"{BILLING}/test-transform", json={"transform": {"keep": ["/none"]}})
        wrong = await client.post(f"{BILLING}/test-transform", json={"transform": {"drop": ["email"]}})
        many = await client.post(f"{BILLING}/test-transform", json={"last": 101})
        missing = await client.post(f"{LIST}/missing/test-transform")
    assert own.status_code == 200
    assert own.headers["cache-control"] == "no-store"
    assert [each["body"] for each in own.json()["events"]] == ['{"id":7}']
    assert [each["body"] for each in other.json()["events"]] == ["{}"]
    assert "not a JSON pointer" in problem(wrong, 422, "invalid")
    assert pointers(many) == ["/last"]
    problem(missing, 404, "not-found")


async def test_a_region_is_a_label_or_a_list_of_them(api: Api) -> None:
    async with await manager(api) as client:
        one = await client.put(BILLING, json={"url": URL, "region": "eu"})
        same = await client.patch(BILLING, json={"region": ["eu"]})
        wrong = await client.patch(BILLING, json={"region": "E U", "filter": "a >"})
        none = await client.patch(BILLING, json={"region": None})
    assert one.status_code == 201
    assert same.json()["changes"] == []
    assert [each["pointer"] for each in wrong.json()["errors"]] == ["/region", "/filter"]
    assert [(each["old"], each["new"]) for each in none.json()["changes"]] == [("eu", "none")]
