"""Dead letters over HTTP: only their own tenant sees, drops and redrives them, and each is sent once."""

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import get_args

import httpx
import pytest

from actors.machine.facts import Burial
from angarium.access import Access
from angarium.api.openapi.dead_letters import Reason
from angarium.api.requests.request_limits import TENANTS_MIN, RequestLimits
from angarium.api.routes import dead_letters
from angarium.operations.dead_letters import listing
from angarium.operations.dead_letters import redrive as redrives
from angarium.operations.dead_letters.redrive import RedrivenLetters
from streams.clock import SystemTime
from streams.dead_letters import letters
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import REASONS, DeadLetters, Letter
from streams.nats.wire_names import EVENT_ID
from streams.resending.redrive import Redriven
from streams.resending.redrive_lock import RedriveLock
from tests.edge.api.conftest import LETTERS, Api, manager, problem
from tests.support.installation import publish
from tests.support.processes.commands import Terminal
from tests.support.waiting import until

BILLING = "/v1/tenants/acme/receivers/billing"


def numbers(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [each["number"] for each in answer.json()["letters"]]


async def test_letters_are_listed_the_newest_first_and_page_by_page(api: Api) -> None:
    for number in range(1, 6):
        await api.bury("acme.billing", number, "rejected" if number == 3 else "expired")
    await api.bury("other.billing", 6)
    await api.bury("acme.mail", 7)
    async with await manager(api) as client:
        pages: list[list[int]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = await client.get(LETTERS, params={"limit": "4"} | cursor)
            pages.append(numbers(answer))
            if (following := answer.json()["next_cursor"]) is None:
                break
            cursor = {"cursor": following}
        assert pages == [[7, 5, 4, 3], [2, 1]]
        assert numbers(await client.get(LETTERS, params={"receiver": "mail"})) == [7]
        assert numbers(await client.get(LETTERS, params={"reason": "rejected"})) == [3]
        assert numbers(await client.get(LETTERS, params={"until": "2001-01-01T00:00:00Z"})) == []
        assert numbers(await client.get(LETTERS, params={"since": "0001-01-01T00:00:00Z", "limit": 1})) == [7]
        assert numbers(await client.get(LETTERS, params={"since": "9999-01-01T00:00:00Z"})) == []


async def test_a_page_ends_where_much_was_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short page says by its cursor that it is one."""
    monkeypatch.setattr(listing, "PAGES_BYTES_MAX", 1)
    monkeypatch.setattr(letters, "SPAN_MIN", 2)
    for number in range(1, 6):
        await api.bury("acme.billing", number)
    async with await manager(api) as client:
        first = await client.get(LETTERS)
        rest = await client.get(LETTERS, params={"cursor": first.json()["next_cursor"]})
    assert (numbers(first), numbers(rest)) == ([5, 4], [3, 2])


async def test_one_tenants_reads_of_letters_leave_room_for_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.state.letter_limits = RequestLimits(TENANTS_MIN)
    await api.bury("acme.billing", 1)
    await api.bury("other.billing", 2)
    theirs = LETTERS.replace("acme", "other")
    reads, go_on = list[int](), asyncio.Event()
    letter = DeadLetters.letter

    async def held(self: DeadLetters, position: int) -> Letter | None:
        reads.append(position)
        await go_on.wait()
        return await letter(self, position)

    async with await manager(api) as client, await manager(api, "other") as other:
        monkeypatch.setattr(DeadLetters, "letter", held)
        first = asyncio.create_task(client.get(f"{LETTERS}/1"))
        await until(lambda: bool(reads))
        for refused in (
            client.get(LETTERS), client.get(f"{LETTERS}/1"), client.delete(f"{LETTERS}/1"),
            client.post(f"{LETTERS}/redrive", json={"numbers": [1]}),
        ):  # fmt: skip
            assert "too many requests" in problem(await refused, 503, "unavailable")
        assert numbers(await other.get(theirs)) == [2]
        go_on.set()
        assert (await first).status_code == 200
        assert numbers(await client.get(LETTERS)) == [1]


async def test_a_time_of_the_year_10000_is_the_last_one(api: Api) -> None:
    await api.bury("acme.billing", 1)
    await api.receiver("acme.billing")
    late = "9999-12-31T23:59:59-23:59"
    async with await manager(api) as client:
        assert numbers(await client.get(LETTERS, params={"until": late})) == [1]
        sent = await client.post(f"{LETTERS}/redrive", json={"receiver": "billing", "since": late})
        replayed = await client.post(f"{BILLING}/replay", json={"since": late, "dry_run": True})
    assert (sent.status_code, sent.json()["redriven"]) == (200, 0)
    assert replayed.status_code in (200, 422), replayed.text


async def test_tenants_take_turns_at_redriving(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """All redrives share one lock: a tenant with many requests makes the others wait for only one of them."""
    for number in range(1, 5):
        await api.bury("acme.billing", number)
    await api.bury("other.billing", 5)
    order, go_on = list[int](), asyncio.Event()

    async def held(access: Access, positions: Collection[int], patience_s: float) -> RedrivenLetters:
        order.extend(positions)
        await go_on.wait()
        return RedrivenLetters(Redriven(), [])

    monkeypatch.setattr(dead_letters, "redrive", held)
    theirs = LETTERS.replace("acme", "other")
    async with await manager(api) as client, await api.client("other", ["manage"]) as other:
        requests = [
            asyncio.create_task(client.post(f"{LETTERS}/redrive", json={"numbers": [number]}))
            for number in range(1, 5)
        ]
        await until(lambda: api.state.control_limits.requests == 4 and len(order) == 1)
        requests.append(asyncio.create_task(other.post(f"{theirs}/redrive", json={"numbers": [5]})))
        await until(lambda: api.state.control_limits.requests == 5)
        go_on.set()
        assert [(await each).status_code for each in requests] == [200] * 5
    assert order[1] == 5


async def test_a_redrive_waits_for_those_of_other_processes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's redrives in another process get no tenant 409."""
    monkeypatch.setattr(redrives, "RedriveLock", partial(RedriveLock, lease_s=0.2))
    await api.receiver("other.billing")
    await api.bury("other.billing", 1)
    rival = RedriveLock(api.js, api.names, "rival", SystemTime())
    held = asyncio.Event()

    async def redrives_all_the_time() -> None:
        while True:
            await rival.acquire()
            for _ in range(10):
                held.set()
                await asyncio.sleep(0.05)
                await rival.store()
            await rival.store(held=False)
            await asyncio.sleep(0.1)

    working = asyncio.create_task(redrives_all_the_time())
    await held.wait()
    async with await api.client("other", ["manage"]) as other:
        sent = await other.post(f"{LETTERS.replace('acme', 'other')}/redrive", json={"numbers": [1]})
    working.cancel()
    assert (sent.status_code, sent.json().get("redriven")) == (200, 1), sent.text


async def test_a_letter_is_shown_whole(api: Api) -> None:
    await api.bury("acme.billing", 1, body=b'{"order": 7}')
    await api.bury("acme.billing", 2, body=b"\xff")
    async with await manager(api) as client:
        text, binary = [(await client.get(f"{LETTERS}/{number}")).json() for number in (1, 2)]
    assert text.items() >= {
        "number": 1, "receiver": "acme.billing", "sequence": 1, "reason": "expired", "attempts": 3,
        "status": 500, "id": "e1", "bytes": 12, "body": '{"order": 7}', "body_base64": None,
    }.items()  # fmt: skip
    assert (binary["body"], binary["body_base64"]) == (None, "/w==")


async def test_a_letter_is_shown_as_its_receiver_would_have_got_it(api: Api) -> None:
    """The API shows no more of a body than the receiver may have."""
    await api.bury("acme.billing", 1, body=b'{"order": 7}')
    async with await manager(api) as client:
        await client.put(BILLING, json={"url": "https://example.com/hook", "transform": {"drop": ["/order"]}})
        shaped = (await client.get(f"{LETTERS}/1")).json()
        assert (shaped["body"], shaped["body_hidden"]) == ("{}", None)
        await api.bury("acme.billing", 2, body=b"order 2")
        hidden = (await client.get(f"{LETTERS}/2")).json()
    assert (hidden["body"], hidden["body_base64"]) == (None, None)
    assert hidden["body_hidden"] == "the body is not shown: it is not JSON in UTF-8, so it cannot be shaped"


async def test_a_dropped_letter_no_longer_exists(api: Api) -> None:
    await api.bury("acme.billing", 1)
    async with await manager(api) as client:
        assert (await client.delete(f"{LETTERS}/1")).json()["number"] == 1
        assert problem(await client.delete(f"{LETTERS}/1"), 404, "not-found") == "there is no letter 1"
        problem(await client.get(f"{LETTERS}/1"), 404, "not-found")


async def test_letters_are_sent_again_once_and_page_by_page(api: Api) -> None:
    await api.receiver("acme.billing")
    for number in range(1, 6):
        await api.bury("acme.billing", number)
    await api.bury("other.billing", 6)
    async with await manager(api) as client:
        named = await client.post(f"{LETTERS}/redrive", json={"numbers": [2, 2, 6, 99]})
        first = await client.post(f"{LETTERS}/redrive", json={"receiver": "billing", "limit": 3})
        rest = await client.post(
            f"{LETTERS}/redrive", json={"receiver": "billing", "cursor": first.json()["next_cursor"]}
        )
        nothing = await client.post(f"{LETTERS}/redrive", json={"all": True})
    none: dict[str, object] = {"left": {}, "missing": [], "stopped": None, "next_cursor": None}
    assert named.json() == none | {"redriven": 1, "missing": [6, 99]}
    assert first.json() == none | {"redriven": 3, "next_cursor": "4"}
    assert rest.json() == none | {"redriven": 1}
    assert nothing.json() == none | {"redriven": 0}
    assert await api.sent_again() == ["e2", "e1", "e3", "e4", "e5"]


async def test_a_letter_that_cannot_be_sent_again_is_named_and_passed_over(api: Api) -> None:
    """Otherwise a client that follows the cursor would never get past it."""
    await api.receiver("acme.billing")
    position = await publish(api.js, api.names, "acme.billing", b"{}", {EVENT_ID: "gone"})
    await api.js.purge(api.names.deliveries, position + 1)
    burial = Burial(position=position, reason="evicted", sequence=1, attempts=0, status=None)
    await DeadLetterWriter(api.js, api.names).bury("acme.billing", [burial])
    await api.bury("acme.billing", 2)
    async with await manager(api) as client:
        first = (await client.post(f"{LETTERS}/redrive", json={"all": True, "limit": 1})).json()
        on = {"all": True, "cursor": first["next_cursor"]}
        second = (await client.post(f"{LETTERS}/redrive", json=on)).json()
    assert (first["redriven"], first["left"], first["next_cursor"]) == (0, {"gone": [1]}, "1")
    assert (second["redriven"], second["left"], second["next_cursor"]) == (1, {}, None)


async def test_a_letter_of_an_unknown_receiver_stays(api: Api, tmp_path: Path) -> None:
    """A copy of it would become a new letter at once."""
    await api.receiver("acme.billing")
    await api.bury("acme.billing", 1)
    await api.bury("acme.biling", 2)
    async with await manager(api) as client:
        sent = (await client.post(f"{LETTERS}/redrive", json={"numbers": [1, 2]})).json()
        assert (sent["redriven"], sent["left"]) == (1, {"unknown_receiver": [2]})
        terminal = Terminal(tmp_path, api.to.settings.nats[0])
        terminal.environment |= {"ANGARIUM_PREFIX": api.to.settings.prefix, "ANGARIUM_SHARDS": "2"}
        done = await asyncio.to_thread(terminal.run, "dead", "redrive", "acme")
        assert (done.returncode, done.stderr, done.stdout) == (
            0, "", "redriven 0 letters\n1 letter (2) stays, since there is no receiver acme.biling: "
            "put it first (angarium receiver put acme.biling)\n",
        )  # fmt: skip
        assert (await asyncio.to_thread(terminal.run, "dead", "redrive", "2")).returncode == 1
        await api.bury("acme.mial", 3)
        done = await asyncio.to_thread(terminal.run, "dead", "redrive", "--all")
        assert (
            "2 letters (2, 3) stay, since there are no receivers acme.biling, acme.mial: put" in done.stdout
        )
        await api.receiver("acme.biling")
        sent = (await client.post(f"{LETTERS}/redrive", json={"numbers": [2]})).json()
        assert (sent["redriven"], sent["left"]) == (1, {})
    assert await api.sent_again() == ["e1", "e2"]


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"numbers": []}, "/numbers"),
        ({"numbers": [1] * 1001}, "/numbers"),
        ({"numbers": [0]}, "/numbers/0"),
        ({"numbers": [1], "receiver": "billing"}, "/numbers"),
        ({"numbers": [1], "all": True}, "/numbers"),
        ({"all": True, "receiver": "billing"}, "/all"),
        ({}, "/all"),
        ({"all": False}, "/all"),
        ({"limit": 10}, "/all"),
        ({"cursor": "1"}, "/all"),
        ({"limit": 1001}, "/limit"),
        ({"cursor": "x"}, "/cursor"),
        ({"reasons": ["bored"]}, "/reasons/0"),
        ({"since": "yesterday"}, "/since"),
    ],
)
async def test_problems_of_a_redrive_have_pointers(api: Api, given: object, pointer: str) -> None:
    async with await manager(api) as client:
        refused = await client.post(f"{LETTERS}/redrive", json=given)
    problem(refused, 422, "invalid")
    assert refused.json()["errors"][0]["pointer"] == pointer


async def test_a_receiver_that_does_not_exist_and_has_no_letter_is_misspelled(api: Api) -> None:
    await api.receiver("acme.billing")
    await api.bury("acme.gone", 1)
    async with await manager(api) as client:
        refused = await client.post(f"{LETTERS}/redrive", json={"receiver": "billlng"})
        assert "there is no receiver acme.billlng" in problem(refused, 422, "invalid")
        assert refused.json()["errors"][0]["pointer"] == "/receiver"
        for known in ({"receiver": "billing"}, {"receiver": "gone", "reasons": ["evicted"]}):
            done = await client.post(f"{LETTERS}/redrive", json=known)
            assert (done.status_code, done.json()["redriven"]) == (200, 0), done.text


async def test_commands_note_a_name_of_which_there_is_nothing(api: Api, tmp_path: Path) -> None:
    await api.receiver("acme.billing")
    terminal = Terminal(tmp_path, api.to.settings.nats[0])
    terminal.environment |= {"ANGARIUM_PREFIX": api.to.settings.prefix, "ANGARIUM_SHARDS": "2"}

    async def noted(*words: str) -> str:
        return (await asyncio.to_thread(terminal.run, *words)).stderr

    assert "note: tenant acmee has no receivers;" in await noted("dead", "redrive", "acmee")
    assert "note: there is no receiver bad.nobody;" in await noted("dead", "redrive", "bad.nobody")
    assert "note: there is no receiver bad.nobody;" in await noted("dead", "drop", "bad.nobody", "--yes")
    assert (
        await noted("dead", "redrive", "acme") == await noted("dead", "drop", "acme.billing", "--yes") == ""
    )
    erase = ("erase", "--event", "e1", "--yes", "--wait", "0s", "--tenant")
    assert "note: tenant acmee has no receivers;" in await noted(*erase, "acmee")
    assert "note:" not in await noted(*erase, "acme")


async def test_bad_queries_are_refused(api: Api) -> None:
    async with await manager(api) as client:
        for name, value in (
            ("limit", "0"), ("limit", "201"), ("cursor", "0"), ("cursor", "9" * 30), ("reason", "bored"),
            ("since", "yesterday"), ("receiver", "x" * 65),
        ):  # fmt: skip
            refused = await client.get(LETTERS, params={name: value})
            problem(refused, 422, "invalid")
            assert refused.json()["errors"][0]["parameter"] == name
        problem(await client.get(LETTERS, params={"receiver": "a.b"}), 422, "invalid")
        problem(await client.get(f"{LETTERS}/{'9' * 30}"), 422, "invalid")
        problem(await client.get(f"{LETTERS}/x"), 404, "not-found")


async def test_another_tenants_token_finds_no_letter(api: Api) -> None:
    await api.bury("acme.billing", 1)
    theirs = "/v1/tenants/other/dead-letters"
    async with await manager(api, "other") as stranger, await api.client("acme", ["read"]) as reader:
        for path in (LETTERS, f"{LETTERS}/1", f"{theirs}/1"):
            problem(await stranger.get(path), 404, "not-found")
        for path in (f"{LETTERS}/1", f"{theirs}/1"):
            problem(await stranger.delete(path), 404, "not-found")
        problem(await stranger.post(f"{LETTERS}/redrive", json={}), 404, "not-found")
        assert numbers(await stranger.get(theirs)) == []
        sent = (await stranger.post(f"{theirs}/redrive", json={"numbers": [1]})).json()
        assert (sent["redriven"], sent["missing"]) == (0, [1])
        problem(await reader.delete(f"{LETTERS}/1"), 404, "not-found")
        problem(await reader.post(f"{LETTERS}/redrive", json={}), 404, "not-found")
        assert numbers(await reader.get(LETTERS)) == [1]
    assert await api.sent_again() == []


def test_every_reason_may_be_asked_for() -> None:
    assert set(get_args(Reason)) == set(REASONS)
