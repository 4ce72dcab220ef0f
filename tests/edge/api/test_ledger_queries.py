"""The history over HTTP: from a journal with known facts, through the ledger, to a client."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.pace.pace import HeaderLimit, Pace
from actors.times_as_text import instant_text
from angarium.api.api_state import QUERIES_MAX
from angarium.api.queries import ask_ledger as asking
from angarium.api.routes import ledger_queries
from angarium.ledger.queries import LedgerQueries
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from tests.edge.api.conftest import Api, problem
from tests.support.ledgers import (
    NOW,
    RECEIVER,
    InFile,
    JournalWriter,
    catch_up,
    delivered,
    failed,
    in_file,
    numbered,
    opens,
)
from tests.support.waiting import until

OTHER = "other.billing"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = "/v1/tenants/acme/receivers/billing"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture
def ledger(settings: Settings) -> InFile:
    return in_file(settings.ledger)


@pytest.fixture
async def journal(api: Api) -> JournalWriter:
    journal = JournalWriter(api.js, api.names)
    await journal.flush(opens())
    await journal.flush(opens(OTHER), receiver=OTHER)
    return journal


@pytest.fixture
async def reader(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with await api.client("acme", ["read"]) as client:
        yield client


async def ok(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def paged(client: httpx.AsyncClient, path: str, members: str, **query: Any) -> list[Any]:
    """All members of a list, page by page."""
    page = await ok(client, path, **query)
    found = list(page[members])
    while page["next_cursor"]:
        assert len(page[members]) == query["limit"]
        page = await ok(client, path, **query, cursor=page["next_cursor"])
        found += page[members]
    return found


async def test_attempts_are_filtered_and_come_in_pages(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    statuses = [200, 204, 500, 503, 404, 200, 201, 503]
    for sequence, status in enumerate(statuses, 1):
        outcome = delivered if status < 300 else failed
        kind = "order.paid" if status == 204 else "order.created"
        # Some begin in the same millisecond, on both sides of a page's end.
        fact = outcome(sequence, NOW + sequence // 3, status=status, events=(numbered(sequence, type=kind),))
        await journal.flush(fact)
    await journal.flush(failed(1, receiver=OTHER, answer="of another tenant"), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)

    async def listed(**query: Any) -> list[int]:
        return [each["sequence"] for each in await paged(reader, f"{AT}/attempts", "attempts", **query)]

    everything = await listed()
    assert sorted(everything) == list(range(1, 9))
    for limit in range(1, 9):
        assert await listed(limit=limit) == everything
    assert sorted(await listed(failed=True)) == [3, 4, 5, 8]
    assert sorted(await listed(status="503")) == [4, 8]
    assert sorted(await listed(status="5xx", limit=1)) == [3, 4, 8]
    assert await listed(type="order.paid") == [2]
    for query, words in {
        "status=abc": "status: write a status, such as 503, or a class, such as 5xx",
        "limit=abc": "limit: must be a whole number",
        "limit=0": "limit: must be at least 1",
        "failed=perhaps": "failed: must be true or false",
        "cursor=abc": "cursor: use the `next_cursor` of the previous page",
    }.items():
        assert problem(await reader.get(f"{AT}/attempts?{query}"), 422, "invalid") == words
    assert sorted(await listed(since=instant_text(NOW + 0.9), until=instant_text(NOW + 1.9))) == [3, 4, 5]
    first = (await ok(reader, f"{AT}/attempts", status="503"))["attempts"][0]
    assert (first["event_id"], first["status"], first["latency_ms"]) == ("e8", 503, 12.0)
    assert first["at"].endswith("Z")


async def test_an_answer_says_how_far_behind_the_ledger_is_and_what_it_lacks(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    gone = await journal.flush(delivered(1))
    await api.js.purge(api.names.journal, gone + 1)
    await journal.flush(opens(), delivered(2, NOW + 50))
    await catch_up(api.js, api.names, ledger)
    for path in ("attempts", "history", "audit?since=2026-01-01T00:00:00Z"):
        told = (await ok(reader, f"{AT}/{path}"))["ledger"]
        assert told["behind_s"] == 0.0
        assert [since for since, _ in told["gaps"]] == [None]
    db = sqlite3.connect(ledger.path)
    with db:
        db.execute("UPDATE positions SET seen_at = 0, stored_at = 1000")
    db.close()
    for path in (f"{AT}/attempts", "/v1/tenants/acme/top", "/v1/tenants/acme/events/e2"):
        assert (await ok(reader, path))["ledger"]["behind_s"] > 1e9
    for unknown in ("events/e9", "receivers/nobody/attempts"):
        why = problem(await reader.get(f"/v1/tenants/acme/{unknown}"), 404, "not-found")
        assert "the journal was purged too early; the ledger is " in why
        assert "behind, at 1970-01-01T00:16:40" in why


async def test_an_events_journey_has_no_receiver_of_another_tenant(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    await journal.flush(failed(7, answer="no room"), delivered(7, NOW + 5, attempt=2))
    await journal.flush(opens("acme.zeal"), delivered(7, receiver="acme.zeal"), receiver="acme.zeal")
    await journal.flush(failed(7, receiver=OTHER, answer="their secret"), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)
    journey = await ok(reader, "/v1/tenants/acme/events/e7")
    assert [(each["receiver"], each["state"]) for each in journey["deliveries"]] == [
        ("acme.billing", "delivered"), ("acme.zeal", "delivered"),
    ]  # fmt: skip
    assert [each["answer"] for each in journey["deliveries"][0]["attempts"]] == ["no room", None]
    assert "their secret" not in str(journey)
    in_pages = await paged(reader, "/v1/tenants/acme/events/e7", "deliveries", limit=1)
    assert in_pages == journey["deliveries"]
    async with await api.client("other", ["read"]) as other:
        told = (await ok(other, "/v1/tenants/other/events/e7"))["deliveries"]
        assert [each["receiver"] for each in told] == [OTHER]
        problem(await other.get("/v1/tenants/acme/events/e7"), 404, "not-found")
    for unknown in ("e9", "e8"):
        why = problem(await reader.get(f"/v1/tenants/acme/events/{unknown}"), 404, "not-found")
        assert f"event {unknown} is unknown: it was never published under this id" in why
    for no_id in ("never.an.id", "%00"):
        why = problem(await reader.get(f"/v1/tenants/acme/events/{no_id}"), 404, "not-found")
        assert "an event's id is 1 to 128 of" in why
    told = problem(await reader.get("/v1/tenants/acme/receivers/nobody/history"), 404, "not-found")
    assert "nothing about acme.nobody: nothing was recorded about it, or only before" in told


async def test_the_history_comes_in_pages(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    await StoredConfigurations(api.js, api.names).put(RECEIVER, b'{"url": "https://example.com/"}')
    for minute in range(3):
        at = NOW + 60 * minute
        await journal.flush(f.Paused(receiver=RECEIVER, at=at), f.Resumed(receiver=RECEIVER, at=at))
    await catch_up(api.js, api.names, ledger)
    told = await ok(reader, f"{AT}/history")
    assert told["now"] == "not paused, disabled or failing"
    assert "configuration put (revision 1), by an unknown NATS client" in [
        each["what"] for each in told["entries"]
    ]
    for limit in range(1, 9):
        assert await paged(reader, f"{AT}/history", "entries", limit=limit) == told["entries"]
    since = instant_text(NOW + 60)
    assert len(await paged(reader, f"{AT}/history", "entries", limit=1, since=since)) == 4


async def test_the_audit_and_the_worst(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    await journal.flush(f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)), failed(1, NOW + 1))
    pace = Pace(told=HeaderLimit(2.5, NOW + 5))
    await journal.flush(
        f.PaceSet(receiver=RECEIVER, at=NOW + 2, pace=pace, per_second=2.5, limited_by="headers")
    )
    await journal.flush(*(delivered(sequence, NOW + 10) for sequence in range(2, 30)))
    await journal.flush(failed(1, receiver=OTHER), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)
    span = {"since": instant_text(NOW), "until": instant_text(NOW + 60)}
    audit = await ok(reader, f"{AT}/audit", **span)
    assert (audit["verdict"], audit["attempts"], audit["since"]) == ("exceeded", 29, span["since"])
    learnt = [(each["learnt_min"], each["learnt_max"], each["limited_by"]) for each in audit["chart"]]
    assert (learnt[0], learnt[3]) == ((None, None, None), (2.5, 2.5, "headers"))
    assert (await ok(reader, f"{AT}/audit"))["attempts"] == 0
    worst = await ok(reader, "/v1/tenants/acme/top", within_s=86_400)
    assert [each["receiver"] for each in worst["failing"] + worst["late"]] == [RECEIVER]


async def test_an_audit_of_too_many_attempts_is_refused(
    api: Api,
    journal: JournalWriter,
    ledger: InFile,
    reader: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_queries, "AUDITED_MAX", 4)
    await journal.flush(f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)))
    await journal.flush(*(delivered(sequence, NOW + sequence) for sequence in range(1, 7)))
    await catch_up(api.js, api.names, ledger)
    span = {"since": instant_text(NOW), "until": instant_text(NOW + 60)}
    problem(await reader.get(f"{AT}/audit", params=span), 409, "refused")
    until = instant_text(NOW + 3)
    assert (await ok(reader, f"{AT}/audit", since=span["since"], until=until))["attempts"] == 3


async def test_minutes_come_in_pages_and_of_the_last_hour_unless_said_otherwise(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    begin = NOW - NOW % 60 + 90
    for minute in range(5):
        at = begin + 60 * (minute + (minute > 2))  # In one minute nothing happens.
        await journal.flush(failed(minute + 1, at), delivered(minute + 1, at + 1, attempt=2))
    await journal.flush(delivered(1, time.time() - 1800), delivered(2, time.time() - 4000))
    await journal.flush(failed(9, receiver=OTHER), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)
    span = {"since": instant_text(NOW), "until": instant_text(NOW + 600)}
    told = await ok(reader, f"{AT}/minutes", **span)
    assert (told["receiver"], told["next_cursor"]) == (RECEIVER, None)
    counts = [(each["attempts"], each["failed"], each["delivered"]) for each in told["minutes"]]
    assert counts == [(2, 1, 1)] * 5
    starts = [each["at"] for each in told["minutes"]]
    assert starts == sorted(starts)
    for limit in range(1, 7):
        assert await paged(reader, f"{AT}/minutes", "minutes", limit=limit, **span) == told["minutes"]
    assert sum(each["attempts"] for each in (await ok(reader, f"{AT}/minutes"))["minutes"]) == 1
    for path in ("minutes?limit=0", "minutes?limit=201", "minutes?cursor=zzz", "minutes?since=soon"):
        problem(await reader.get(f"{AT}/{path}"), 422, "invalid")


async def test_the_state_at_a_past_time(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient
) -> None:
    ago_s, now = 3600.0, time.time()
    receiver, path = "acme.past", "/v1/tenants/acme/receivers/past/state"
    journal.at = now - ago_s
    await journal.flush(f.Opened(receiver=receiver, at=journal.at, position=0), receiver=receiver)
    await journal.flush(f.Disabled(receiver=receiver, at=journal.at, reason="gone"), receiver=receiver)
    await catch_up(api.js, api.names, ledger)
    at = instant_text(now - ago_s / 2)
    then = await ok(reader, path, at=at)
    assert (then["receiver"], then["at"], then["phase"]) == (receiver, at, "disabled")
    assert then["ledger"]["gaps"] == []
    problem(await reader.get(path, params={"at": "2020-01-01T00:00:00Z"}), 404, "not-found")
    problem(await reader.get(path, params={"at": instant_text(now + ago_s)}), 422, "invalid")


@pytest.mark.parametrize(("kind", "secrets"), [("hmac", [SECRET]), ("cloudevents", [])])
async def test_the_past_state_of_a_receiver_that_proved_itself_is_verified(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient, kind: str, secrets: list[str]
) -> None:
    """The ledger has neither the URL nor the secrets that the handshake was about."""
    receiver, path = "acme.proved", "/v1/tenants/acme/receivers/proved/state"
    members = {"url": "https://example.com/", "handshake": kind, "secrets": secrets}
    await StoredConfigurations(api.js, api.names).put(receiver, msgspec.json.encode(members))
    journal.at = time.time() - 1
    await journal.flush(
        f.Opened(receiver=receiver, at=journal.at, position=0),
        f.HandshakeStarted(receiver=receiver, at=journal.at, key="k"),
        f.HandshakeSucceeded(receiver=receiver, at=journal.at, key="k", per_minute=120),
        receiver=receiver,
    )
    await catch_up(api.js, api.names, ledger)
    then = await ok(reader, path, at=instant_text(time.time()))
    assert (then["phase"], then["handshake"]["kind"], then["handshake"]["verified"]) == ("idle", kind, True)
    assert SECRET not in msgspec.json.encode(then).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        "attempts?status=5", "attempts?status=6xx", "attempts?type=a..b", "attempts?limit=0",
        "attempts?limit=201", "attempts?cursor=x", "attempts?since=yesterday", "attempts?since=0.5",
        "attempts?since=2026-13-01T00:00:00Z", "audit?until=0001-01-01T00:00:00Z",
        "attempts?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "history?cursor=1-",
        "audit?until=x",
        "state?at=soon",
        "state?at=2026-01-01T00:00:00Z&health=true",
    ],
)  # fmt: skip
async def test_an_invalid_question_is_refused_with_the_reason(reader: httpx.AsyncClient, wrong: str) -> None:
    answer = await reader.get(f"{AT}/{wrong}")
    problem(answer, 422, "invalid")
    assert answer.json()["errors"][0]["parameter"] in wrong


@pytest.mark.parametrize("path", ["audit", "minutes"])
async def test_the_last_hour_before_the_year_10000_is_an_answer(
    api: Api, journal: JournalWriter, ledger: InFile, reader: httpx.AsyncClient, path: str
) -> None:
    """A time with a zone behind UTC may be in the year 10000 of UTC."""
    await journal.flush(delivered(1))
    await catch_up(api.js, api.names, ledger)
    await ok(reader, f"{AT}/{path}", until="9999-12-31T23:59:59-23:59")


async def test_without_a_ledger_it_is_said_without_a_path(
    api: Api, reader: httpx.AsyncClient, ledger: InFile, caplog: pytest.LogCaptureFixture
) -> None:
    detail = problem(await reader.get(f"{AT}/attempts"), 503, "unavailable")
    assert "ANGARIUM_LEDGER" in detail
    assert str(ledger.path.parent) not in detail
    (line,) = [each for each in caplog.records if each.message == "api.no_ledger"]
    assert str(ledger.path) in str(line.__dict__["why"])


async def test_a_tenants_slow_queries_keep_no_other_one_waiting(
    api: Api,
    journal: JournalWriter,
    ledger: InFile,
    reader: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant has a quarter of the places; each query ends by itself, and the loop continues."""
    await journal.flush(delivered(1))
    await journal.flush(delivered(1, receiver=OTHER), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)
    number = await _number(ledger, RECEIVER)
    quick = LedgerQueries.changes

    async def slow(self: LedgerQueries, receiver: int, *more: int) -> Any:
        return await (self.rows(ENDLESS) if receiver == number else quick(self, receiver, *more))

    monkeypatch.setattr(LedgerQueries, "changes", slow)
    monkeypatch.setattr(asking, "QUERY_TIMEOUT_S", 1.0)
    share = QUERIES_MAX // 4
    asked = [asyncio.ensure_future(reader.get(f"{AT}/history")) for _ in range(share)]
    await until(lambda: api.state.query_limits.requests == share)
    problem(await reader.get(f"{AT}/history"), 503, "unavailable")
    async with await api.client("other", ["read"]) as other:
        assert (await ok(other, "/v1/tenants/other/receivers/billing/history"))[
            "now"
        ] == "not paused, disabled or failing"
    for each in await asyncio.gather(*asked):
        assert "within 1 s" in problem(each, 503, "unavailable")
    assert api.state.query_limits.requests == 0


async def test_a_tenant_has_one_audit_at_a_time(
    api: Api,
    journal: JournalWriter,
    ledger: InFile,
    reader: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await journal.flush(delivered(1))
    await journal.flush(delivered(1, receiver=OTHER), receiver=OTHER)
    await catch_up(api.js, api.names, ledger)
    number, starts, go_on = await _number(ledger, RECEIVER), LedgerQueries.starts, asyncio.Event()

    async def held(self: LedgerQueries, receiver: int, *more: int) -> list[int]:
        if receiver == number:
            await go_on.wait()
        return await starts(self, receiver, *more)

    monkeypatch.setattr(LedgerQueries, "starts", held)
    first = asyncio.ensure_future(reader.get(f"{AT}/audit"))
    await until(lambda: api.state.audit_limits.requests == 1)
    problem(await reader.get(f"{AT}/audit"), 503, "unavailable")
    async with await api.client("other", ["read"]) as other:
        await ok(other, "/v1/tenants/other/receivers/billing/audit")
    go_on.set()
    assert (await first).status_code == 200


async def _number(ledger: InFile, receiver: str) -> int:
    db = sqlite3.connect(ledger.path)
    (number,) = db.execute("SELECT id FROM receivers WHERE name = ?", (receiver,)).fetchone()
    db.close()
    return int(number)
