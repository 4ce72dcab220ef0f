"""Batches over HTTP: in order, answered item by item, refused as a whole only for common faults."""

import asyncio
import json
import time

import pytest

from angarium.api.routes import batches
from streams.nats.wire_names import EVENT_ID, EVENT_TYPE, MESSAGE_ID
from streams.reading.messages import type_problem
from tests.edge.api.conftest import MAX_BODY, Api, problem

PATH = "/v1/tenants/acme/events"
LINES = {"content-type": "application/x-ndjson"}


async def test_the_events_of_a_batch_are_stored_in_their_order(api: Api) -> None:
    await api.receiver("acme.billing", events=["order.>"])
    batch = [{"type": f"order.n{number % 3}", "data": {"n": number}} for number in range(1000)]
    async with await api.client() as client:
        answer = await client.post(PATH, json=batch)
    told = answer.json()
    assert (answer.status_code, told["accepted"], told["refused"]) == (202, 1000, 0)
    assert [each["seq"] for each in told["results"]] == list(range(1, 1001))
    assert {each["matched"] for each in told["results"]} == {1}
    messages = await api.stored(api.names.events)
    assert [json.loads(each.data)["n"] for each in messages] == list(range(len(messages)))


async def test_lines_go_as_well_and_data_stays_as_it_was_written(api: Api) -> None:
    await api.receiver("acme.billing")
    body = b"""{"type": "order.created", "data": {"a" :1.0e2,  "b":[ ]}, "id": "order-7"}

{"receiver": "billing", "data": "text"}
"""
    async with await api.client() as client:
        answer = await client.post(PATH, content=body, headers=LINES)
    assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
    (event,) = await api.stored(api.names.events)
    (delivery,) = await api.stored(api.names.deliveries)
    assert (event.data, event.headers[EVENT_ID]) == (b'{"a" :1.0e2,  "b":[ ]}', "order-7")
    assert event.headers[MESSAGE_ID] == "acme:order-7"
    assert (delivery.data, delivery.headers[EVENT_TYPE]) == (b'"text"', "message")


async def test_each_event_that_cannot_be_published_says_why_and_the_others_are(api: Api) -> None:
    items = [
        ({"type": "a", "data": 1}, 202, None),
        ({"type": "a..b", "data": 1}, 422, "/1/type"),
        ({"type": "a"}, 422, "/2/data"),
        ({"data": 1}, 422, "/3/type"),
        ({"type": "a", "data": 1, "id": "a b"}, 422, "/4/id"),
        ({"type": "a", "data": 1, "more": 1}, 422, "/5/more"),
        ({"type": 7, "data": 1}, 422, "/6/type"),
        ({"data": 1, "receiver": "nobody"}, 404, None),
        ({"type": "a", "data": "x" * MAX_BODY}, 413, None),
        ("text", 422, "/9"),
        ({"type": "a", "data": 2}, 202, None),
    ]
    async with await api.client() as client:
        answer = await client.post(PATH, json=[each for each, _, _ in items])
    told = answer.json()
    assert (answer.status_code, told["accepted"], told["refused"]) == (207, 2, 9)
    for result, (item, status, pointer) in zip(told["results"], items, strict=True):
        assert result["status"] == status, (item, result)
        if pointer is not None:
            assert result["errors"][0]["pointer"] == pointer, (item, result)
    assert [each.data for each in await api.stored(api.names.events)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("content", "media", "status", "name"),
    [
        (b"[1", "application/json", 400, "not-json"),
        (b'{"type":"a"', "application/json", 400, "not-json"),
        (b'{"type":"a"}', "application/json", 422, "invalid"),
        (b"[" * 100_000, "application/json", 400, "not-json"),
        (b"\xff", "application/json", 400, "not-json"),
        (b"{}", "application/json", 422, "invalid"),
        (b"[" + b",".join([b"1"] * 1001) + b"]", "application/json", 422, "invalid"),
        (b"1\n" * 1001, "application/x-ndjson", 422, "invalid"),
        (b"\n" * 2001, "application/x-ndjson", 422, "invalid"),
        (b"[" + b"1," * 1001 + b"x]", "application/json", 422, "invalid"),
        (b"1", "application/json", 422, "invalid"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "unsupported"),
        (b" " * ((8 << 20) + 1), "application/json", 413, "too-large"),
    ],
)
async def test_an_invalid_batch_is_refused_as_a_whole(
    api: Api, content: bytes, media: str, status: int, name: str
) -> None:
    async with await api.client() as client:
        answer = await client.post(PATH, content=content, headers={"content-type": media})
    problem(answer, status, name)
    assert await api.stored(api.names.events) == []


async def test_a_thousand_events_and_as_many_empty_lines_are_taken(api: Api) -> None:
    line = b'{"type": "a", "data": null}\n\n'
    async with await api.client() as client:
        for content, headers in ((line * 1000, LINES), (b"[" + b",".join([line] * 1000) + b"]", {})):
            answer = await client.post(PATH, content=content, headers=headers)
            assert (answer.status_code, answer.json()["accepted"]) == (202, 1000)
        for content, headers in ((b"[]", {}), (b"", LINES)):
            answer = await client.post(PATH, content=content, headers=headers)
            assert (answer.status_code, answer.json()["results"]) == (202, [])


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"[" + b"1," * ((4 << 20) - 2) + b"1]", {}),
        (b"[" + b'"a",' * ((2 << 20) - 2) + b"1]", {}),
        (b"1\n" * (4 << 20), LINES),
        (b"\n" * (8 << 20), LINES),
    ],
    ids=["numbers", "texts", "lines", "empty lines"],
)
async def test_a_batch_of_millions_holds_no_other_request_up(
    api: Api, content: bytes, headers: dict[str, str]
) -> None:
    """The loop computes for some milliseconds; 0.2 to 0.6 s if all of them were decoded."""
    longest, over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not over:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    async with await api.client() as client:
        watching = asyncio.create_task(watch())
        answer = await client.post(PATH, content=content, headers=headers)
        over = True
        await watching
    assert "at most 1000 events" in problem(answer, 422, "invalid")
    assert longest < 0.1


async def test_others_have_their_turn_while_a_large_batch_is_decoded(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PIECE_BYTES", 100)
    checked, turns, check, over = 0, set[int](), type_problem, False

    def counted(event_type: str) -> str | None:
        nonlocal checked
        checked += 1
        return check(event_type)

    async def take_turns() -> None:
        while not over:
            turns.add(checked)
            await asyncio.sleep(0)

    monkeypatch.setattr("angarium.api.routes.batches.type_problem", counted)
    async with await api.client() as client:
        others = asyncio.create_task(take_turns())
        answer = await client.post(PATH, json=[{"type": "a", "data": "x" * 60}] * 10)
        over = True
        await others
    assert (answer.status_code, checked) == (202, 10)
    assert len(turns) > 4


async def test_a_batch_counts_by_its_events_for_a_rate(api: Api) -> None:
    token = await api.token(rate=5.0)
    async with api.client_with(token.text) as client:
        first = await client.post(PATH, json=[{"type": "a", "data": 1}] * 20)
        second = await client.post(PATH, json=[{"type": "a", "data": 1}])
    assert first.status_code == 202
    problem(second, 429, "rate")
    assert int(second.headers["retry-after"]) >= 3
