"""Replays, long redrives and their jobs over HTTP: begun once, run by any process."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from actors.machine.numbering import Frontier
from actors.machine.state import State
from angarium.access import Access
from angarium.api import server
from angarium.api.background import jobs
from angarium.api.openapi import dead_letters
from angarium.api.problems import HIDDEN
from angarium.operations.jobs import job_slots, plans, run
from angarium.operations.jobs.begin import StartedJob, begin_redrive, begin_replay
from angarium.operations.jobs.listing import JobPage, list_jobs
from angarium.operations.replays.resendable import ReplayFilter
from angarium.settings import Settings
from streams.dead_letters.letters import LetterFilter
from streams.installation.partitions import shard_of
from streams.journal.snapshots import Snapshot
from streams.nats.answers import StoredMessage
from streams.nats.wire_names import EVENT_ID
from streams.resending import ended_replays, plan_lock
from tests.edge.api.conftest import LETTERS, Api, manager, problem
from tests.support.installation import publish
from tests.support.processes.commands import PATIENCE_S, Terminal
from tests.support.waiting import until, until_true

REPLAY = "/v1/tenants/acme/receivers/billing/replay"
BILLING = "/v1/tenants/acme/receivers/billing"
SINCE = {"since": "2026-01-01T00:00:00Z"}
LEASE_S = 0.3


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.05)


async def events(api: Api, count: int, receiver: str = "acme.billing") -> None:
    """A receiver, and events of it that are settled."""
    await api.receiver(receiver)
    for number in range(count):
        headers = {EVENT_ID: f"e{number}", "Angarium-Type": f"t.{number % 2}"}
        position = await publish(api.js, api.names, receiver, b"{}", headers)
    await settled(api, receiver, position)


async def settled(api: Api, receiver: str, position: int) -> None:
    """A snapshot that says that everything up to there is settled."""
    frontier = Frontier(position=position, sequence=position)
    state = State(receiver=receiver, opened=True, frontier=frontier)
    shard = shard_of(receiver.partition(".")[0], receiver.partition(".")[2], api.to.settings.shards)
    snapshot = msgspec.json.encode(Snapshot(as_of=1, state=state))
    await api.js.publish(api.names.actor_keys.actor(shard, receiver), snapshot)


async def ended(client: httpx.AsyncClient, place: str) -> dict[str, Any]:
    """The job when it has ended."""
    found: dict[str, Any] = {}

    async def over() -> bool:
        answer = await client.get(place)
        assert answer.status_code == 200, answer.text
        found.update(answer.json())
        return found["ended_at"] is not None

    await until_true(over)
    return found


async def test_a_replay_is_a_job_that_ends(api: Api) -> None:
    await events(api, 4)
    async with await manager(api) as client:
        begun = await client.post(f"{BILLING}/replay", json=SINCE | {"types": ["t.1"]})
        assert begun.status_code == 202, begun.text
        place = begun.headers["location"]
        assert place == f"/v1/jobs/{begun.json()['id']}"
        done = await ended(client, place)
        assert begun.json() | {
            "state": "done", "looked_at": 4, "sent": 2, "ended_at": done["ended_at"]
        } == done  # fmt: skip
        assert (await client.delete(place)).json() == done
    assert await api.sent_again() == ["e1", "e3"]


async def test_a_dry_run_lists_what_would_be_sent_and_sends_nothing(api: Api) -> None:
    await events(api, 4)
    async with await manager(api) as client:
        shown = await client.post(f"{BILLING}/replay", json=SINCE | {"dry_run": True})
    assert shown.status_code == 200
    assert (shown.json()["events"], shown.json()["types"]) == (4, {"t.0": 2, "t.1": 2})
    assert await api.sent_again() == []


async def test_a_request_that_comes_twice_begins_one_replay(api: Api) -> None:
    await events(api, 20)
    slow, key = SINCE | {"rate": "5/second"}, {"idempotency-key": "order-7"}
    async with await manager(api) as client:
        first = await client.post(f"{BILLING}/replay", json=slow, headers=key)
        same = await client.post(f"{BILLING}/replay", json=slow, headers=key)
        other = await client.post(f"{BILLING}/replay", json=slow)
        assert (first.status_code, same.status_code) == (202, 202)
        assert same.headers["location"] == first.headers["location"] == other.headers["location"]
        assert first.json()["id"] in problem(other, 409, "replay-unfinished")
        assert other.json()["title"] == "Another replay is unfinished"
        stopping = await client.delete(first.headers["location"])
        assert stopping.json()["state"] in ("stopping", "stopped")
        assert (await ended(client, first.headers["location"]))["state"] == "stopped"
        same = await client.post(f"{BILLING}/replay", json=slow, headers=key)
        assert (same.status_code, same.json()["state"]) == (202, "stopped")
        assert (await client.post(f"{BILLING}/replay", json=slow)).status_code == 202
    assert len(await api.sent_again()) < 20


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[tuple[str, jobs.Jobs]]:
    """Another process of the API."""
    here = server.bind_socket("127.0.0.1", 0)
    async with server.served(settings, here) as state:
        yield server.url(here), state.jobs


async def test_a_job_continues_in_another_process_when_its_own_stops_or_dies(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await events(api, 40)
    await api.state.jobs.stop()
    token = (await api.token("acme", ["read", "manage"])).text
    monkeypatch.setattr(jobs, "STOP_TIMEOUT_S", 0.0)  # It is cut off, as by a kill, wherever it is.
    async with api.client_with(token) as client:
        begun = await client.post(f"{BILLING}/replay", json=SINCE | {"rate": "40/second"})
        place, sent = begun.headers["location"], 0
        for _ in range(3):
            async with process(settings):
                before = sent

                async def goes_on() -> bool:
                    nonlocal sent
                    sent = len(await api.sent_again())
                    return sent > before + 2  # noqa: B023

                await until_true(goes_on)
        monkeypatch.undo()
        monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
        async with process(settings):
            done = await ended(client, place)
    assert (done["state"], done["sent"]) == ("done", 40)
    assert await api.sent_again() == [f"e{number}" for number in range(40)]


async def test_a_process_works_at_a_few_jobs_of_a_tenant_at_a_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_slots, "SLOTS_MAX", 3)
    monkeypatch.setattr(run, "COPY_PATIENCE_S", 60.0)  # So that they keep their slots meanwhile.
    slow = SINCE | {"rate": "0.1/second"}
    names = [f"acme.r{number}" for number in range(4)] + ["other.r"]
    for receiver in names:
        await api.receiver(receiver)
        position = await publish(api.js, api.names, receiver, b"{}")
        await publish(api.js, api.names, receiver, b"{}")
        await settled(api, receiver, position + 1)
    async with await manager(api, "*") as client:
        places = []
        for receiver in names:
            tenant, _, name = receiver.partition(".")
            begun = await client.post(f"/v1/tenants/{tenant}/receivers/{name}/replay", json=slow)
            places.append(begun.headers["location"])

        async def working() -> bool:
            states = [(await client.get(place)).json()["state"] for place in places]
            assert states[:4].count("running") <= job_slots.TENANT_SLOTS_MAX, states
            return states.count("running") == 3 and states[4] == "running"

        async def why_the_others_wait() -> set[str]:
            shown = [(await client.get(place)).json() for place in places]
            return {each["why"] for each in shown if each["state"] == "waiting"}

        async def reasons_are_known() -> bool:
            whys = await why_the_others_wait()
            return all(why.startswith("waits for a slot: 3 jobs run, 2 of this tenant") for why in whys)

        await until_true(working)
        await until_true(reasons_are_known)
        running = list(api.state.jobs.working)
        stopped = next(place for place in places[:4] if place.split(".")[2] in str(running))
        await client.delete(stopped)

        async def next_one() -> bool:
            states = {place: (await client.get(place)).json()["state"] for place in places}
            return states[stopped] == "stopped" and [*states.values()].count("running") == 3

        await until_true(next_one)
        for place in places:
            await client.delete(place)


# ---- redrives


async def test_many_letters_are_a_job_and_few_are_sent_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.api.routes.dead_letters.LETTERS_MAX", 3)
    assert dead_letters.LETTERS_MAX == 1000
    await api.receiver("acme.billing")
    for number in range(1, 6):
        await api.bury("acme.billing", number)
    await api.bury("other.billing", 6)
    key = {"idempotency-key": "monday"}
    async with await manager(api) as client:
        begun = await client.post(f"{LETTERS}/redrive", json={"receiver": "billing"}, headers=key)
        assert begun.status_code == 202, begun.text
        done = await ended(client, begun.headers["location"])
        assert (done["kind"], done["receiver"], done["state"]) == ("redrive", "acme.billing", "done")
        assert (done["sent"], done["looked_at"], done["total"]) == (5, 5, 5)
        same = await client.post(f"{LETTERS}/redrive", json={"receiver": "billing"}, headers=key)
        assert (same.status_code, same.json()["id"]) == (202, done["id"])
        await api.bury("acme.billing", 7)
        few = await client.post(f"{LETTERS}/redrive", json={"receiver": "billing"})
        assert (few.status_code, few.json()["redriven"], few.json()["next_cursor"]) == (200, 1, None)
    assert await api.sent_again() == ["e1", "e2", "e3", "e4", "e5", "e7"]


# ---- the list


async def test_the_jobs_of_a_tenant_are_listed_the_newest_first(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[str, list[str]] = {"acme": [], "other": []}
    for name in ("a", "b", "c"):
        for tenant in begun:
            receiver = f"{tenant}.{name}"
            await events(api, 1, receiver)
            job = await begin_replay(api.to, receiver, ReplayFilter(since=0.0), 1000.0)
            assert isinstance(job, StartedJob)
            begun[tenant].insert(0, job.job.id)
    job = await begin_redrive(api.to, "acme", LetterFilter(receivers="acme.*"))
    assert isinstance(job, StartedJob)
    begun["acme"].insert(0, job.job.id)
    await api.js.publish(
        api.names.actor_keys.replay("acme.newer"), b'{"v": 99}'
    )  # As a newer version may store it.
    async with await manager(api) as client, await manager(api, "*") as operator:
        for limit in (1, 2, 3, 4, 50):
            assert await listed(client, limit) == begun["acme"]
        everything = await listed(operator, 2)
        assert len(everything) == 7
        assert {*everything} == {*begun["acme"], *begun["other"]}
        assert [each for each in everything if ".other." in each] == begun["other"]
        for each in begun["acme"]:
            await ended(client, f"/v1/jobs/{each}")
        assert await listed(client, 50) == begun["acme"]
        monkeypatch.setattr(ended_replays, "SHOWN_FOR_S", -1.0)
        assert await listed(client, 50) == []


async def listed(client: httpx.AsyncClient, limit: int) -> list[str]:
    """The ids of all jobs that a client sees, page by page."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get("/v1/jobs", params={"limit": str(limit)} | cursor)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["jobs"]) <= limit
        found += [each["id"] for each in page["jobs"]]
        if page["next_cursor"] is None:
            return found
        assert len(page["jobs"]) == limit
        cursor = {"cursor": page["next_cursor"]}


async def test_lists_at_the_same_time_share_one_read_of_the_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list reads the plans of all tenants."""
    await api.state.jobs.stop()
    for receiver in ("acme.billing", "other.billing"):
        await events(api, 1, receiver)
        assert isinstance(await begin_replay(api.to, receiver, ReplayFilter(since=0.0), 1000.0), StartedJob)
    read, plan_in = list[str](), plans.plan_in

    def counted(access: Access, message: StoredMessage) -> plans.StoredPlan:
        read.append(message.subject)
        return plan_in(access, message)

    monkeypatch.setattr(jobs, "plan_in", counted)
    async with await manager(api) as client:
        (first,) = await listed(client, 50)
        answers = await asyncio.gather(*(client.get("/v1/jobs") for _ in range(8)))
    assert [[each["id"] for each in answer.json()["jobs"]] for answer in answers] == [[first]] * 8
    assert len(read) == 2


async def test_a_tenant_has_a_limited_number_of_unfinished_replays(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process reads each replay, and every list looks through all of them."""
    monkeypatch.setattr(jobs, "UNFINISHED_MAX", 1)
    for receiver in ("acme.billing", "acme.mail", "other.billing"):
        await events(api, 3, receiver)
    slow, key = SINCE | {"rate": "1/hour"}, {"idempotency-key": "monday"}
    mail = BILLING.replace("billing", "mail")
    async with await manager(api) as client, await manager(api, "other") as other:
        begun = await client.post(f"{BILLING}/replay", json=slow, headers=key)
        place = begun.headers["location"]

        await until(lambda: not api.state.jobs.has_room("acme.mail"))
        assert (await client.post(f"{mail}/replay", json=slow | {"dry_run": True})).status_code == 200
        refused = await client.post(f"{mail}/replay", json=slow)
        assert "replays of the tenant are unfinished" in problem(refused, 429, "rate")
        assert refused.headers["retry-after"] == "30"
        same = await client.post(f"{BILLING}/replay", json=slow, headers=key)
        assert (same.status_code, same.headers["location"]) == (202, place)
        problem(await client.post(f"{BILLING}/replay", json=slow), 409, "replay-unfinished")
        theirs = await other.post(f"{BILLING.replace('acme', 'other')}/replay", json=SINCE)
        assert theirs.status_code == 202, theirs.text
        await client.delete(place)
        await ended(client, place)

        async def has_room() -> bool:
            return (await client.post(f"{mail}/replay", json=SINCE)).status_code == 202

        await until_true(has_room)


async def test_the_command_line_lists_shows_and_stops_jobs(api: Api, tmp_path: Path) -> None:
    await api.state.jobs.stop()
    await events(api, 3)
    await events(api, 1, "other.billing")
    for receiver in ("acme.billing", "other.billing"):
        assert isinstance(await begin_replay(api.to, receiver, ReplayFilter(since=0.0), 1000.0), StartedJob)
    terminal = Terminal(tmp_path, api.to.settings.nats[0])
    terminal.environment |= {"ANGARIUM_PREFIX": api.to.settings.prefix, "ANGARIUM_SHARDS": "2"}

    async def done(*words: str) -> str:
        return await asyncio.to_thread(terminal.done, "job", *words)

    everything = (await done("list")).splitlines()
    assert [line.split()[0] for line in everything[1:]] == [
        each.id for each in (await known(api, None))
    ]  # fmt: skip
    (mine,) = await known(api, "acme")
    (line,) = (await done("list", "acme")).splitlines()[1:]
    assert line.split()[:2] == [mine.id, "waiting"]
    assert line.split("\t")[3:] == ["0 of 3", "0", "-"]
    assert "no job runs" in await done("show", mine.id)
    assert "no job runs" in (mine.why or "")
    assert json.loads(await done("list", "acme", "--json"))["id"] == mine.id
    assert (await done("show", mine.id)).startswith(
        f"{mine.id}: waiting, sent 0, looked at 0 of 3\n  began 20"
    )
    failed = await asyncio.to_thread(terminal.failed, "replay", "acme.billing", "--since", "1h")
    assert f"angarium job stop {mine.id}" in failed
    assert (await done("stop", mine.id)).startswith(f"{mine.id}: stopped, sent 0")
    assert json.loads(await done("show", mine.id, "--json"))["state"] == "stopped"
    missing = await asyncio.to_thread(terminal.failed, "job", "show", mine.id[:-16] + "0" * 16)
    assert "angarium job list shows all" in missing


async def test_the_replay_of_a_command_is_listed_and_keeps_the_last_job(api: Api, tmp_path: Path) -> None:
    await events(api, 3)
    async with await manager(api) as client:
        key = {"idempotency-key": "monday"}
        begun = await client.post(REPLAY, json={"since": "2026-01-01T00:00:00Z"}, headers=key)
        job = await ended(client, begun.headers["location"])
        assert (job["origin"], job["by"].split()[0]) == ("http", "token")
        terminal = Terminal(tmp_path, api.to.settings.nats[0])
        terminal.environment |= {"ANGARIUM_PREFIX": api.to.settings.prefix, "ANGARIUM_SHARDS": "2"}
        slow = ("replay", "acme.billing", "--since", "1h", "--rate", "1/minute")
        with await asyncio.to_thread(terminal.start, *slow) as running:
            await until_true(lambda: _has_sent(client, 1))
            first, second = (await client.get("/v1/jobs")).json()["jobs"]
            assert (second, first["origin"], first["state"]) == (job, "command line", "running")
            assert (first["sent"], first["total"], "@" in first["by"]) == (1, 3, True)
            other = await client.post(REPLAY, json={"since": "2026-01-01T00:00:00Z"})
            assert f"{first['id']}, begun on the command line by" in problem(other, 409, "replay-unfinished")
            assert other.headers["location"] == f"/v1/jobs/{first['id']}"
            same = await client.post(REPLAY, json={"since": "2026-01-01T00:00:00Z"}, headers=key)
            assert (same.status_code, same.json()) == (202, job)
            assert "command line" in problem(await client.delete(f"/v1/jobs/{first['id']}"), 409, "refused")
            running.send_signal(signal.SIGINT)
            _, err = await asyncio.to_thread(running.communicate, timeout=PATIENCE_S)
            assert "interrupted; 1 event sent; angarium replay acme.billing --resume continues it" in err
        await asyncio.to_thread(terminal.done, "replay", "acme.billing", "--abandon")
        shown = (await client.get(f"/v1/jobs/{first['id']}")).json()
        assert (shown["state"], shown["sent"]) == ("stopped", 1)
        assert (await client.get(f"/v1/jobs/{job['id']}")).json() == job
        newer = await client.post(REPLAY, json={"since": "2026-01-01T00:00:00Z"})
        assert newer.status_code == 202, newer.text
        assert (await client.get(f"/v1/jobs/{job['id']}")).status_code == 404


async def _has_sent(client: httpx.AsyncClient, count: int) -> bool:
    """True if the newest job has sent so many, as it was stored last."""
    return bool((await client.get("/v1/jobs")).json()["jobs"][0]["sent"] == count)


async def known(api: Api, tenant: str | None) -> list[plans.JobDocument]:
    found = await list_jobs(api.to, tenant)
    assert isinstance(found, JobPage)
    return found.jobs


# ---- what is refused


async def test_another_tenants_job_is_not_there(api: Api) -> None:
    await events(api, 3)
    async with (
        await manager(api) as client,
        await manager(api, "other") as stranger,
        await api.client("acme", ["read"]) as reader,
    ):
        begun = await client.post(f"{BILLING}/replay", json=SINCE | {"rate": "1/second"})
        place = begun.headers["location"]
        for path in (
            place,
            "/v1/jobs/replay.acme.billing.0123456789abcdef",
            "/v1/jobs/7",
            "/v1/jobs/redrive.acme.7",
        ):
            assert problem(await stranger.get(path), 404, "not-found") == HIDDEN
            assert problem(await stranger.delete(path), 404, "not-found") == HIDDEN
        problem(await client.get("/v1/jobs/redrive.acme.0123456789abcdef"), 404, "not-found")
        problem(await stranger.post(f"{BILLING}/replay", json=SINCE), 404, "not-found")
        problem(await reader.post(f"{BILLING}/replay", json=SINCE), 404, "not-found")
        problem(await reader.delete(place), 404, "not-found")
        assert (await reader.get(place)).json()["id"] == begun.json()["id"]
        await client.delete(place)


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({}, None),
        ({"since": "yesterday"}, "/since"),
        (SINCE | {"rate": "fast"}, "/rate"),
        (SINCE | {"rate": "0/second"}, "/rate"),
        (SINCE | {"types": ["x" * 201]}, "/types/0"),
        (SINCE | {"types": ["a"] * 17}, "/types"),
        (SINCE | {"types": ["a..b"]}, None),
        (SINCE | {"more": 1}, None),
    ],
)
async def test_mistakes_in_a_replay_are_pointed_at(
    api: Api, given: dict[str, Any], pointer: str | None
) -> None:
    await api.receiver("acme.billing")
    async with await manager(api) as client:
        refused = await client.post(f"{BILLING}/replay", json=given)
        problem(refused, 422, "invalid")
        if pointer is not None:
            assert refused.json()["errors"][0]["pointer"] == pointer
        missing = await client.post("/v1/tenants/acme/receivers/nobody/replay", json=SINCE)
        problem(missing, 404, "not-found")
