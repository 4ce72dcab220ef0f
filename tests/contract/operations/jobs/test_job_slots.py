"""Slots for jobs in one process: a job that waits for its rate gives its slot to another."""

import asyncio
import uuid

import pytest
from msgspec.structs import replace

from angarium.access import Access
from angarium.api.background import jobs
from angarium.api.background.jobs import Jobs
from angarium.operations.jobs import job_slots, plans, run
from angarium.operations.jobs.plans import JobDocument, plan_of_job
from angarium.operations.jobs.run import run_job
from angarium.operations.jobs.show import show
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending import plan_lock
from streams.resending.plan_lock import LockHeld
from streams.resending.redrive_job import RedriveJobLock
from streams.resending.replay import HALTED
from streams.resending.replay_lock import ReplayLock
from tests.contract.operations.jobs.jobs import access, again, buried, events, redrive_job, replay_job, shown
from tests.contract.resending.settled_events import ONE
from tests.contract.resending.windows import LEASE_S
from tests.support.waiting import until, until_true


async def test_a_slow_replay_does_not_keep_others_waiting(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(run, "COPY_PATIENCE_S", 0.05)
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.02)
    monkeypatch.setattr(job_slots, "SLOTS_MAX", 1)
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    to, working = access(js, names), Jobs(access(js, names))
    slow = await replay_job(to, await events(js, names, "a", 3), per_second=1 / 3600)
    working.start()

    async def has_sent() -> bool:
        return (await shown(to, slow.id)).sent == 1

    await until_true(has_sent)
    await buried(js, names, 7, 8)
    quick = await redrive_job(to)

    async def is_done() -> bool:
        return (await shown(to, quick.id)).state == "done"

    await until_true(is_done)
    assert await again(js, names, "a") == [0]
    assert await again(js, names, "dead") == [7, 8]
    waiting = await shown(to, slow.id)
    assert waiting.state == "waiting"
    assert "not due yet" in (waiting.why or "")
    await working.stop()


async def test_a_job_that_another_process_works_off_takes_no_slot(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.02)
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    to, taken = access(js, names), list[str]()

    async def take_up(_to: Access, kind: plans.JobKind, *_: object) -> str:
        taken.append(kind)
        return ""

    monkeypatch.setattr(jobs, "run_job", take_up)
    await replay_job(to, await events(js, names, "a", 3))
    holder = ReplayLock(js, names, ONE, uuid.uuid4().hex, SystemTime())
    await holder.acquire()
    await buried(js, names, 7)
    await redrive_job(to)
    working = Jobs(to)
    working.start()
    await until(lambda: bool(taken))
    await working.stop()
    assert set(taken) == {"redrive"}


async def test_a_quick_replay_leaves_its_slot_after_its_turn_and_continues_later(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(jobs, "READ_PLANS_EVERY_S", 0.02)
    monkeypatch.setattr(job_slots, "SLOTS_MAX", 1)
    monkeypatch.setattr(job_slots, "SLOT_TURN_S", 0.1)
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    to, working = access(js, names), Jobs(access(js, names))
    steady = await replay_job(to, await events(js, names, "a", 12), per_second=25)
    working.start()

    async def has_sent() -> bool:
        return await again(js, names, "a") != []

    await until_true(has_sent)
    await buried(js, names, 7, 8)
    quick = await redrive_job(to, tenant="acme")

    async def is_done(job: str) -> bool:
        return (await shown(to, job)).state == "done"

    await until_true(lambda: is_done(quick.id))
    assert len(await again(js, names, "a")) < 12
    await until_true(lambda: is_done(steady.id))
    assert await again(js, names, "a") == list(range(12))
    await working.stop()


async def test_a_job_that_waits_for_a_slot_says_so(js: JetStream, names: Names) -> None:
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    to = access(js, names)
    one = await replay_job(to, await events(js, names, "a", 1))
    assert "no job runs" in ((await shown(to, one.id)).why or "")
    other = await redrive_job(to, tenant="other")
    lock = RedriveJobLock(js, names, "other", "a-run", SystemTime())
    await lock.acquire()

    async def told(job: str) -> JobDocument:
        plans = [await plan_of_job(to, each.id) for each in (one, other)]
        found = await show(to, job, plans)
        assert isinstance(found, JobDocument)
        return found

    assert (await told(other.id)).why is None
    assert "waits for a slot: 1 job runs, 0 of this tenant" in ((await told(one.id)).why or "")
    assert lock.plan.api_job is not None
    await lock.store(held=False, api_job=replace(lock.plan.api_job, why="the stream is full"))
    assert (await told(other.id)).why == "the stream is full"


async def test_a_redrive_that_waits_for_its_turn_is_released_when_it_is_halted(
    js: JetStream, names: Names
) -> None:
    to, halted, turns = access(js, names), asyncio.Event(), asyncio.Lock()
    await buried(js, names, 7)
    job = await redrive_job(to)
    await turns.acquire()
    working = asyncio.create_task(run_job(to, "redrive", "acme", halted.is_set, turns))

    async def is_running() -> bool:
        return (await shown(to, job.id)).state == "running"

    await until_true(is_running)
    halted.set()
    assert await working == HALTED
    assert (await shown(to, job.id)).state == "waiting"
    turns.release()
    await asyncio.wait_for(turns.acquire(), 1.0)


async def test_a_redrive_that_loses_its_plan_at_its_turn_frees_the_turn(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(_lock: RedriveJobLock, _for_s: float = 0.0) -> None:
        raise LockHeld("overtaken")

    to, turns = access(js, names), asyncio.Lock()
    await buried(js, names, 7)
    await redrive_job(to)
    monkeypatch.setattr(RedriveJobLock, "ensure_held", overtaken)
    with pytest.raises(LockHeld):
        await run_job(to, "redrive", "acme", lambda: False, turns)
    assert not turns.locked()
