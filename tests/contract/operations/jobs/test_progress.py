"""Progress of a job: at least what was certainly sent, and exact at its end.

A page contains all events here, so that what is told within it is looked at.
"""

import asyncio
from typing import Any

import pytest

from angarium.operations.failures import NotDone
from angarium.operations.jobs import run
from angarium.operations.jobs.plans import JobDocument, plan_of
from angarium.operations.jobs.run import run_job
from angarium.operations.jobs.stop import stop
from angarium.operations.replays.replay import give_up_replay, replay
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from streams.resending import copies, plan_lock
from streams.resending.plan_lock import LockHeld, PlanLock
from streams.resending.redrive import Redrive
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import HALTED, Replay
from streams.resending.replay_lock import EventsToResend, ReplayLock
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
)
from tests.contract.operations.jobs.jobs import shown as shown_job
from tests.contract.resending.settled_events import ONE, end
from tests.contract.resending.windows import LEASE_S, install_with_receiver
from tests.contract.support.crashing_jetstream import WHEREVER_IT_DIES, Died, crashing_processes, dying
from tests.contract.support.servers import Server
from tests.support.waiting import until_true

LONG_LEASE_S = 1.0
"""A lease that does not end by itself, on a busy machine."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(run, "PAGE_PAUSE_S", 0.0)


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install_with_receiver(js, prefix)


@pytest.fixture
def renewing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew the lock each time it is looked whether it is held: so before each copy."""

    async def always(self: PlanLock[Any], for_s: float = 0.0) -> None:
        await self.store()

    monkeypatch.setattr(PlanLock, "ensure_held", always)


@pytest.mark.usefixtures("renewing")
@WHEREVER_IT_DIES
async def test_the_process_of_a_job_may_die_at_any_request_and_the_sent_events_are_counted(
    server: Server, js: JetStream, names: Names, every: int, heard: bool
) -> None:
    """The copy that was on its way may be missing; when another process has ended the job, none is."""
    to = access(js, names)
    for crashing in crashing_processes(server, heard=heard, every=every):
        kind = f"step-{crashing.step}"
        await js.purge(names.deliveries, await end(js, names) + 1)
        job = await replay_job(to, await events(js, names, kind))
        async with crashing.process() as mortal:
            await go_on(access(mortal, names))
        told, sent = await shown_job(to, job.id), await again(js, names, kind)
        assert len(sent) - 1 <= told.sent <= len(sent), f"died at request {crashing.step}"
        assert told.looked_at == told.sent, f"died at request {crashing.step}"
        if crashing.step % 2 and crashing.died:
            assert isinstance(await stop(to, job.id), JobDocument)
        assert await go_on(to) == ""
        ended, sent = await shown_job(to, job.id), await again(js, names, kind)
        assert ended.sent == ended.looked_at == len(sent), f"died at request {crashing.step}"
        assert sent == list(range(len(sent)))
        assert ended.state == "stopped" or len(sent) == 5
    assert crashing.step > 20


async def test_a_running_job_counts_within_its_page_and_a_stopped_one_exactly(
    js: JetStream, names: Names
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a", 100), per_second=40.0)
    working = asyncio.create_task(go_on(to))

    async def some_are_told() -> bool:
        return (await shown_job(to, job.id)).sent > 2

    await until_true(some_are_told)
    assert isinstance(await stop(to, job.id), JobDocument)
    assert await working == ""
    stopped, sent = await shown_job(to, job.id), len(await again(js, names, "a"))
    assert (stopped.state, stopped.sent, stopped.looked_at) == ("stopped", sent, sent)
    assert sent < 100


async def test_a_job_halted_within_a_page_counts_exactly(js: JetStream, names: Names) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a", 5))
    checks = iter([False] * 4)  # Two before each copy but the first: one while it waits for its time.
    assert await run_job(to, "replay", ONE, lambda: next(checks, True), asyncio.Lock()) == HALTED
    waiting, sent = await shown_job(to, job.id), await again(js, names, "a")
    assert 0 < len(sent) < 5
    assert (waiting.state, waiting.sent, waiting.looked_at) == ("waiting", len(sent), len(sent))
    assert isinstance(stopped := await stop(to, job.id), JobDocument)
    assert (stopped.state, stopped.sent) == ("stopped", len(sent))


async def test_an_event_that_is_too_large_is_counted_once_over_many_takeovers_of_the_job(
    js: JetStream, names: Names
) -> None:
    to = access(js, names)
    wanted = await events(js, names, "a")
    job = await replay_job(to, wanted)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msg_size": 1})

    checks = iter([False] * 4)
    assert await run_job(to, "replay", ONE, lambda: next(checks, True), asyncio.Lock()) == HALTED
    assert 0 < (await shown_job(to, job.id)).left_out["too_large"] < 5
    assert await go_on(to) == ""
    done = await shown_job(to, job.id)
    assert (done.state, done.sent, done.left_out) == ("done", 0, {"too_large": 5})


async def test_an_abandoned_command_counts_what_it_sent(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def soon_over(*which: Any, **by: Any) -> ReplayLock:
        return ReplayLock(*which, lease_s=LEASE_S, **by)

    monkeypatch.setattr("angarium.operations.replays.replay.ReplayLock", soon_over)
    to, wanted = access(js, names), await events(js, names, "a")
    async with dying(server, 0, heard=True) as counted:
        assert not isinstance(await replay(access(counted, names), ONE, wanted, FAST), NotDone)
        asked = counted.asked
    await js.purge(names.deliveries, await end(js, names) + 1)
    wanted = await events(js, names, "b")
    async with dying(server, asked - 4, heard=True) as mortal:
        with pytest.raises(Died):
            await replay(access(mortal, names), ONE, wanted, FAST)
    sent = await again(js, names, "b")
    assert 0 < len(sent) < 5
    assert await give_up_replay(to, ONE) == len(sent)
    assert isinstance(await give_up_replay(to, ONE), NotDone)


async def test_a_stopped_redrive_counts_the_letters_that_are_gone(
    server: Server, js: JetStream, names: Names
) -> None:
    """The process dies at each request; another one learns that the job is to stop."""
    to, counts = access(js, names), set[int]()
    for crashing in crashing_processes(server, heard=True, every=5):
        await js.purge(names.deliveries, await end(js, names) + 1)
        info = await js.stream_info(names.dead_letters)
        assert info is not None
        await js.purge(names.dead_letters, info.last + 1)
        await buried(js, names, crashing.step, crashing.step + 1)
        job = await redrive_job(to, f"key-{crashing.step}")
        async with crashing.process() as mortal:
            await go_on(access(mortal, names), "redrive", "acme")
        await stop(to, job.id)
        assert await go_on(to, "redrive", "acme") == ""
        ended = await shown_job(to, job.id)
        left = await js.read(names.dead_letters, names.dead("*.*"), 1, 10)
        assert ended.sent == 2 - len(left.messages), f"died at request {crashing.step}"
        counts.add(ended.sent)
    assert {0, 2} <= counts


# ---- the lock, meanwhile


class Clock(SystemTime):
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.at = 1000.0

    def boottime(self) -> float:
        return self.at


@pytest.fixture
def slow_pages(names: Names, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which a page of one event is read in nearly a lease of 10 s."""
    monkeypatch.setattr(copies, "PAGE_MAX", 1)
    clock, read = Clock(), JetStream.read

    async def slow(self: JetStream, stream: str, *rest: Any) -> Page:
        clock.at += 6.0 if stream == names.deliveries else 0.0
        return await read(self, stream, *rest)

    monkeypatch.setattr(JetStream, "read", slow)
    return clock


async def test_the_lock_is_renewed_while_page_after_page_has_no_wanted_letter(
    js: JetStream, names: Names, slow_pages: Clock
) -> None:
    """Otherwise one process after the other would take the job, find as little, and lose it, forever."""
    await events(js, names, "a", 4)
    lock = ReplayLock(js, names, ONE, "run", slow_pages, lease_s=10.0)
    await lock.acquire()
    replayed = Replay(js, names, ONE, lock, 0.0)
    await replayed.begin(EventsToResend(begin=0, until=await end(js, names), types=("b",)), "m", "n")
    begun, stored = lock.plan.step, list[int]()
    plan = await plan_of(access(js, names), "replay", ONE)
    await replayed.send_rest(lambda done, total: stored.append(lock.plan.step))
    assert lock.plan.step == begun + 4  # Once a page; the end is stored with the release.
    assert plan is not None
    assert (replayed.done.sent, lock.plan.remaining) == (0, 0)


async def test_the_lock_is_renewed_while_a_long_way_is_searched_for_copies(
    js: JetStream, names: Names, slow_pages: Clock
) -> None:
    await events(js, names, "a", 1)
    lock = ReplayLock(js, names, ONE, "run", slow_pages, lease_s=10.0)
    await lock.acquire()
    await Replay(js, names, ONE, lock, 0.0).begin(EventsToResend(begin=0, until=1), "m", "n")
    await events(js, names, "others", 5)
    begun = lock.plan.step
    await Replay(js, names, ONE, lock, 0.0).resume()
    assert lock.plan.step == begun + 5 + 1


async def test_the_lock_of_a_redrive_is_kept_over_a_page_that_takes_long(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LONG_LEASE_S)
    to, sending, go, send = access(js, names), asyncio.Event(), asyncio.Event(), Redrive.send

    async def slow(self: Redrive, *letters: Any) -> None:
        sending.set()
        await go.wait()
        await send(self, *letters)

    monkeypatch.setattr(Redrive, "send", slow)
    await buried(js, names, 1)
    job = await redrive_job(to)
    working = asyncio.create_task(go_on(to, "redrive", "acme"))
    await sending.wait()
    with pytest.raises(LockHeld):
        async with asyncio.timeout(20 * LONG_LEASE_S):
            await go_on(to, "redrive", "acme")
    go.set()
    assert await working == ""
    assert (await shown_job(to, job.id)).sent == 1
    assert await again(js, names, "dead") == [1]


async def test_a_job_that_is_halted_while_it_waits_for_its_turn_is_released_at_once(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", 60.0)
    to, halted = access(js, names), asyncio.Event()
    await buried(js, names, 1)
    command = RedriveLock(js, names, "command", SystemTime(), lease_s=60.0)
    await command.acquire()
    job = await redrive_job(to)
    working = asyncio.create_task(run_job(to, "redrive", "acme", halted.is_set, asyncio.Lock()))

    await until_true(lambda: is_held(to))
    halted.set()
    async with asyncio.timeout(30):
        assert await working == HALTED
    assert not await is_held(to)
    assert (await shown_job(to, job.id)).state == "waiting"
    assert await again(js, names, "dead") == []
    await command.store(held=False)
    assert await go_on(to, "redrive", "acme") == ""
    assert await again(js, names, "dead") == [1]
