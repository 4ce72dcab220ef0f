"""Jobs: if the process that runs a job dies, another one continues it, and each event is sent once.

The window in which JetStream drops repeats is cut to nearly nothing here, so that nothing rests on it.
"""

import asyncio
from typing import Any

import pytest

from actors.machine.facts import Burial
from angarium.operations.failures import NotDone
from angarium.operations.jobs import plans, run
from angarium.operations.jobs.begin import StartedJob, begin_replay
from angarium.operations.jobs.plans import JobDocument, plan_of
from angarium.operations.jobs.run import run_job
from angarium.operations.jobs.show import show
from angarium.operations.jobs.stop import stop
from angarium.operations.replays import replay as commands
from angarium.operations.replays.resendable import ReplayFilter
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.bury import DeadLetterWriter
from streams.installation.topology import Names
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from streams.resending import copies, plan_lock
from streams.resending.plan_lock import LockHeld, PlanLock
from streams.resending.redrive_job import RedriveJobPlan
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay_lock import ReplayLock, ReplayPlan
from tests.contract.operations.jobs.jobs import (
    FAST,
    access,
    again,
    buried,
    events,
    go_on,
    is_held,
    redrive_job,
    replay_job,
    shown,
)
from tests.contract.resending.settled_events import ONE, end, settled
from tests.contract.resending.windows import LEASE_S, install_with_receiver
from tests.contract.support.crashing_jetstream import OVER_DEATHS, WHEREVER_IT_DIES, crashing_processes
from tests.contract.support.servers import Server
from tests.support.installation import publish
from tests.support.waiting import until_true


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(run, "PAGE_PAUSE_S", 0.0)
    monkeypatch.setattr(copies, "PAGE_MAX", 2)


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install_with_receiver(js, prefix)


# ---- one that is not interrupted


async def test_a_job_is_accepted_run_and_shown(js: JetStream, names: Names) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a"), per_second=50.0)
    assert job.id.startswith(f"replay.{ONE}.")
    assert (job.kind, job.tenant, job.receiver, job.state) == ("replay", "acme", ONE, "waiting")
    assert (job.looked_at, job.total, job.sent, job.ended_at) == (0, 5, 0, None)
    assert await again(js, names, "a") == []
    assert await go_on(to) == ""
    done = await shown(to, job.id)
    assert (done.state, done.looked_at, done.total, done.sent) == ("done", 5, 5, 5)
    assert (done.began_at, done.why, done.purged, done.left_out) == (job.began_at, None, False, {})
    assert done.ended_at is not None
    assert await again(js, names, "a") == [0, 1, 2, 3, 4]
    before = await plan_of(to, "replay", ONE)
    assert await go_on(to) == ""
    assert await plan_of(to, "replay", ONE) == before  # What has ended is not touched.


@pytest.mark.parametrize("kind", ["replay", "redrive"])
async def test_a_job_ends_once(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, kind: plans.JobKind
) -> None:
    """The last plan gives the job's end; a later plan would change what clients have read."""
    to, store, ends = access(js, names), PlanLock.store, list[bool]()
    wanted = await events(js, names, "a", 2)
    await buried(js, names, 1)
    job = await (replay_job(to, wanted) if kind == "replay" else redrive_job(to))

    async def noted(self: PlanLock[Any], **changes: Any) -> None:
        await store(self, **changes)
        if isinstance(self.plan, ReplayPlan | RedriveJobPlan) and not self.plan.unfinished:
            ends.append(self.plan.held)

    monkeypatch.setattr(PlanLock, "store", noted)
    assert await go_on(to, kind, ONE if kind == "replay" else "acme") == ""
    assert ends == [False]
    assert (await shown(to, job.id)).state == "done"


async def test_the_same_key_is_the_same_job_and_another_one_waits_for_its_end(
    js: JetStream, names: Names
) -> None:
    to, wanted = access(js, names), await events(js, names, "a")
    job = await replay_job(to, wanted, "order-7")
    assert await replay_job(to, wanted, "order-7") == job
    other = await begin_replay(to, ONE, wanted, FAST)
    assert isinstance(other, StartedJob)
    assert (other.mine, other.job) == (False, job)
    await go_on(to)
    assert (await replay_job(to, wanted, "order-7")).state == "done"
    assert (await replay_job(to, wanted, "order-8")).id != job.id
    assert isinstance(gone := await show(to, job.id), NotDone)
    assert gone.kind == "not_found"
    await go_on(to)
    assert await again(js, names, "a") == [0, 1, 2, 3, 4] * 2


async def test_a_command_does_not_take_up_a_job_that_is_not_finished_and_says_so_at_once(
    js: JetStream, names: Names
) -> None:
    to, wanted = access(js, names), await events(js, names, "a")
    job = await replay_job(to, wanted)
    holder = ReplayLock(js, names, ONE, "holder", SystemTime(), lease_s=60.0)
    await holder.acquire()
    async with asyncio.timeout(30.0):
        for refused in (
            await commands.replay(to, ONE, None, FAST), await commands.give_up_replay(to, ONE),
            await commands.replay(to, ONE, wanted, FAST),
        ):  # fmt: skip
            assert isinstance(refused, NotDone)
            assert refused.kind == "conflict"
            assert refused.text == f"a replay for {ONE} that was begun over HTTP is not finished: {job.id}"
            assert f"angarium job stop {job.id}" in refused.remedy
    await holder.store(held=False)
    await go_on(to)
    assert await again(js, names, "a") == [0, 1, 2, 3, 4]


async def test_a_command_that_is_not_finished_is_not_a_job_and_no_process_takes_it_up(
    js: JetStream, names: Names
) -> None:
    to, wanted = access(js, names), await events(js, names, "a")
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": await end(js, names) + 2})
    assert not isinstance(await commands.replay(to, ONE, wanted, FAST), NotDone)
    await js.stream_update(info.config | {"max_msgs": -1})
    other = await begin_replay(to, ONE, wanted, FAST)
    assert isinstance(other, StartedJob)
    assert (other.mine, other.job.origin, other.job.state) == (False, "command line", "waiting")
    assert (other.job.sent, other.job.why) == (2, plans.CUT_OFF)
    refused = await stop(to, other.job.id)
    assert isinstance(refused, NotDone)
    assert f"angarium replay {ONE} --abandon" in refused.remedy
    assert await go_on(to) == ""
    assert await again(js, names, "a") == [0, 1]
    assert not isinstance(await commands.replay(to, ONE, None, FAST), NotDone)
    assert await again(js, names, "a") == [0, 1, 2, 3, 4]


async def test_a_job_without_room_in_the_stream_waits_and_says_why(js: JetStream, names: Names) -> None:
    to, wanted = access(js, names), await events(js, names, "a")
    job = await replay_job(to, wanted)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": await end(js, names) + 2})
    assert "maximum messages exceeded" in await go_on(to)
    waiting = await shown(to, job.id)
    assert waiting.state == "waiting"
    assert "maximum messages exceeded" in (waiting.why or "")
    await js.stream_update(info.config | {"max_msgs": -1})
    assert await go_on(to) == ""
    done = await shown(to, job.id)
    assert (done.state, done.sent, done.why) == ("done", 5, None)
    assert await again(js, names, "a") == [0, 1, 2, 3, 4]


async def test_a_slow_replay_is_released_until_its_next_copy_is_due(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "COPY_PATIENCE_S", 0.05)
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a", 3), per_second=2.0)
    assert await go_on(to) == ""
    waiting = await shown(to, job.id)
    assert (waiting.state, waiting.sent) == ("waiting", 1)
    assert waiting.why is not None
    assert waiting.why.startswith("the next copy is not due yet: it is at 20")
    stored = await plan_of(to, "replay", ONE)
    assert stored is not None
    assert not stored.plan.held
    now = SystemTime().wall()
    assert 0 < stored.wait_s(now) <= 0.5
    assert stored.wait_s(now + 1) == 0
    # A clock that was set back does not stop it for longer than its rate does.
    assert stored.wait_s(now - 3600) == 0.5
    # It is not sent too early by another process.
    assert await go_on(to) == ""
    assert await again(js, names, "a") in ([0], [0, 1])
    monkeypatch.setattr(run, "COPY_PATIENCE_S", 60.0)
    assert await go_on(to) == ""
    done = await shown(to, job.id)
    assert (done.state, done.sent, done.why) == ("done", 3, None)
    assert await again(js, names, "a") == [0, 1, 2]


async def test_events_that_are_too_large_or_gone_are_counted(js: JetStream, names: Names) -> None:
    to = access(js, names)
    first = await publish(js, names, ONE, b"1", {"Angarium-Type": "a"})
    await publish(js, names, ONE, b"7" * 4000, {"Angarium-Type": "a"})
    await settled(js, names, await publish(js, names, ONE, b"2", {"Angarium-Type": "a"}))
    await js.purge(names.deliveries, first + 1)
    await publish(js, names, ONE, b"3", {"Angarium-Type": "a"})
    job = await replay_job(to, ReplayFilter(since=0.0))
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msg_size": 2000})
    await go_on(to)
    done = await shown(to, job.id)
    assert (done.state, done.sent, done.left_out) == ("done", 1, {"too_large": 1, "not_settled_yet": 1})
    assert done.kept_since is not None


# ---- processes that die


@WHEREVER_IT_DIES
async def test_a_process_may_die_at_any_request_of_a_replay_and_each_event_is_sent_once(
    server: Server, js: JetStream, names: Names, every: int, heard: bool
) -> None:
    """Each run is killed one request later, until a run finishes."""
    to = access(js, names)
    for crashing in crashing_processes(server, heard=heard, every=every):
        kind, key = f"step-{crashing.step}", f"key-{crashing.step}"
        await js.purge(names.deliveries, await end(js, names) + 1)
        wanted = await events(js, names, kind)
        async with crashing.process() as mortal:
            await replay_job(access(mortal, names), wanted, key)
            await go_on(access(mortal, names))
        await publish(js, names, ONE, b"9")  # Events come meanwhile.
        job = await replay_job(to, wanted, key)  # A client that got no answer asks again.
        assert await go_on(to) == ""
        done = await shown(to, job.id)
        assert (done.state, done.sent, done.looked_at) == ("done", 5, done.total), (
            f"died at request {crashing.step}"
        )
        assert await again(js, names, kind) == [0, 1, 2, 3, 4], f"died at request {crashing.step}"
    assert crashing.step > 25


@OVER_DEATHS
async def test_deaths_in_a_row_change_nothing(
    server: Server, js: JetStream, names: Names, every: int
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a"))
    for crashing in crashing_processes(server, heard=True, every=every):
        async with crashing.process() as mortal:
            await go_on(access(mortal, names))
    assert crashing.step > 8
    assert (await shown(to, job.id)).state == "done"
    assert await again(js, names, "a") == [0, 1, 2, 3, 4]


async def test_two_processes_never_work_at_the_same_job(js: JetStream, names: Names) -> None:
    to = access(js, names)
    await replay_job(to, await events(js, names, "a", 20), per_second=40.0)
    first = asyncio.create_task(go_on(to))
    await until_true(lambda: _sent(js, names))
    with pytest.raises(LockHeld):
        await go_on(to)
    assert await first == ""
    assert await again(js, names, "a") == list(range(20))


async def _sent(js: JetStream, names: Names) -> bool:
    return bool(await again(js, names, "a"))


async def test_a_process_that_stops_hands_its_job_on_at_once(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", 60.0)
    to, halted = access(js, names), asyncio.Event()
    job = await replay_job(to, await events(js, names, "a", 20), per_second=200.0)
    first = asyncio.create_task(run_job(to, "replay", ONE, halted.is_set, asyncio.Lock()))
    await until_true(lambda: _sent(js, names))
    halted.set()
    assert await first != ""
    assert (await shown(to, job.id)).state == "waiting"
    async with asyncio.timeout(30):
        assert await go_on(to) == ""
    assert await again(js, names, "a") == list(range(20))


# ---- stopping


async def test_a_job_that_no_process_holds_is_stopped_at_once(js: JetStream, names: Names) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a"))
    assert isinstance(stopped := await stop(to, job.id), JobDocument)
    assert stopped.state == "stopped"
    assert await go_on(to) == ""
    assert await again(js, names, "a") == []
    assert await stop(to, job.id) == stopped
    assert isinstance(await stop(to, job.id[:-1] + "g"), NotDone)


async def test_a_process_learns_that_its_job_is_to_stop_and_sends_no_more(
    js: JetStream, names: Names
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a", 100), per_second=40.0)
    working = asyncio.create_task(go_on(to))
    await until_true(lambda: _sent(js, names))
    assert isinstance(stopping := await stop(to, job.id), JobDocument)
    assert stopping.state == "stopping"
    assert await working == ""
    sent = await again(js, names, "a")
    stopped = await shown(to, job.id)
    assert stopped.state == "stopped"
    assert sent == list(range(len(sent)))
    assert len(sent) < 100
    assert (await replay_job(to, await events(js, names, "b"))).id != job.id
    assert await again(js, names, "a") == sent


@WHEREVER_IT_DIES
async def test_a_job_that_is_to_stop_ends_at_any_request_where_its_process_dies(
    server: Server, js: JetStream, names: Names, every: int, heard: bool
) -> None:
    to = access(js, names)
    for crashing in crashing_processes(server, heard=heard, every=every):
        kind = f"step-{crashing.step}"
        await js.purge(names.deliveries, await end(js, names) + 1)
        job = await replay_job(to, await events(js, names, kind))
        async with crashing.process() as mortal:
            await go_on(access(mortal, names))
        ended = await shown(to, job.id)
        assert isinstance(await stop(to, job.id), JobDocument)
        sent = await again(js, names, kind)
        assert await go_on(to) == ""
        assert (await shown(to, job.id)).state == ("done" if ended.state == "done" else "stopped")
        assert await again(js, names, kind) == sent == list(range(len(sent)))
    assert crashing.step > 15


# ---- redrives


@pytest.fixture
def small_pages(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two letters a page."""
    read = JetStream.read

    async def small(
        self: JetStream, stream: str, subject: str, sequence: int, batch: int = 256, *rest: Any
    ) -> Page:
        return await read(
            self, stream, subject, sequence, 2 if stream == names.dead_letters else batch, *rest
        )

    monkeypatch.setattr(JetStream, "read", small)


@pytest.mark.usefixtures("small_pages")
async def test_all_letters_of_a_tenant_are_sent_and_none_of_another(js: JetStream, names: Names) -> None:
    to = access(js, names)
    await buried(js, names, *range(5))
    await buried(js, names, 5, receiver="other.billing")
    evicted = await publish(js, names, ONE, b"6")
    await js.purge(names.deliveries, evicted + 1)
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=evicted, reason="evicted", sequence=6)])
    job = await redrive_job(to)
    assert (job.kind, job.tenant, job.receiver, job.state) == ("redrive", "acme", None, "waiting")
    assert await go_on(to, "redrive", "acme") == ""
    done = await shown(to, job.id)
    assert (done.state, done.looked_at, done.total) == ("done", 6, 6)
    assert (done.sent, done.left_out) == (5, {"gone": 1})
    assert await again(js, names, "dead") == [0, 1, 2, 3, 4]
    page = await js.read(names.dead_letters, names.dead("*.*"), 1, 10)
    assert [each.subject.rpartition("dead.")[2] for each in page.messages][:1] == ["other.billing"]


@pytest.mark.usefixtures("small_pages")
@WHEREVER_IT_DIES
async def test_a_process_may_die_at_any_request_of_a_redrive_and_each_letter_is_sent_once(
    server: Server, js: JetStream, names: Names, every: int, heard: bool
) -> None:
    to = access(js, names)
    for crashing in crashing_processes(server, heard=heard, every=every):
        await js.purge(names.deliveries, await end(js, names) + 1)
        numbers = [crashing.step * 10 + each for each in range(4)]
        await buried(js, names, *numbers)
        async with crashing.process() as mortal:
            await redrive_job(access(mortal, names), f"key-{crashing.step}")
            await go_on(access(mortal, names), "redrive", "acme")
        job = await redrive_job(to, f"key-{crashing.step}")
        assert await go_on(to, "redrive", "acme") == ""
        done = await shown(to, job.id)
        assert (done.state, done.sent, done.left_out) == ("done", 4, {}), f"died at request {crashing.step}"
        assert await again(js, names, "dead") == numbers, f"died at request {crashing.step}"
    assert crashing.step > 40


@pytest.mark.usefixtures("small_pages")
async def test_the_redrives_of_two_tenants_go_on_in_turns(js: JetStream, names: Names) -> None:
    to, turn = access(js, names), asyncio.Lock()
    await StoredConfigurations(js, names).put("other.billing", b'{"url": "https://example.com/"}')
    for number in range(6):
        await buried(js, names, number)
        await buried(js, names, number, receiver="other.billing")
    for tenant in ("acme", "other"):
        await redrive_job(to, tenant=tenant)
    await asyncio.gather(*(
        run_job(to, "redrive", tenant, lambda: False, turn) for tenant in ("acme", "other")
    ))  # fmt: skip
    page = await js.read(names.deliveries, names.deliveries_to("*.*"), 1, 100)
    sent = [
        each.subject.split(".")[-2] for each in page.messages
        if "Angarium-Again" in each.headers
    ]  # fmt: skip
    assert sorted(sent) == ["acme"] * 6 + ["other"] * 6
    assert sent[:6] != ["acme"] * 6


async def test_a_job_whose_turn_another_command_has_waits_and_keeps_its_lock(
    js: JetStream, names: Names
) -> None:
    to = access(js, names)
    await buried(js, names, 1)
    command = RedriveLock(js, names, "command", SystemTime(), lease_s=LEASE_S)
    await command.acquire()
    job = await redrive_job(to)
    working = asyncio.create_task(go_on(to, "redrive", "acme"))
    await until_true(lambda: is_held(to))
    rival = asyncio.create_task(go_on(to, "redrive", "acme"))
    while not rival.done():
        assert not working.done()
        await command.ensure_held(LEASE_S / 2)
        await asyncio.sleep(0.01)
    assert isinstance(rival.exception(), LockHeld)
    await command.store(held=False)
    assert await working == ""
    assert (await shown(to, job.id)).sent == 1


async def test_a_lock_that_is_released_while_it_is_waited_for_is_taken_at_once(
    js: JetStream, names: Names
) -> None:
    first, second = (RedriveLock(js, names, run, SystemTime(), lease_s=12.0) for run in ("one", "two"))
    await first.acquire()
    waits = asyncio.Event()
    waiting = asyncio.create_task(second.acquire(lambda *_: waits.set()))
    await waits.wait()
    assert not waiting.done()
    await first.store(held=False)
    async with asyncio.timeout(6.0):
        await waiting
