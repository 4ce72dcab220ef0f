"""Publishing over HTTP: what is stored, what is answered, and what is refused before its body is read."""

from collections.abc import AsyncIterator

import httpx
import pytest

from actors.errors import Unavailable
from angarium.api.problems import HIDDEN
from streams.buckets.known_configurations import KnownConfigurations
from streams.nats.answers import Answer, Forbidden, Refused, Unanswered
from streams.nats.wire_names import (
    CONTENT_TYPE,
    EVENT_ID,
    EVENT_TYPE,
    MESSAGE_ID,
    TRACEPARENT,
    TRACESTATE,
)
from tests.edge.api.conftest import MAX_BODY, Api, problem
from tests.support.plain_http import plain_client
from tests.support.waiting import until_true

EVENTS = "/v1/tenants/acme/events/order.created"
BILLING = "/v1/tenants/acme/receivers/billing/events"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_an_event_for_all_is_stored_byte_for_byte_before_the_answer(api: Api) -> None:
    await api.receiver("acme.billing", events=["order.>"])
    async with await api.client() as client:
        body = b'{ "order" :7,\xff\x00'
        answer = await client.post(
            EVENTS, content=body,
            headers={"content-type": "text/x; a=b", "traceparent": PARENT, "tracestate": "a=b", "x-own": "1"},
        )  # fmt: skip
        told = answer.json()
    assert answer.status_code == 202
    assert told == {"id": told["id"], "stream": api.names.events, "seq": 1, "duplicate": False, "matched": 1}
    (message,) = await api.stored(api.names.events)
    assert message.subject.endswith(".acme.order.created")
    assert message.data == body
    assert message.headers.items() >= {
        EVENT_ID: told["id"], MESSAGE_ID: f"acme:{told['id']}", CONTENT_TYPE: "text/x; a=b",
        TRACEPARENT: PARENT, TRACESTATE: "a=b",
    }.items()  # fmt: skip
    assert "x-own" not in message.headers


async def test_an_event_for_one_receiver_reaches_no_other(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client() as client:
        typed = await client.post(f"{BILLING}/order.created", json={"order": 7})
        untyped = await client.post(BILLING, json={"order": 8})
    assert [each.status_code for each in (typed, untyped)] == [202, 202]
    assert typed.json().keys() == {"id", "stream", "seq", "duplicate"}
    first, second = await api.stored(api.names.deliveries)
    assert first.subject.endswith(".acme.billing")
    assert (first.headers[EVENT_TYPE], second.headers[EVENT_TYPE]) == ("order.created", "message")
    assert CONTENT_TYPE not in first.headers


async def test_nothing_is_published_for_a_receiver_that_is_not_there(api: Api) -> None:
    async with await api.client() as client:
        missing = await client.post(BILLING, json={})
        misnamed = await client.post("/v1/tenants/acme/receivers/_events/events", json={})
    assert "there is no receiver acme.billing" in problem(missing, 404, "not-found")
    problem(misnamed, 404, "not-found")
    assert await api.stored(api.names.deliveries) == []


async def test_a_fan_out_that_matches_no_receiver_says_so(api: Api) -> None:
    await api.receiver("acme.billing", events=["invoice.>"])
    async with await api.client() as client:
        answer = await client.post(EVENTS, json={})
    assert (answer.status_code, answer.json()["matched"]) == (202, 0)


async def test_the_leader_is_asked_before_something_is_said_not_to_be_there(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may not have noticed yet what was put a moment ago."""

    async def unheard(*_: object) -> None:
        raise Unavailable("the leader is away")

    async with await api.client() as client:
        monkeypatch.setattr(KnownConfigurations, "catch_up", unheard)
        answer = await client.post(EVENTS, json={})
        assert (answer.status_code, "matched" in answer.json()) == (202, False)
        monkeypatch.setattr(KnownConfigurations, "confirm", unheard)
        assert "did not say" in problem(await client.post(BILLING, json={}), 503, "unavailable")


async def test_a_repeat_is_known_by_its_key(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client() as client:
        keyed = {"idempotency-key": '"order 7"'}
        first = (await client.post(BILLING, json={"order": 7}, headers=keyed)).json()
        again = (await client.post(BILLING, json={"order": 7}, headers=keyed)).json()
        by_id = (await client.post(BILLING, json={}, headers={"angarium-id": "order-8"})).json()
    assert again == first | {"duplicate": True}
    assert by_id["id"] == "order-8"
    first_message, second_message = await api.stored(api.names.deliveries)
    assert first_message.headers[MESSAGE_ID] == "acme.billing:order 7"
    assert first_message.headers[EVENT_ID] == first["id"] != "order 7"
    assert second_message.headers[MESSAGE_ID] == "acme.billing:order-8"


@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        ("/v1/tenants/acme/events/order..created", {}, 422, "1 to 16 tokens"),
        ("/v1/tenants/acme/events/angarium.ping", {}, 422, "are Angarium's own"),
        ("/v1/tenants/acme/events/%ff%fe", {}, 422, "1 to 16 tokens"),
        (EVENTS, {"angarium-id": "a b"}, 422, "1 to 128 of"),
        (EVENTS, {"idempotency-key": "a\tb"}, 422, "1 to 255 printable"),
        (EVENTS, {"idempotency-key": '""'}, 422, "1 to 255 printable"),
        (EVENTS, {"content-type": "x" * 300}, 422, "at most 256 printable"),
        (EVENTS, {"content-encoding": "gzip"}, 415, "send it without"),
        ("/v1/tenants/acme/receivers/*/events", {}, 404, HIDDEN),
        ("/v1/tenants/acme/receivers/a.b/events/x", {}, 404, HIDDEN),
        ("/v1/tenants/acme/receivers/_events/events", {}, 404, HIDDEN),
    ],
)
async def test_an_event_that_cannot_be_published_is_refused(
    api: Api, path: str, headers: dict[str, str], status: int, words: str
) -> None:
    async with await api.client() as client:
        answer = await client.post(path, content=b"{}", headers=headers)
    assert words in problem(answer, status, {404: "not-found", 415: "unsupported", 422: "invalid"}[status])
    assert await api.stored(api.names.events) == []


async def test_an_invalid_trace_is_not_passed_on(api: Api) -> None:
    async with await api.client() as client:
        for trace in ({"traceparent": "x", "tracestate": "a=b"}, {"tracestate": "a=b"}):
            assert (await client.post(EVENTS, headers=trace)).status_code == 202
    stored = await api.stored(api.names.events)
    assert len(stored) == 2
    for message in stored:
        assert not {TRACEPARENT, TRACESTATE} & message.headers.keys()


@pytest.mark.parametrize("name", ["angarium-id", "idempotency-key", "authorization", "content-type"])
async def test_a_header_that_comes_twice_must_say_the_same(api: Api, name: str) -> None:
    async with await api.client() as client:
        own = client.headers.get(name) or "text/plain"
        del client.headers["authorization"]
        token = [("authorization", f"Bearer {(await api.token()).text}")] if name != "authorization" else []
        same = await client.post(EVENTS, headers=[*token, (name, own), (name, own)])
        differing = await client.post(EVENTS, headers=[*token, (name, own), (name, f"{own}x")])
    assert same.status_code in (202, 422)
    assert "several times" in problem(differing, 400, "not-http")


@pytest.mark.parametrize(
    ("heard", "status", "name", "words"),
    [
        (Refused(10158, "in process"), 409, "conflict", "being stored at this moment"),
        (Refused(10054, "too large"), 413, "too-large", "larger than max_body"),
        (Refused(10077, "maximum bytes exceeded"), 503, "full", "has no room"),
        (Refused(10071, "wrong last sequence"), 409, "refused", "NATS refused it"),
        (Forbidden("NATS does not permit it"), 503, "unavailable", "does not permit"),
        (Unanswered("no answer in time"), 503, "unavailable", "same Angarium-Id, order-7"),
    ],
)
async def test_each_answer_of_jetstream_has_a_status(
    api: Api, monkeypatch: pytest.MonkeyPatch, heard: Answer, status: int, name: str, words: str
) -> None:
    async def publish_all(*_: object) -> list[Answer]:
        return [heard]

    async with await api.client() as client:
        monkeypatch.setattr(api.state.access.js, "publish_all", publish_all)
        single = await client.post(EVENTS, headers={"angarium-id": "order-7"})
        items = [{"type": "order", "data": 1, "id": "order-7"}]
        (batched,) = (await client.post("/v1/tenants/acme/events", json=items)).json()["results"]
    assert words in problem(single, status, name)
    assert ("retry-after" in single.headers) == (status == 503)
    assert (batched["status"], batched["type"]) == (status, f"urn:angarium:problem:{name}")
    assert words in batched["detail"]


async def test_a_defect_is_logged_and_hidden_from_the_client(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("hush")

    async with await api.client() as client:
        monkeypatch.setattr(api.state.access.js, "publish_all", break_down)
        for path in (EVENTS, "/v1/tenants/acme/events"):
            answer = await client.post(path, json=[{"type": "a", "data": 1}])
            problem(answer, 500, "internal")
            assert "hush" not in answer.text
    assert [each.getMessage() for each in caplog.records if each.exc_info] == ["api.broken"] * 2


async def test_a_refusal_is_one_line_that_no_terminal_obeys(api: Api) -> None:
    async with await api.client() as client:
        detail = problem(await client.post(f"{EVENTS}%1b[31m%0ax"), 422, "invalid")
    assert detail.isprintable()


async def test_a_body_has_a_limit_with_and_without_a_length(api: Api) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (MAX_BODY // 4)

    async with await api.client() as client:
        whole = await client.post(EVENTS, content=b"x" * MAX_BODY)
        larger = await client.post(EVENTS, content=b"x" * (MAX_BODY + 1))
        chunked = await client.post(EVENTS, content=pieces())
    assert whole.status_code == 202
    problem(larger, 413, "too-large")
    problem(chunked, 413, "too-large")
    assert api.state.limits.held == api.state.limits.requests == 0


async def test_a_token_opens_its_tenant_and_its_scope_alone(api: Api) -> None:
    async with (
        await api.client("acme", ["read"]) as reader,
        await api.client("other") as stranger,
        await api.client("*") as everybody,
        api.client_with("ang_aaaaaaaaaaaa_" + "x" * 43) as unknown_token,
        plain_client(base_url=api.url) as bare,
    ):
        problem(await reader.post(EVENTS, json={}), 404, "not-found")
        problem(await stranger.post(EVENTS, json={}), 404, "not-found")
        assert (await everybody.post(EVENTS, json={})).status_code == 202
        for unknown in (unknown_token, bare):
            answer = await unknown.post(EVENTS, json={})
            problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_token_that_is_revoked_or_has_expired_opens_nothing(api: Api) -> None:
    from angarium.operations.tokens.revoke import revoke

    revoked, expired = await api.token(), await api.token(lasts_s=0.001)
    async with api.client_with(revoked.text) as client, api.client_with(expired.text) as late:
        assert (await client.post(EVENTS, json={})).status_code == 202
        problem(await late.post(EVENTS, json={}), 401, "unauthorized")
        assert await revoke(api.to, revoked.id) is None
        await until_true(lambda: _is(client, 401))


async def _is(client: httpx.AsyncClient, status: int) -> bool:
    return (await client.post(EVENTS, json={})).status_code == status


async def test_the_answer_names_the_rate_of_the_token(api: Api) -> None:
    token = await api.token(rate=2.0)
    async with api.client_with(token.text) as client:
        answers = [await client.post(EVENTS, json={}) for _ in range(3)]
    assert [each.status_code for each in answers] == [202, 202, 429]
    assert answers[0].headers["ratelimit-policy"] == '"token";q=2;w=1'
    assert answers[0].headers["ratelimit"] == '"token";r=1;t=1'
    problem(answers[2], 429, "rate")
    assert answers[2].headers["retry-after"] == "1"


async def test_an_event_names_its_region(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client() as client:
        for path in (EVENTS, BILLING):
            assert (await client.post(path, headers={"angarium-region": "eu-1"})).status_code == 202
            refused = await client.post(path, headers={"angarium-region": "E U"})
            assert refused.json()["errors"] == [
                {"header": "angarium-region", "detail": "1 to 32 of a-z 0-9 -"}
            ]  # fmt: skip
        batch = [
            {"type": "order", "data": 1, "region": "us"}, {"receiver": "billing", "data": 1, "region": "us"},
            {"type": "order", "data": 1, "region": "U S"},
        ]  # fmt: skip
        answer = (await client.post("/v1/tenants/acme/events", json=batch)).json()
    assert [each["status"] for each in answer["results"]] == [202, 202, 422]
    assert answer["results"][2]["errors"] == [{"pointer": "/2/region", "detail": "1 to 32 of a-z 0-9 -"}]
    for stream in (api.names.events, api.names.deliveries):
        regions = [each.headers["Angarium-Region"] for each in await api.stored(stream)]
        assert regions == ["eu-1", "us"]
