"""Timed events over HTTP: published, listed, cancelled. The tests store entries as a node does."""

import time

import msgspec
import pytest

from actors.errors import Unavailable
from actors.ids import stable_hash
from actors.times_as_text import instant_text
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import DELIVER_AT, EVENT_TYPE, ONLY_FOR, TAKEN
from tests.edge.api.conftest import Api, problem

EVENTS = "/v1/tenants/acme/events"
LATER = "/v1/tenants/acme/later"
DAY_S = 86_400


async def put_entry(api: Api, event: str, in_s: int, source: int, **headers: str) -> str:
    """Store an entry, as a router does; returns its subject."""
    at = int(time.time()) + in_s
    when = f"{at // DAY_S}.{at // 3600 % 24}.{at // 60 % 60}.{at % 60}"
    subject = f"{api.names.prefix}.later.0.{when}.acme.{stable_hash(event)}.{source}"
    given = {
        "Angarium-Id": event, EVENT_TYPE: "order.created", "Angarium-Published": "1795000000.000",
        DELIVER_AT: instant_text(at),
    }  # fmt: skip
    assert isinstance(await api.js.publish(subject, b"{}", given | headers), Stored)
    return subject


async def test_an_event_with_a_time_is_stored_with_it(api: Api) -> None:
    await api.receiver("acme.billing")
    at = instant_text(time.time() + 60)
    async with await api.client() as client:
        for_all = await client.post(f"{EVENTS}/order.created", json={}, headers={DELIVER_AT: at})
        for_one = await client.post(
            "/v1/tenants/acme/receivers/billing/events/order.paid", json={}, headers={DELIVER_AT: at}
        )
        batch = await client.post(EVENTS, json=[{"type": "a", "data": 1, "deliver_at": at}])
    assert [each.status_code for each in (for_all, for_one, batch)] == [202, 202, 202]
    assert for_one.json()["stream"] == api.names.events
    first, second, third = await api.stored(api.names.events)
    assert [each.headers[DELIVER_AT] for each in (first, second, third)] == [at] * 3
    assert (second.headers[ONLY_FOR], ONLY_FOR in first.headers) == ("billing", False)
    assert second.subject.endswith(".acme.order.paid")


@pytest.mark.parametrize("text", ["tomorrow", "2026-12-24", "2026-12-24T18:00:00", "2999-01-01T00:00:00Z"])
async def test_a_time_that_cannot_be_kept_is_refused(api: Api, text: str) -> None:
    async with await api.client() as client:
        one = await client.post(f"{EVENTS}/a", json={}, headers={DELIVER_AT: text})
        batch = await client.post(EVENTS, json=[{"type": "a", "data": 1, "deliver_at": text}])
    assert one.json()["errors"][0]["header"] == "angarium-deliver-at"
    assert problem(one, 422, "invalid")
    (refused,) = batch.json()["results"]
    assert (refused["status"], refused["errors"][0]["pointer"]) == (422, "/0/deliver_at")
    assert await api.stored(api.names.events) == []


async def test_waiting_events_are_listed_page_by_page(api: Api) -> None:
    await put_entry(api, "second", 120, 1)
    await put_entry(api, "first", 60, 2, **{ONLY_FOR: "billing"})
    async with await api.client(scopes=["read"]) as client:
        first = (await client.get(LATER, params={"limit": 1})).json()
        second = (await client.get(LATER, params={"limit": 1, "cursor": first["next_cursor"]})).json()
        for_one = (await client.get(LATER, params={"receiver": "billing"})).json()
        assert problem(await client.get("/v1/tenants/other/later"), 404, "not-found")
        assert problem(await client.get(LATER, params={"cursor": "x"}), 422, "invalid")
        for_none = await client.get(LATER, params={"receiver": "a.b"})
    assert problem(for_none, 422, "invalid")
    assert for_none.json()["detail"] == "receiver: write a name of 1 to 64 of A-Z a-z 0-9 _ -"
    assert [each["id"] for each in first["events"] + second["events"]] == ["first", "second"]
    assert (second["next_cursor"], for_one["events"]) == (None, first["events"])
    assert first["events"][0]["due_at"] == first["events"][0]["deliver_at"]
    assert first["events"][0] | {"deliver_at": "", "due_at": ""} == {
        "id": "first", "tenant": "acme", "type": "order.created", "deliver_at": "", "due_at": "",
        "receiver": "billing", "published_at": "2026-11-18T11:06:40.000Z", "bytes": 2,
    }  # fmt: skip


async def test_an_event_of_another_tenant_is_neither_listed_nor_cancelled(api: Api) -> None:
    await put_entry(api, "order-7", 60, 1)
    async with await api.client("*", ["read", "publish"]) as client:
        assert (await client.get("/v1/tenants/other/later")).json()["events"] == []
        problem(await client.delete("/v1/tenants/other/later/order-7"), 404, "not-found")
        (still,) = (await client.get(LATER)).json()["events"]
    assert still["id"] == "order-7"


async def test_a_waiting_event_is_cancelled_once_and_for_all(api: Api) -> None:
    subject = await put_entry(api, "order-7", 60, 1)
    async with await api.client(scopes=["publish"]) as client:
        done = await client.delete(f"{LATER}/order-7")
        again = await client.delete(f"{LATER}/order-7")
        assert problem(await client.delete(f"{LATER}/none"), 404, "not-found")
        assert problem(await client.delete("/v1/tenants/other/later/order-7"), 404, "not-found")
    assert (done.status_code, [each["id"] for each in done.json()["cancelled"]]) == (200, ["order-7"])
    assert again.json() == {"cancelled": [], "before": 1, "too_late": 0}
    stub = await api.js.last_message(api.names.later, subject)
    assert stub is not None
    assert stub.headers["Angarium-Cancelled"]


async def test_a_token_that_may_only_read_cancels_nothing(api: Api) -> None:
    await put_entry(api, "order-7", 60, 1)
    async with await api.client(scopes=["read"]) as client:
        assert problem(await client.delete(f"{LATER}/order-7"), 404, "not-found")
        assert len((await client.get(LATER)).json()["events"]) == 1


async def test_an_event_that_was_taken_is_not_cancelled(api: Api) -> None:
    subject = await put_entry(api, "order-7", 60, 1)
    assert isinstance(await api.js.publish(subject, b"", {TAKEN: "17"}), Stored)
    async with await api.client() as client:
        assert problem(await client.delete(f"{LATER}/order-7"), 409, "refused")


async def test_a_repeat_is_recognised_whose_time_is_no_full_millisecond(api: Api) -> None:
    """The event is due a second later than its time says without the microseconds."""
    second = int(time.time()) + 60
    headers = {DELIVER_AT: f"{instant_text(second)[:19]}.000001Z", "Angarium-Id": "R1"}
    async with await api.client() as client:
        answers = [await client.post(f"{EVENTS}/a", json={}, headers=headers) for _ in range(2)]
        item = {"type": "a", "data": 1, "id": "R1", "deliver_at": headers[DELIVER_AT]}
        batch = await client.post(EVENTS, json=[item])
    assert [each.status_code for each in (*answers, batch)] == [202, 202, 202]
    (stored,) = await api.stored(api.names.events)
    assert stored.headers[DELIVER_AT] == headers[DELIVER_AT]


async def test_a_repeat_for_another_time_is_refused(api: Api) -> None:
    """JetStream compares only the id: so the answer 202 would promise a delivery that never comes."""
    first, other = (instant_text(time.time() + each) for each in (60, 120))
    async with await api.client() as client:

        async def publish(at: str) -> int:
            headers = {DELIVER_AT: at, "Angarium-Id": "R1"}
            return (await client.post(f"{EVENTS}/a", json={}, headers=headers)).status_code

        assert [await publish(first), await publish(first), await publish(other)] == [202, 202, 409]
        item = {"type": "a", "data": 1, "id": "R1"}
        batch = await client.post(EVENTS, json=[item | {"deliver_at": each} for each in (other, first)])
        keyed = [
            await client.post(f"{EVENTS}/a", json={}, headers={DELIVER_AT: each, "Idempotency-Key": "K"})
            for each in (first, first, other)
        ]
    refused, repeated = batch.json()["results"]
    assert (refused["status"], repeated["status"], repeated["duplicate"]) == (409, 202, True)
    assert refused["detail"].startswith(f"an event with this id waits for another time, {first}")
    assert [each.status_code for each in keyed] == [202, 202, 409]
    assert len(await api.stored(api.names.events)) == 2


async def test_a_time_for_an_event_that_was_published_without_one_is_refused(api: Api) -> None:
    headers = {"Angarium-Id": "R1"}
    async with await api.client() as client:
        assert (await client.post(f"{EVENTS}/a", json={}, headers=headers)).status_code == 202
        timed = headers | {DELIVER_AT: instant_text(time.time() + 60)}
        refused = await client.post(f"{EVENTS}/a", json={}, headers=timed)
    assert "published without a time; use another id" in problem(refused, 409, "conflict")


async def test_a_repeat_of_a_cancelled_event_is_refused(api: Api) -> None:
    """An event of the same id and time that was cancelled before does not count."""
    first = await put_entry(api, "R1", 60, 1)
    address = api.names.timed_subjects.address(first)
    headers = {DELIVER_AT: instant_text(address.second), "Angarium-Id": "R1"}
    async with await api.client() as client:
        assert (await client.delete(f"{LATER}/R1")).status_code == 200
        await client.post(f"{EVENTS}/a", json={})
        stored = await client.post(f"{EVENTS}/a", json={}, headers=headers)
        assert (stored.json()["seq"], stored.json()["duplicate"]) == (2, False)
        entry = await api.js.last_message(api.names.later, await put_entry(api, "R1", 60, 2))
        assert entry is not None
        second = api.names.timed_subjects.entry(msgspec.structs.replace(address, source=2))
        assert isinstance(await api.js.publish(second, b"{}", entry.headers), Stored)
        assert (await client.post(f"{EVENTS}/a", json={}, headers=headers)).status_code == 202
        assert (await client.delete(f"{LATER}/R1")).status_code == 200
        refused = await client.post(f"{EVENTS}/a", json={}, headers=headers)
        assert "was cancelled; use another id" in problem(refused, 409, "conflict")


async def test_a_repeat_is_no_success_if_the_stored_event_cannot_be_compared(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {DELIVER_AT: instant_text(time.time() + 60), "Angarium-Id": "R1"}

    async def unanswered(*_: object) -> None:
        raise Unavailable("no answer")

    async with await api.client() as client:
        assert (await client.post(f"{EVENTS}/a", json={}, headers=headers)).status_code == 202
        with monkeypatch.context() as patched:
            patched.setattr(JetStream, "message", unanswered)
            answer = await client.post(f"{EVENTS}/a", json={}, headers=headers)
            assert "its time could not be read (no answer)" in problem(answer, 503, "unavailable")
        assert await api.js.delete(api.names.events, 1)
        answer = await client.post(f"{EVENTS}/a", json={}, headers=headers)
    assert "its time is no longer known; use another id" in problem(answer, 409, "conflict")
