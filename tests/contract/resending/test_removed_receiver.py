"""A receiver is removed while its events are sent again: a new receiver of that name gets none of them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from angarium.operations.failures import NotDone
from angarium.operations.replays import replay as commands
from angarium.operations.replays.resendable import find_resendable
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.installation.topology import Names
from streams.nats.answers import Answer, Stored, Unanswered
from streams.nats.jetstream import JetStream
from streams.resending import plan_lock
from streams.resending.redrive import Redrive
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import ReceiverRemoved, Replay
from streams.resending.replay_lock import EventsToResend, ReplayLock
from tests.contract.operations.jobs.jobs import (
    access,
    again,
    buried,
    events,
    go_on,
    redrive_job,
    replay_job,
    shown,
)
from tests.contract.resending.settled_events import ONE, end
from tests.contract.resending.windows import install_with_receiver
from tests.contract.support.faults import Publish, misbehaving
from tests.contract.support.servers import Server
from tests.support.waiting import until_true

OTHER = "acme.mail"
ELSEWHERE = b'{"url": "https://other.example/hook"}'
LEASE_S = 0.4
Change = Callable[[StoredConfigurations], Awaitable[None]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lock, "LOCK_LEASE_S", LEASE_S)


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install_with_receiver(js, prefix)


async def remove(receivers: StoredConfigurations) -> None:
    assert isinstance(await receivers.delete(ONE), Stored)


async def replace_receiver(receivers: StoredConfigurations) -> None:
    """Remove the receiver; another team then puts one of that name."""
    await remove(receivers)
    assert isinstance(await receivers.put(ONE, ELSEWHERE), Stored)


WAYS = pytest.mark.parametrize(
    ("change", "why"),
    [
        (remove, f"{ONE} was removed"),
        (replace_receiver, f"{ONE} was removed and put again, and gets no event of the time before"),
    ],
    ids=["removed", "put again"],
)


@WAYS
async def test_a_job_that_was_accepted_before_ends_and_sends_nothing(
    js: JetStream, names: Names, change: Change, why: str
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "t"))
    await change(StoredConfigurations(js, names))
    assert await go_on(to) == ""
    ended = await shown(to, job.id)
    assert (ended.state, ended.sent, ended.why) == ("failed", 0, why)
    assert await again(js, names, "t") == []


@WAYS
async def test_a_job_that_waits_for_its_next_copy_ends_and_counts_what_it_sent(
    js: JetStream, names: Names, change: Change, why: str
) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "t"), per_second=1.0)
    working = asyncio.create_task(go_on(to))

    async def has_sent_two() -> bool:
        return len(await again(js, names, "t")) == 2

    await until_true(has_sent_two)
    await change(StoredConfigurations(js, names))
    async with asyncio.timeout(30.0):
        assert await working == ""
    ended = await shown(to, job.id)
    assert (ended.state, ended.sent, ended.why) == ("failed", 2, why)
    assert await again(js, names, "t") == [0, 1]


@WAYS
async def test_a_command_that_is_resumed_ends_and_another_one_may_begin(
    js: JetStream, names: Names, change: Change, why: str
) -> None:
    to, wanted = access(js, names), await events(js, names, "t")
    found = await find_resendable(to, ONE, wanted)
    cut_off = ReplayLock(js, names, ONE, "cut off", SystemTime())
    await cut_off.acquire()
    await Replay(js, names, ONE, cut_off, 0.0).begin(found.events, "replay-1", "nonce")
    await cut_off.store(held=False)
    await change(StoredConfigurations(js, names))
    ended = await commands.replay(to, ONE, None)
    assert isinstance(ended, NotDone)
    assert (ended.kind, ended.text) == ("refused", f"{why}; the replay has ended, with 0 events sent")
    assert await again(js, names, "t") == []
    await StoredConfigurations(js, names).put(ONE, ELSEWHERE)
    job = await replay_job(to, wanted)
    assert await go_on(to) == ""
    assert (await shown(to, job.id)).state == "done"


@WAYS
async def test_a_copy_that_was_lost_is_not_sent_again(
    server: Server, js: JetStream, names: Names, change: Change, why: str
) -> None:
    wanted = await events(js, names, "t", 1)
    found = await find_resendable(access(js, names), ONE, wanted)

    async def lost(_: Publish) -> Answer:
        await change(StoredConfigurations(js, names))
        await asyncio.sleep(1.1 * LEASE_S)
        return Unanswered("the request was lost")

    async with misbehaving(server) as faulty:
        lock = ReplayLock(faulty, names, ONE, "run", SystemTime(), lease_s=LEASE_S)
        await lock.acquire()
        replay = Replay(faulty, names, ONE, lock, 0.0)
        await replay.begin(found.events, "replay-1", "nonce")
        faulty.faults[names.publish_to(ONE)].append(lost)
        with pytest.raises(ReceiverRemoved, match=f"^{why}$"):
            await replay.send_rest(lambda *_: None)
    assert await again(js, names, "t") == []


async def test_a_change_of_the_configuration_ends_no_replay(js: JetStream, names: Names) -> None:
    """A change by the nats CLI, which keeps none of our headers, ends none, nor does an earlier removal."""
    to, receivers = access(js, names), StoredConfigurations(js, names)
    await replace_receiver(receivers)
    job = await replay_job(to, await events(js, names, "t"))
    await receivers.put(ONE, b'{"url": "https://changed.example/"}')
    for _ in range(2):
        await js.publish(names.receiver(ONE), ELSEWHERE)
    assert await go_on(to) == ""
    assert ((await shown(to, job.id)).state, await again(js, names, "t")) == ("done", [0, 1, 2, 3, 4])


async def test_a_receiver_that_the_nats_cli_has_replaced_ends_the_replay(js: JetStream, names: Names) -> None:
    to = access(js, names)
    job = await replay_job(to, await events(js, names, "t"))
    await remove(StoredConfigurations(js, names))
    await js.publish(names.receiver(ONE), ELSEWHERE)
    assert await go_on(to) == ""
    assert ((await shown(to, job.id)).state, await again(js, names, "t")) == ("failed", [])


async def test_a_replay_begun_by_an_older_version_keeps_its_receiver(js: JetStream, names: Names) -> None:
    await events(js, names, "t")
    await replace_receiver(StoredConfigurations(js, names))
    lock = ReplayLock(js, names, ONE, "run", SystemTime(), lease_s=LEASE_S)
    await lock.acquire()
    replay = Replay(js, names, ONE, lock, 0.0)
    await replay.begin(EventsToResend(begin=0, until=await end(js, names)), "replay-1", "nonce")
    await replay.ensure_not_removed()
    await replay.leave(unfinished=True)
    await replace_receiver(StoredConfigurations(js, names))
    await lock.acquire()
    with pytest.raises(ReceiverRemoved):
        await Replay(js, names, ONE, lock, 0.0).send_rest(lambda *_: None)
    assert await again(js, names, "t") == []


# ---- redrives


@pytest.mark.parametrize("change", [remove, replace_receiver])
async def test_the_letters_of_a_receiver_that_was_removed_since_a_redrive_began_are_left(
    js: JetStream, names: Names, change: Change
) -> None:
    to = access(js, names)
    await StoredConfigurations(js, names).put(OTHER, ELSEWHERE)
    await buried(js, names, 1, 2)
    await buried(js, names, 3, receiver=OTHER)
    job = await redrive_job(to)
    await change(StoredConfigurations(js, names))
    assert await go_on(to, "redrive", "acme") == ""
    done = await shown(to, job.id)
    assert (done.state, done.sent, done.left_out) == ("done", 1, {"removed": 2})
    assert await again(js, names, "dead") == []
    # A redrive that begins after that is for the receiver as it is.
    await StoredConfigurations(js, names).put(ONE, ELSEWHERE)
    job = await redrive_job(to)
    assert await go_on(to, "redrive", "acme") == ""
    assert (await shown(to, job.id)).sent == 2


async def test_a_command_leaves_letters_whose_receiver_was_removed_between_two_pages(
    js: JetStream, names: Names
) -> None:
    await buried(js, names, 1, 2)
    lock = RedriveLock(js, names, "run", SystemTime(), lease_s=LEASE_S)
    await lock.acquire()
    redrive, letters = Redrive(js, names, lock), DeadLetters(js, names)
    await redrive.begin()
    (page,) = [each async for each in letters.pages(LetterFilter(), await letters.end())]
    await redrive.send(page.letters[:1])
    await replace_receiver(StoredConfigurations(js, names))
    await redrive.send(page.letters[1:])
    await redrive.end()
    assert (redrive.done.redriven, list(redrive.done.left_out)) == (1, ["removed"])
    assert await again(js, names, "dead") == [1]
