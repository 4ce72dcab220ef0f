"""Replays and redrives during an erasure: no copy of an erased event is sent."""

import asyncio

from actors.machine.facts import Burial
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.installation.topology import Names
from streams.nats.answers import Answer, Unanswered
from streams.nats.jetstream import JetStream
from streams.resending.redrive import Redrive
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import Replay
from streams.resending.replay_lock import EventsToResend, ReplayLock
from tests.contract.resending.settled_events import ONE, end
from tests.contract.support.faults import Publish, misbehaving
from tests.contract.support.servers import Server
from tests.support.installation import publish
from tests.support.waiting import until_true

LEASE_S = 0.4
OVER_A_LEASE_S = 1.1 * LEASE_S


async def bodies(js: JetStream, names: Names) -> list[bytes]:
    page = await js.read(names.deliveries, names.deliveries_to(ONE), 1, 1000)
    return [each.data for each in page.messages]


async def begun(js: JetStream, names: Names, pace_s: float) -> Replay:
    """A replay of everything, about to send."""
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    lock = ReplayLock(js, names, ONE, "run", SystemTime(), lease_s=LEASE_S)
    await lock.acquire()
    replay = Replay(js, names, ONE, lock, pace_s)
    await replay.begin(EventsToResend(begin=0, until=await end(js, names)), "replay-1", "nonce")
    return replay


async def test_a_replay_sends_no_deleted_event(js: JetStream, names: Names) -> None:
    positions = [await publish(js, names, ONE, body) for body in (b"1", b"2", b"3")]
    replay = await begun(js, names, LEASE_S)
    working = asyncio.create_task(replay.send_rest(lambda *_: None))

    async def has_sent_one() -> bool:
        return len(await bodies(js, names)) == 4

    await until_true(has_sent_one)
    await js.delete(names.deliveries, positions[2])
    await working
    assert await bodies(js, names) == [b"1", b"2", b"1", b"2"]
    assert (replay.done.sent, replay.done.purged, replay.done.stopped) == (2, True, "")


async def test_a_copy_that_was_lost_is_not_sent_again_if_its_event_has_gone(
    server: Server, js: JetStream, names: Names
) -> None:
    position = await publish(js, names, ONE, b"1")

    async def lost(_: Publish) -> Answer:
        await js.delete(names.deliveries, position)
        await asyncio.sleep(OVER_A_LEASE_S)
        return Unanswered("the request was lost")

    async with misbehaving(server) as faulty:
        replay = await begun(faulty, names, 0.0)
        faulty.faults[names.publish_to(ONE)].append(lost)
        await replay.send_rest(lambda *_: None)
    assert await bodies(js, names) == []
    assert replay.done.sent == 0


async def test_a_redrive_sends_no_deleted_letter(server: Server, js: JetStream, names: Names) -> None:
    await StoredConfigurations(js, names).put(ONE, b'{"url": "https://example.com/"}')
    for number in (1, 2):
        position = await publish(js, names, ONE, b"%d" % number, {"Angarium-Id": f"e{number}"})
        burial = Burial(position=position, reason="rejected", sequence=number)
        await DeadLetterWriter(js, names).bury(ONE, [burial])
        await js.delete(names.deliveries, position)
    letters = DeadLetters(js, names)
    (page,) = [each async for each in letters.pages(LetterFilter(), await letters.end())]

    async def slow(store: Publish) -> Answer:
        answer = await store()
        await letters.drop([page.letters[-1].mark])
        await asyncio.sleep(OVER_A_LEASE_S)
        return answer

    async with misbehaving(server) as faulty:
        lock = RedriveLock(faulty, names, "run", SystemTime(), lease_s=LEASE_S)
        await lock.acquire()
        redrive = Redrive(faulty, names, lock)
        await redrive.begin()
        faulty.faults[names.publish_to(ONE)].append(slow)
        await redrive.send(sorted(page.letters, key=lambda each: each.position))
        await redrive.end()
    assert await bodies(js, names) == [b"1"]
    assert (redrive.done.redriven, redrive.done.left_out, redrive.done.stopped) == (1, {}, "")
