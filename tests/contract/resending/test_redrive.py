"""Redrives: each dead letter is sent once, however the commands end.

The window in which JetStream drops repeats is cut to nearly nothing here, so that nothing rests on it.
"""

import asyncio
import re
from collections import Counter
from unittest.mock import ANY

import msgspec
import pytest

from actors.errors import Unavailable
from actors.machine.facts import Burial
from streams.clock import SystemTime
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.installation.topology import Names
from streams.lost_tails.marks import Mark
from streams.nats.answers import Answer, Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.reading.messages import stored_event
from streams.resending.plan_lock import LockHeld
from streams.resending.redrive import Redrive, Redriven
from streams.resending.redrive_lock import RedriveLock, RedrivePlan
from tests.contract.resending.windows import LEASE_S, install_with_receiver, shorten_window
from tests.contract.support.crashing_jetstream import (
    OVER_DEATHS,
    WHEREVER_IT_DIES,
    Died,
    crashing_processes,
    dying,
)
from tests.contract.support.faults import Publish, ack_lost, misbehaving, refused, request_lost
from tests.contract.support.servers import Server
from tests.contract.support.shards import Clocks
from tests.support.installation import publish
from tests.support.waiting import until_true

ONE, OTHER = "acme.billing", "acme.mail"
LONG_LEASE_S = 1.0
"""A lease within which something has to happen, on however busy a machine."""

STORE_FULL = 10077


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install_with_receiver(js, prefix, OTHER)


async def bury(js: JetStream, names: Names, receiver: str, *numbers: int) -> None:
    """Events that were published, numbered and given up."""
    for number in numbers:
        headers = {"Angarium-Id": f"e{number}", "Angarium-Type": "order.created", "X-Own": "not passed on"}
        position = await publish(js, names, receiver, b"%d" % number, headers)
        await DeadLetterWriter(js, names).bury(
            receiver, [Burial(position=position, reason="rejected", sequence=number)]
        )


async def settle_all(js: JetStream, names: Names) -> None:
    """Settles and purges all that was published."""
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.purge(names.deliveries, info.last + 1)


async def begun(js: JetStream, names: Names, **options: bool) -> Redrive:
    """A redrive that has its lock."""
    lock = RedriveLock(js, names, f"run-{id(js)}-{next(_runs)}", SystemTime(), lease_s=LEASE_S)
    await lock.acquire()
    redrive = Redrive(js, names, lock, **options)
    await redrive.begin()
    return redrive


_runs = iter(range(1_000_000))


async def redrive_all(js: JetStream, names: Names, **options: bool) -> Redriven:
    """Redrives all letters, as `angarium dead redrive --all` does."""
    redrive, dead = await begun(js, names, **options), DeadLetters(js, names)
    async for page in dead.pages(LetterFilter(), await dead.end()):
        await redrive.send(page.letters)
    await redrive.end()
    return redrive.done


async def sent(js: JetStream, names: Names, receiver: str = "*.*") -> list[StoredMessage]:
    """Lists the stored copies that were sent again."""
    page = await js.read(names.deliveries, names.deliveries_to(receiver), 1)
    return [message for message in page.messages if "Angarium-Again" in message.headers]


async def letters(js: JetStream, names: Names) -> list[int]:
    """The letters that there are."""
    found = (await js.read(names.dead_letters, names.dead("*.*"), 1)).messages
    return [message.position for message in found]


# ---- what is sent


async def test_a_redriven_letter_is_the_event_with_its_id_and_a_mark(js: JetStream, names: Names) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "Nats-Msg-Id": "order-7", "Angarium-Type": "order.created", "Content-Type": "text/x", "X-Own": "x",
        "traceparent": trace, "tracestate": "a=b", "Angarium-Source": "12", "Angarium-Region": "eu",
    }  # fmt: skip
    position = await publish(js, names, ONE, b"\x00body", headers)
    burial = Burial(position=position, reason="rejected", sequence=7, attempts=5, status=422)
    await DeadLetterWriter(js, names).bury(ONE, [burial], {position: "no"})
    assert await redrive_all(js, names) == Redriven(redriven=1)
    (message,) = await sent(js, names, ONE)
    assert message.data == b"\x00body"
    assert message.headers == {
        "Angarium-Id": "order-7", "Angarium-Type": "order.created", "Content-Type": "text/x",
        "traceparent": trace, "tracestate": "a=b", "Angarium-Again": "dead-7", "Nats-Msg-Id": ANY,
        "Angarium-Region": "eu",
    }  # fmt: skip
    assert re.match(r"acme\.billing:order-7:dead-7:[0-9a-f]{32}\Z", message.headers["Nats-Msg-Id"])
    event = stored_event(message)
    assert (event.id, event.again, event.malformed) == ("order-7", "dead-7", "")
    assert await letters(js, names) == []


async def test_an_event_without_a_number_is_marked_with_its_position(js: JetStream, names: Names) -> None:
    position = await publish(js, names, ONE)
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=position, reason="unknown_receiver")])
    await redrive_all(js, names)
    (message,) = await sent(js, names)
    assert message.headers["Angarium-Again"] == f"dead-p{position}"


async def test_a_redriven_event_gets_another_mark_the_next_time(js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 7)
    await redrive_all(js, names)
    (first,) = await sent(js, names)
    await DeadLetterWriter(js, names).bury(
        ONE, [Burial(position=first.position, reason="rejected", sequence=12)]
    )
    await redrive_all(js, names)
    events = [stored_event(message) for message in await sent(js, names)]
    assert [(event.id, event.again) for event in events] == [("e7", "dead-7"), ("e7", "dead-12")]


async def test_a_receivers_letters_keep_their_order(js: JetStream, names: Names) -> None:
    for number in range(1, 31):
        await bury(js, names, (ONE, OTHER)[number % 2], number)
    assert (await redrive_all(js, names)).redriven == 30
    for receiver in (ONE, OTHER):
        bodies = [int(message.data) for message in await sent(js, names, receiver)]
        assert bodies == sorted(bodies)
        assert len(bodies) == 15


async def test_letters_that_cannot_be_sent_stay_and_are_counted(js: JetStream, names: Names) -> None:
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=99, reason="evicted", sequence=1)])
    position = await publish(js, names, ONE, b"", {"Angarium-Type": "a b"})
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=position, reason="malformed", sequence=2)])
    await bury(js, names, ONE, 3)
    assert await redrive_all(js, names) == Redriven(redriven=1, left_out={"gone": [1], "malformed": [2]})
    assert await letters(js, names) == [1, 2]


async def test_a_letter_that_was_dropped_meanwhile_is_not_sent(js: JetStream, names: Names) -> None:
    """A page may come from a replica that lags; the leader has the last word."""
    await bury(js, names, ONE, 1, 2)
    dead = DeadLetters(js, names)
    page = await dead.letters([1, 2])
    await dead.drop([page[0].mark])
    redrive = await begun(js, names)
    await redrive.send(page)
    assert [message.data for message in await sent(js, names)] == [b"2"]


async def test_a_letter_that_was_buried_twice_is_one_event_to_the_actor(js: JetStream, names: Names) -> None:
    """A dead letter may be stored again after a crash, when JetStream has forgotten the first one."""
    await shorten_window(js, names.dead_letters)
    position = await publish(js, names, ONE, b"", {"Angarium-Id": "e7"})

    async def twice() -> bool:
        await DeadLetterWriter(js, names).bury(ONE, [Burial(position=position, reason="expired", sequence=7)])
        return len(await letters(js, names)) == 2

    await until_true(twice)
    await redrive_all(js, names)
    assert len({stored_event(message).key for message in await sent(js, names)}) == 1
    assert await letters(js, names) == []


# ---- ids that another publisher took


@pytest.fixture
async def remembering(js: JetStream, names: Names) -> Names:
    """The installation with JetStream's usual window."""
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"duplicate_window": 120_000_000_000})
    return names


async def test_an_id_that_can_be_guessed_costs_no_letter(js: JetStream, remembering: Names) -> None:
    names = remembering
    await bury(js, names, ONE, 7)
    for guess in ("acme.billing:e7:dead-7", "acme.billing:e7:dead-7:", "acme.billing:7"):
        await publish(js, names, "evil.own", b"", {"Nats-Msg-Id": guess})
    assert await redrive_all(js, names) == Redriven(redriven=1)
    assert [message.data for message in await sent(js, names, ONE)] == [b"7"]
    assert await letters(js, names) == []


@pytest.mark.parametrize("taker", ["evil.own", ONE])
async def test_a_message_id_that_another_publisher_took_does_not_count_as_sent(
    js: JetStream, remembering: Names, taker: str
) -> None:
    """Neither this command nor a successor that finishes its work believes it."""
    names = remembering
    await bury(js, names, ONE, 7)
    await redrive_all(js, names)
    (first,) = await sent(js, names)
    nonce = first.headers["Nats-Msg-Id"].rpartition(":")[2]
    await bury(js, names, ONE, 8)
    taken = f"acme.billing:e8:dead-8:{nonce}"
    headers = {"Nats-Msg-Id": taken, "Angarium-Id": "e8", "Angarium-Again": "dead-8"}
    redrive = await begun(js, names)
    await publish(js, names, taker, b"something else", headers)
    await redrive.send(await DeadLetters(js, names).letters([2]))
    assert redrive.done == Redriven(left_out={"taken": [2]})
    assert await redrive_all(js, names) == Redriven(left_out={"taken": [2]})
    assert await letters(js, names) == [2]


async def test_a_copy_of_ours_whose_answer_was_lost_is_known_again(
    server: Server, js: JetStream, remembering: Names
) -> None:
    await bury(js, remembering, ONE, 7)
    async with misbehaving(server) as faulty:
        faulty.faults[remembering.publish_to(ONE)].append(ack_lost)
        assert await redrive_all(faulty, remembering) == Redriven(redriven=1)
    assert len(await sent(js, remembering)) == 1


async def test_a_copy_that_is_gone_again_proves_nothing(
    server: Server, js: JetStream, remembering: Names
) -> None:
    """JetStream remembers the id of a message that was purged."""
    names = remembering
    await bury(js, names, ONE, 7)

    async def lost_and_purged(publish: Publish) -> Answer:
        answer = await ack_lost(publish)
        await settle_all(js, names)
        return answer

    async with misbehaving(server) as faulty:
        faulty.faults[names.publish_to(ONE)].append(lost_and_purged)
        assert await redrive_all(faulty, names) == Redriven(left_out={"unsure": [1]})
    assert await letters(js, names) == [1]


async def test_letters_that_an_older_version_sent_are_found(js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 7, 8)
    again = {"Angarium-Id": "e7", "Angarium-Again": "dead-7", "Nats-Msg-Id": "acme.billing:e7:dead-7"}
    info = await js.stream_info(names.deliveries)
    assert info is not None
    plan = {"v": 1, "run": "old", "step": 2, "at": 0.0, "held": True, "after": info.last, "letters": [1, 2]}
    await js.publish(names.actor_keys.redrive, msgspec.json.encode(plan))
    await publish(js, names, ONE, b"7", again)
    assert await redrive_all(js, names) == Redriven(redriven=1, finished=[1])
    assert [message.data for message in await sent(js, names)] == [b"7", b"8"]


# ---- what the stream does not take


async def test_a_redrive_stops_at_a_full_stream_and_continues_later(js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, *range(1, 6))
    await settle_all(js, names)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": 3})
    done = await redrive_all(js, names)
    assert done.redriven == 3
    assert "maximum messages exceeded" in done.stopped
    assert await letters(js, names) == [4, 5]
    await settle_all(js, names)
    assert await redrive_all(js, names) == Redriven(redriven=2)
    assert [message.data for message in await sent(js, names)] == [b"4", b"5"]


async def test_an_event_that_is_too_large_does_not_delay_others(js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 1)
    position = await publish(js, names, ONE, bytes(4000))
    await DeadLetterWriter(js, names).bury(ONE, [Burial(position=position, reason="rejected", sequence=2)])
    await bury(js, names, ONE, 3)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msg_size": 2000})
    assert await redrive_all(js, names) == Redriven(redriven=2, left_out={"too_large": [2]})


@pytest.mark.parametrize("server", ["nats-server"], indirect=True)
async def test_an_event_whose_headers_are_too_large_does_not_delay_others(
    js: JetStream, names: Names
) -> None:
    """Letters of older versions may have as many as JetStream takes; these are not read."""
    await bury(js, names, ONE, 1)
    headers = {"Angarium-Reason": "rejected", "Angarium-Id": "e2", "traceparent": "v" * 65_400}
    assert isinstance(await js.publish(names.dead(ONE), b"", headers), Stored)
    await bury(js, names, ONE, 3)
    assert await redrive_all(js, names) == Redriven(redriven=2, left_out={"too_large": [2]})
    assert await letters(js, names) == [2]


async def test_a_publish_is_repeated_until_answered(server: Server, js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 1, 2)
    async with misbehaving(server) as faulty:
        faulty.faults[names.publish_to(ONE)].extend([ack_lost, request_lost])
        assert (await redrive_all(faulty, names)).redriven == 2
    assert {message.data for message in await sent(js, names)} == {b"1", b"2"}


async def test_a_refusal_after_a_lost_answer_decides_nothing(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try may be the one that filled the stream; the next command finds it."""
    # Long enough for the plan to be stored on a machine that is busy.
    monkeypatch.setattr("streams.resending.plan_lock.COMMAND_PATIENCE_S", 1.0)
    await bury(js, names, ONE, 1)
    async with misbehaving(server) as faulty:
        faulty.faults[names.publish_to(ONE)].extend([ack_lost, *[refused(STORE_FULL)] * 100])
        with pytest.raises(Unavailable, match="letter 1 was sent but not confirmed"):
            await redrive_all(faulty, names)
    assert await letters(js, names) == [1]
    assert await redrive_all(js, names) == Redriven(finished=[1])
    assert len(await sent(js, names)) == 1


# ---- commands that are cut off


@WHEREVER_IT_DIES
async def test_a_command_may_die_at_any_request_and_each_letter_is_sent_once(
    server: Server, js: JetStream, names: Names, every: int, heard: bool
) -> None:
    """Each run is killed one request later, until a run finishes."""
    for crashing in crashing_processes(server, heard=heard, every=every):
        await bury(js, names, ONE, *range(10 * crashing.step, 10 * crashing.step + 3))
        await bury(js, names, OTHER, 10 * crashing.step + 3)
        async with crashing.process() as mortal:
            await redrive_all(mortal, names)
        done = await redrive_all(js, names)
        again = Counter(message.headers["Nats-Msg-Id"] for message in await sent(js, names))
        assert sorted(again.values()) == [1] * 4, f"it died at request {crashing.step}: {again}"
        assert await letters(js, names) == []
        assert not done.left_out
        await settle_all(js, names)
    assert crashing.step > 15


async def interrupted(server: Server, js: JetStream, names: Names, *numbers: int) -> None:
    """All letters were sent, and the command died before it dropped any."""
    await bury(js, names, ONE, *numbers)
    dead = DeadLetters(js, names)
    async with dying(server, 0, heard=True) as mortal:
        redrive = await begun(mortal, names)
        page = await dead.letters(await letters(js, names))
        mortal.spares_letters = True
        with pytest.raises(Died):
            await redrive.send(page)
    assert len(await sent(js, names)) == len(numbers)


@OVER_DEATHS
async def test_deaths_in_a_row_change_nothing(
    server: Server, js: JetStream, names: Names, every: int
) -> None:
    """Each successor is killed later than the one before."""
    await interrupted(server, js, names, *range(1, 6))
    for crashing in crashing_processes(server, heard=True, every=every):
        async with crashing.process() as mortal:
            await redrive_all(mortal, names)
    assert crashing.step > 8
    again = Counter(message.data for message in await sent(js, names))
    assert again == Counter([b"%d" % number for number in range(1, 6)])
    assert await letters(js, names) == []


async def test_a_copy_is_found_among_others_on_a_lagging_replica(
    server: Server, js: JetStream, names: Names
) -> None:
    await interrupted(server, js, names, 1, 2)
    for _ in range(300):
        await publish(js, names, ONE)
    async with misbehaving(server) as faulty:
        before = (await sent(js, names))[0].position
        faulty.shown[names.deliveries_to(ONE)].extend([before, before])
        assert await redrive_all(faulty, names) == Redriven(finished=[1, 2])
    assert len(await sent(js, names)) == 2


async def test_nothing_is_sent_unasked_if_it_cannot_be_known_any_more_whether_it_was(
    server: Server, js: JetStream, names: Names
) -> None:
    await interrupted(server, js, names, 1, 2)
    await publish(js, names, ONE)
    await settle_all(js, names)
    await bury(js, names, ONE, 3)
    for expected in (
        Redriven(redriven=1, left_out={"unsure": [1, 2]}),
        Redriven(left_out={"unsure": [1, 2]}),
    ):
        assert await redrive_all(js, names) == expected
    assert await letters(js, names) == [1, 2]
    await DeadLetters(js, names).drop([Mark(position=1)])
    assert await redrive_all(js, names, unsure_too=True) == Redriven(redriven=1)
    assert [message.data for message in await sent(js, names)] == [b"3", b"2"]
    await bury(js, names, ONE, 4)
    assert await redrive_all(js, names) == Redriven(redriven=1)


# ---- several commands


async def test_a_turn_that_ended_is_not_waited_for(js: JetStream, names: Names) -> None:
    waited: list[RedrivePlan] = []
    for run in ("one", "two"):
        lock = RedriveLock(js, names, run, SystemTime(), lease_s=60)
        await lock.acquire(lambda plan, _: waited.append(plan))
        await lock.store(held=False)
    assert waited == []


async def test_a_turn_that_continues_is_left_alone(js: JetStream, names: Names) -> None:
    first = RedriveLock(js, names, "first", SystemTime(), lease_s=LONG_LEASE_S)
    await first.acquire()
    waiting = asyncio.Event()
    second = RedriveLock(js, names, "second", SystemTime(), lease_s=LONG_LEASE_S)
    taking = asyncio.ensure_future(second.acquire(lambda *_: waiting.set()))
    await waiting.wait()
    await first.store(letters=(1,))
    with pytest.raises(LockHeld, match="another redrive is running"):
        await taking


async def test_a_holder_that_was_overtaken_sends_nothing_more(js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 1)
    slow = await begun(js, names)
    page = await DeadLetters(js, names).letters([1])
    quick = await begun(js, names)
    for sending in (slow.send(page), slow.end()):
        with pytest.raises(LockHeld, match="another redrive started in between"):
            await sending
    assert await sent(js, names) == []
    await quick.send(page)
    await quick.end()
    assert len(await sent(js, names)) == 1


async def test_a_redrive_overtaken_within_a_page_stops(server: Server, js: JetStream, names: Names) -> None:
    await bury(js, names, ONE, 1, 2)
    page = await DeadLetters(js, names).letters([1, 2])
    quick: list[Redrive] = []

    async def stored_and_overtaken(publish: Publish) -> Answer:
        answer = await publish()
        quick.append(await begun(js, names))
        return answer

    async with misbehaving(server) as faulty:
        slow = await begun(faulty, names)
        faulty.faults[names.publish_to(ONE)].append(stored_and_overtaken)
        with pytest.raises(LockHeld):
            await slow.send(page)
    assert quick[0].done == Redriven(finished=[1])
    await quick[0].send(page)
    await quick[0].end()
    assert [message.data for message in await sent(js, names)] == [b"1", b"2"]


async def test_a_lease_that_lapsed_within_a_page_is_checked(js: JetStream, names: Names) -> None:
    clocks = Clocks()
    lock = RedriveLock(js, names, "first", clocks, lease_s=LEASE_S)
    await lock.acquire()
    step = lock.plan.step
    await lock.ensure_held()
    assert lock.plan.step == step
    clocks.turn(LEASE_S)
    await lock.ensure_held()
    assert lock.plan.step == step + 1
    other = RedriveLock(js, names, "second", clocks, lease_s=LEASE_S)
    await other.acquire()
    clocks.turn(LEASE_S)
    with pytest.raises(LockHeld):
        await lock.ensure_held()
