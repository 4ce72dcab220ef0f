"""Jobs and interference: rivals, requests to stop, lagging replicas."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from angarium.operations.jobs import begin, run
from angarium.operations.jobs.begin import StartedJob, begin_redrive, begin_replay
from angarium.operations.jobs.plans import StoredPlan, plan_of
from angarium.operations.jobs.stop import stop
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, LetterFilter, LetterPage
from streams.installation.topology import Names
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from streams.resending import plan_lock
from streams.resending.plan_lock import LockHeld
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import Replay
from streams.resending.replay_lock import ReplayLock
from tests.contract.operations.jobs.jobs import (
    FAST,
    access,
    again,
    buried,
    events,
    go_on,
    redrive_job,
    replay_job,
    shown,
)
from tests.contract.resending.settled_events import ONE
from tests.contract.resending.windows import LEASE_S


@pytest.fixture(autouse=True)
async def receiver(js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)
    monkeypatch.setattr(run, "PAGE_PAUSE_S", 0.0)
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')


@pytest.fixture
def in_between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Lets something begin after the first search for another job."""

    def arrange(rival: Callable[[], Any]) -> None:
        async def looked(*of: Any) -> StoredPlan | None:
            monkeypatch.setattr(begin, "plan_of", plan_of)
            found = await plan_of(*of)
            await rival()
            return found

        monkeypatch.setattr(begin, "plan_of", looked)

    return arrange


async def test_a_replay_does_not_replace_one_that_began_meanwhile(
    js: JetStream, names: Names, in_between: Callable[[Callable[[], Any]], None]
) -> None:
    to, wanted = access(js, names), await events(js, names, "a", 2)
    in_between(lambda: replay_job(to, wanted, "first"))
    begun = await begin_replay(to, ONE, wanted, FAST, "second")
    assert isinstance(begun, StartedJob)
    assert not begun.mine
    assert (await replay_job(to, wanted, "first")).id == begun.job.id


async def test_a_redrive_does_not_replace_one_that_began_meanwhile(
    js: JetStream, names: Names, in_between: Callable[[Callable[[], Any]], None]
) -> None:
    to = access(js, names)
    in_between(lambda: redrive_job(to, "first"))
    begun = await begin_redrive(to, "acme", LetterFilter(receivers="acme.*"), "second")
    assert isinstance(begun, StartedJob)
    assert not begun.mine
    assert (await redrive_job(to, "first")).id == begun.job.id


async def test_a_process_that_was_overtaken_does_not_stop_the_job_of_its_successor(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "a", 2))

    class Overtaken(Replay):
        async def resume(self) -> None:
            monkeypatch.setattr(run, "Replay", Replay)
            successor = ReplayLock(js, names, ONE, uuid.uuid4().hex, SystemTime(), lease_s=LEASE_S)
            await successor.acquire()
            await stop(to, job.id)
            await super().resume()

    monkeypatch.setattr(run, "Replay", Overtaken)
    with pytest.raises(LockHeld):
        await go_on(to)
    stored = await plan_of(to, "replay", ONE)
    assert stored is not None
    assert (stored.plan.held, stored.plan.unfinished) == (True, True)


@pytest.mark.parametrize("renews", [False, True])
async def test_a_redrive_that_is_stopped_releases_the_lock_of_all_redrives(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, renews: bool
) -> None:
    """The redrive notices when it stores its next page, or earlier, when it renews its plan."""
    to = access(js, names)
    await buried(js, names, 1)
    job = await redrive_job(to)
    pages = DeadLetters.pages

    async def stopped_meanwhile(*of: Any) -> AsyncIterator[LetterPage]:
        await stop(to, job.id)
        if renews:
            await asyncio.Event().wait()
        async for page in pages(*of):
            yield page

    monkeypatch.setattr(DeadLetters, "pages", stopped_meanwhile)
    assert await go_on(to, "redrive", "acme") == ""
    assert (await shown(to, job.id)).state == "stopped"
    stored = await RedriveLock(js, names, "look", SystemTime(), lease_s=LEASE_S).read()
    assert stored is not None
    assert not stored.held


async def test_a_replica_that_lags_does_not_end_a_redrive_early(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, read = access(js, names), JetStream.read
    await buried(js, names, 1, 2, 3)

    async def lagging(self: JetStream, stream: str, *of: Any) -> Page:
        page = await read(self, stream, *of)
        if stream != names.dead_letters:
            return page
        return replace(page, messages=[each for each in page.messages if each.position <= 1], pending=0)

    job = await redrive_job(to)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(JetStream, "read", lagging)
        assert await go_on(to, "redrive", "acme") == ""
    done = await shown(to, job.id)
    assert (done.state, done.sent, done.looked_at, done.total) == ("done", 3, 3, 3)
    assert await again(js, names, "dead") == [1, 2, 3]
