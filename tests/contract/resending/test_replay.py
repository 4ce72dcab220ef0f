"""Replays: each event is sent again once and in order, wherever the command is interrupted.

The window in which JetStream drops repeats is cut to nearly nothing here, so that nothing rests on it.
"""

import asyncio
import re
import time
from unittest.mock import AsyncMock

import msgspec
import pytest

from actors.errors import Unavailable
from angarium.access import Access
from angarium.operations.failures import NotDone
from angarium.operations.replays import replay as operation
from angarium.operations.replays.preview import Preview, preview
from angarium.operations.replays.resendable import ReplayFilter
from angarium.settings import Settings
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.protocol import rfc3339
from streams.observation import receiver_snapshots
from streams.reading.messages import stored_event
from streams.resending import copies
from streams.resending.plan_lock import LEASES_WAITED, LockHeld
from streams.resending.replay import Replay, Replayed
from streams.resending.replay_lock import EventsToResend, ReplayLock
from tests.contract.resending.settled_events import ONE, end, settled
from tests.contract.resending.windows import LEASE_S, install_with_receiver
from tests.contract.support.crashing_jetstream import OVER_DEATHS, WHEREVER_IT_DIES, crashing_processes
from tests.contract.support.faults import ack_lost, misbehaving, refused, request_lost
from tests.contract.support.servers import Server
from tests.support.installation import publish, shard
from tests.support.waiting import until

OTHER = "acme.mail"
LONG_LEASE_S = 1.0
"""A lease within which something has to happen, on however busy a machine."""
STORE_FULL = 10077
NOTHING_TOLD = lambda *_: None  # noqa: E731


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install_with_receiver(js, prefix)


def locked(js: JetStream, names: Names, run: str = "", lease_s: float = LEASE_S) -> ReplayLock:
    run = run or f"run-{next(_runs)}"
    return ReplayLock(js, names, ONE, run, SystemTime(), lease_s=lease_s, by="me@here")


_runs = iter(range(1_000_000))


async def replayed(
    js: JetStream, names: Names, events: EventsToResend, mark: str = "replay-1", pace_s: float = 0.0
) -> Replayed:
    """Runs `angarium replay`, with --resume where one was cut off."""
    lock = locked(js, names)
    await lock.acquire()
    work = Replay(js, names, ONE, lock, pace_s)
    if lock.plan.again == mark and not lock.plan.unfinished:
        await work.leave(unfinished=False)
        return Replayed(sent=lock.plan.sent)
    if lock.plan.unfinished:
        await work.resume()
    else:
        await work.begin(events, mark, f"nonce-{mark}")
    await work.send_rest(NOTHING_TOLD)
    await work.leave(unfinished=bool(work.done.stopped))
    return work.done


async def published(js: JetStream, names: Names, *numbers: int, receiver: str = ONE) -> list[int]:
    """Events of the types `t.0` and `t.1`, alternately."""
    return [
        await publish(
            js, names, receiver, b"%d" % each,
            {"Angarium-Id": f"e{each}", "Angarium-Type": f"t.{each % 2}", "X-Own": "x"},
        )
        for each in numbers
    ]  # fmt: skip


async def sent_again(js: JetStream, names: Names, mark: str = "") -> list[StoredMessage]:
    """Lists the events that were sent again, in their order."""
    page = await js.read(names.deliveries, names.deliveries_to(ONE), 1, 10_000)
    return [each for each in page.messages if each.headers.get("Angarium-Again", "").endswith(mark or "")
            and "Angarium-Again" in each.headers]  # fmt: skip


def bodies(messages: list[StoredMessage]) -> list[int]:
    return [int(each.data) for each in messages]


# ---- what is sent


async def test_a_copy_is_the_event_with_its_id_and_a_mark(js: JetStream, names: Names) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "Nats-Msg-Id": "order-7", "Angarium-Type": "order.created", "Content-Type": "text/x", "X-Own": "x",
        "traceparent": trace, "tracestate": "a=b", "Angarium-Source": "12", "Angarium-Region": "eu",
    }  # fmt: skip
    position = await publish(js, names, ONE, b"\x00body", headers)
    await publish(js, names, ONE)
    done = await replayed(js, names, EventsToResend(begin=0, until=await end(js, names)), "replay-0a1b")
    assert done == Replayed(sent=2)
    first, second = await sent_again(js, names)
    assert first.data == b"\x00body"
    assert first.headers == {
        "Angarium-Id": "order-7", "Angarium-Type": "order.created", "Content-Type": "text/x",
        "traceparent": trace, "tracestate": "a=b", "Angarium-Again": "replay-0a1b", "Angarium-Region": "eu",
        "Nats-Msg-Id": f"acme.billing:replay:nonce-replay-0a1b:{position}",
    }  # fmt: skip
    event = stored_event(first)
    assert (event.id, event.again, event.source, event.malformed) == ("order-7", "replay-0a1b", 0, "")
    original = await js.message(names.deliveries, position + 1)
    assert original is not None
    assert stored_event(second).id == stored_event(original).id


async def test_only_what_is_wanted_is_sent(js: JetStream, names: Names) -> None:
    one, two, three, four, five, six = await published(js, names, 1, 2, 3, 4, 5, 6)
    await published(js, names, 7, receiver=OTHER)
    await publish(js, names, ONE, b"8", {"Angarium-Again": "dead-1"})
    await publish(js, names, ONE, b"9", {"Angarium-Type": "..."})
    last = await end(js, names)
    await replayed(js, names, EventsToResend(begin=one, until=five, waiting=(three,)), "a")
    assert bodies(await sent_again(js, names, "a")) == [2, 4, 5]
    await replayed(js, names, EventsToResend(begin=0, until=last, types=("t.1",)), "b")
    assert bodies(await sent_again(js, names, "b")) == [1, 3, 5]
    await replayed(js, names, EventsToResend(begin=two, until=last), "c")
    assert bodies(await sent_again(js, names, "c")) == [3, 4, 5, 6]
    assert await replayed(js, names, EventsToResend(begin=six, until=six), "d") == Replayed()
    assert four < six


async def test_a_page_follows_the_other(js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PAGE_MAX", 3)
    await published(js, names, *range(10))
    seen: list[tuple[int, int]] = []
    lock = locked(js, names)
    await lock.acquire()
    work = Replay(js, names, ONE, lock, 0.0)
    await work.begin(EventsToResend(begin=0, until=await end(js, names)), "m", "n")
    await work.send_rest(lambda done, total: seen.append((done, total)))
    assert bodies(await sent_again(js, names)) == list(range(10))
    assert sorted({*seen}) == [(done, 10) for done in range(11)]


async def test_a_replay_keeps_its_pace_and_its_lock(js: JetStream, names: Names) -> None:
    """The replay is slower than a lease; a process that hangs for so long would count as dead."""
    await published(js, names, 1, 2)
    lock = locked(js, names, lease_s=LONG_LEASE_S)
    await lock.acquire()
    work = Replay(js, names, ONE, lock, 1.5 * LONG_LEASE_S)
    await work.begin(EventsToResend(begin=0, until=await end(js, names)), "m", "n")
    began_at = time.monotonic()
    sending = asyncio.create_task(work.send_rest(NOTHING_TOLD))
    with pytest.raises(LockHeld, match="another replay is running") as busy:
        await locked(js, names, lease_s=LONG_LEASE_S).acquire()
    assert busy.value.remedy == (
        f", begun by me@here at {rfc3339(lock.plan.at)}; wait until it ends, then run this one again"
    )
    # It is known as soon as the lock is renewed, half a lease later, and not only after a lease.
    assert time.monotonic() - began_at < LONG_LEASE_S * LEASES_WAITED
    assert not sending.done()
    await sending
    assert time.monotonic() - began_at >= 1.5 * LONG_LEASE_S
    assert bodies(await sent_again(js, names)) == [1, 2]


# ---- commands that are cut off


@WHEREVER_IT_DIES
async def test_a_command_may_die_at_any_request_and_each_event_is_sent_once_and_in_order(
    server: Server, js: JetStream, names: Names, every: int, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is killed one request later, until a run finishes."""
    monkeypatch.setattr(copies, "PAGE_MAX", 2)
    for crashing in crashing_processes(server, heard=heard, every=every):
        begin = await end(js, names)
        wanted = [10 * crashing.step + each for each in range(5)]
        await published(js, names, *wanted)
        events, mark = EventsToResend(begin=begin, until=await end(js, names)), f"step-{crashing.step}"
        async with crashing.process() as mortal:
            await replayed(mortal, names, events, mark)
        await published(js, names, -1)  # Events come meanwhile.
        if crashing.died:
            done = await replayed(js, names, events, mark)
            assert (done.sent, done.purged) == (5, False), f"it died at request {crashing.step}"
        assert bodies(await sent_again(js, names, mark)) == wanted, f"it died at request {crashing.step}"
    assert crashing.step > 15


@OVER_DEATHS
async def test_deaths_in_a_row_change_nothing(
    server: Server, js: JetStream, names: Names, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each successor is killed later than the one before."""
    monkeypatch.setattr(copies, "PAGE_MAX", 2)
    await published(js, names, *range(6))
    events = EventsToResend(begin=0, until=await end(js, names))
    for crashing in crashing_processes(server, heard=True, every=every):
        async with crashing.process() as mortal:
            done = await replayed(mortal, names, events)
    assert crashing.step > 8
    assert done.sent == 6
    assert bodies(await sent_again(js, names)) == list(range(6))


async def test_a_copy_is_found_among_others_on_a_lagging_replica(
    server: Server, js: JetStream, names: Names
) -> None:
    await published(js, names, 1, 2)
    events = EventsToResend(begin=0, until=await end(js, names))
    async with misbehaving(server) as faulty:
        faulty.faults[names.publish_to(ONE)].append(ack_lost)
        faulty.faults[names.publish_to(ONE)].extend([refused(STORE_FULL)] * 100)
        lock = locked(faulty, names)
        await lock.acquire()
        work = Replay(faulty, names, ONE, lock, 0.0)
        await work.begin(events, "m", "n")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("streams.resending.plan_lock.COMMAND_PATIENCE_S", 1.0)
            with pytest.raises(Unavailable, match="resume it, and it continues"):
                await work.send_rest(NOTHING_TOLD)
    before = await end(js, names)
    await published(js, names, *range(300))
    async with misbehaving(server) as faulty:
        faulty.shown[names.deliveries_to(ONE)].extend([10_000, 10_000, before - 1])
        assert (await replayed(faulty, names, events)).sent == 2
    assert bodies(await sent_again(js, names)) == [1, 2]


async def test_a_publish_is_repeated_until_answered(server: Server, js: JetStream, names: Names) -> None:
    await published(js, names, 1, 2)
    async with misbehaving(server) as faulty:
        faulty.faults[names.publish_to(ONE)].extend([ack_lost, request_lost])
        assert (await replayed(faulty, names, EventsToResend(begin=0, until=await end(js, names)))).sent == 2
    assert set(bodies(await sent_again(js, names))) == {
        1,
        2,
    }  # JetStream forgets ids sooner than it is repeated.


async def test_another_holder_ends_a_replay(js: JetStream, names: Names) -> None:
    await published(js, names, 1, 2)
    events = EventsToResend(begin=0, until=await end(js, names))
    first = locked(js, names, "first")
    await first.acquire()
    work = Replay(js, names, ONE, first, 0.0)
    await work.begin(events, "m", "n")
    assert (await replayed(js, names, events)).sent == 2  # It has waited for the lease of the first.
    with pytest.raises(LockHeld, match="another replay started in between"):
        await work.send_rest(NOTHING_TOLD)
    assert bodies(await sent_again(js, names)) == [1, 2]


# ---- what the stream does not keep, or not take


async def test_events_that_are_purged_meanwhile_are_reported(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PAGE_MAX", 1)
    positions = await published(js, names, *range(5))
    events = EventsToResend(begin=0, until=await end(js, names))
    lock = locked(js, names)
    await lock.acquire()
    work = Replay(js, names, ONE, lock, 0.0)
    await work.begin(events, "m", "n")
    told: list[int] = []

    async def purge() -> None:
        await js.purge(names.deliveries, positions[3])

    purging: list[asyncio.Task[None]] = []

    def on_progress(done: int, _: int) -> None:
        told.append(done)
        if done == 2:
            purging.append(asyncio.ensure_future(purge()))

    read = JetStream.read

    async def read_behind_it(self: JetStream, *which: object) -> object:
        if purging:
            await purging[0]
        return await read(self, *which)  # type: ignore[arg-type]

    monkeypatch.setattr(JetStream, "read", read_behind_it)
    await work.send_rest(on_progress)
    assert work.done == Replayed(sent=4, purged=True)
    assert bodies(await sent_again(js, names)) == [0, 1, 3, 4]


async def test_nothing_is_sent_of_a_range_that_is_gone_and_the_user_is_told(
    server: Server, js: JetStream, names: Names
) -> None:
    await published(js, names, 1, 2)
    events = EventsToResend(begin=0, until=await end(js, names))
    lock = locked(js, names)
    await lock.acquire()
    await Replay(js, names, ONE, lock, 0.0).begin(events, "m", "n")
    await published(js, names, 3)
    await js.purge(names.deliveries, await end(js, names) + 1)
    assert await replayed(js, names, events) == Replayed(purged=True)
    assert await sent_again(js, names) == []


@pytest.mark.parametrize(("rate", "pace_s"), [(None, 0.25), (1000.0, 0.001)])
async def test_a_replay_that_is_resumed_keeps_its_pace_unless_it_is_given_another(
    js: JetStream, names: Names, rate: float | None, pace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await published(js, names, 1)
    lock = locked(js, names)
    await lock.acquire()
    work = Replay(js, names, ONE, lock, 0.25)
    await work.begin(EventsToResend(begin=0, until=await end(js, names)), "m", "n")
    await work.leave(unfinished=True)
    intervals = list[float]()

    class Watched(Replay):
        def __init__(
            self, js: JetStream, names: Names, receiver: str, lock: ReplayLock, pace_s: float
        ) -> None:
            super().__init__(js, names, receiver, lock, pace_s)
            intervals.append(pace_s)

    monkeypatch.setattr(operation, "Replay", Watched)
    done = await operation.replay(Access(js, Settings(prefix=names.prefix)), ONE, None, rate)
    assert isinstance(done, operation.ReplayReport)
    assert (done.sent, intervals) == (1, [pace_s])


async def test_a_replay_stops_at_a_full_stream_and_continues_later(js: JetStream, names: Names) -> None:
    await published(js, names, *range(4))
    events = EventsToResend(begin=0, until=await end(js, names))
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": 6})
    done = await replayed(js, names, events)
    assert (done.sent, "maximum messages exceeded" in done.stopped) == (2, True)
    await js.stream_update(info.config | {"max_msgs": -1})
    assert (await replayed(js, names, events)).sent == 4
    assert bodies(await sent_again(js, names)) == [0, 1, 2, 3]


async def test_an_event_that_is_too_large_does_not_delay_others(js: JetStream, names: Names) -> None:
    await published(js, names, 1)
    large = await publish(js, names, ONE, bytes(4000))
    await published(js, names, 3)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msg_size": 2000})
    done = await replayed(js, names, EventsToResend(begin=0, until=await end(js, names)))
    assert done == Replayed(sent=2, too_large=[large])


@pytest.fixture
async def remembering(js: JetStream, names: Names) -> Names:
    """The installation with JetStream's usual window."""
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"duplicate_window": 120_000_000_000})
    return names


@pytest.mark.parametrize("taker", ["evil.own", ONE])
async def test_a_message_id_that_was_taken_is_not_believed(
    js: JetStream, remembering: Names, taker: str
) -> None:
    """An event whose copy was not stored does not count as sent, as with redrives."""
    names = remembering
    first, second = await published(js, names, 1, 2)
    until = await end(js, names)
    headers = {"Nats-Msg-Id": f"{ONE}:replay:nonce-replay-1:{first}", "Angarium-Id": "e1"}
    await publish(js, names, taker, b"something else", headers | {"Angarium-Again": "replay-1"})
    done = await replayed(js, names, EventsToResend(begin=0, until=until))
    assert done == Replayed(sent=1, taken=[first])
    assert second in [
        int(each.headers["Nats-Msg-Id"].rpartition(":")[2]) for each in await sent_again(js, names)
    ]


async def test_a_copy_that_was_stored_already_counts_as_sent(js: JetStream, remembering: Names) -> None:
    names = remembering
    (position,) = await published(js, names, 1)
    until = await end(js, names)
    copy = {
        "Nats-Msg-Id": f"{ONE}:replay:nonce-replay-1:{position}", "Angarium-Id": "e1",
        "Angarium-Again": "replay-1",
    }  # fmt: skip
    await publish(js, names, ONE, b"1", copy)
    assert await replayed(js, names, EventsToResend(begin=0, until=until)) == Replayed(sent=1)


# ---- the operation


async def test_settled_events_are_replayed_and_waiting_ones_are_left_out(js: JetStream, names: Names) -> None:
    to, now = Access(js, Settings(prefix=names.prefix)), time.time()
    assert isinstance(missing := await preview(to, OTHER, ReplayFilter(since=0.0)), NotDone)
    assert missing.kind == "not_found"
    positions = await published(js, names, 1, 2, 3, 4)
    looked = await preview(to, ONE, ReplayFilter(since=0.0))
    assert isinstance(looked, Preview)
    assert looked.events == 0  # None of them has a number.
    assert looked.left_out == {"not_settled_yet": 4}
    await settled(js, names, positions[2], positions[1])
    looked = await preview(to, ONE, ReplayFilter(since=0.0))
    assert isinstance(looked, Preview)
    assert (looked.events, looked.bytes, looked.types) == (2, 2, {"t.1": 2})
    assert looked.left_out == {"not_settled_yet": 2}
    assert looked.kept_since is None  # Nothing was ever purged.
    assert looked.oldest_at is not None
    assert await sent_again(js, names) == []
    elsewhere, of_no_event = ReplayFilter(since=0.0, until=1.0), ReplayFilter(since=0.0, types=("x",))
    for nothing in (ReplayFilter(since=now + 600), elsewhere, of_no_event):
        looked = await preview(to, ONE, nothing)
        assert isinstance(looked, Preview)
        assert looked.events == 0
    done = await operation.replay(to, ONE, ReplayFilter(since=0.0), 1000.0)
    assert isinstance(done, operation.ReplayReport)
    assert (done.sent, done.finished, done.purged, done.stopped) == (2, True, False, None)
    assert done.left_out == {"not_settled_yet": 2}
    assert re.fullmatch("replay-[0-9a-f]{12}", done.again)
    await js.purge(names.deliveries, positions[1])
    looked = await preview(to, ONE, ReplayFilter(since=0.0))
    assert isinstance(looked, Preview)
    assert looked.events == 1
    assert looked.kept_since is not None
    assert bodies(await sent_again(js, names, done.again)) == [1, 3]
    wrong = await operation.replay(to, ONE, ReplayFilter(since=0.0, types=("a..b",)), 1.0)
    assert isinstance(wrong, NotDone)
    assert "'a..b' is not an event type" in wrong.text


async def test_an_event_settled_since_the_last_snapshot_is_replayed_too(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has it, and the owner's next snapshots will; one that does not run writes none."""
    to, one = Access(js, Settings(prefix=names.prefix)), shard(ONE)
    positions = await published(js, names, *range(4))
    recorded = await js.publish(names.journal_of(one), b"{}")
    assert isinstance(recorded, Stored)
    monkeypatch.setattr(receiver_snapshots, "SNAPSHOTS_TIMEOUT_S", 0.0)
    looked = await preview(to, ONE, ReplayFilter(since=0.0))
    assert isinstance(looked, Preview)
    assert (looked.events, looked.left_out) == (0, {"not_settled_yet": 4})
    monkeypatch.setattr(receiver_snapshots, "SNAPSHOTS_TIMEOUT_S", 60.0)
    monkeypatch.setattr(js, "last_message", looks := AsyncMock(side_effect=js.last_message))
    looking = asyncio.ensure_future(preview(to, ONE, ReplayFilter(since=0.0)))
    await until(lambda: looks.await_count > 3)
    assert not looking.done()
    await settled(js, names, positions[-1])
    checkpoint = Checkpoint(journal_position=recorded.position)
    await js.publish(names.actor_keys.checkpoint(one), msgspec.json.encode(checkpoint))
    looked = await looking
    assert isinstance(looked, Preview)
    assert (looked.events, looked.left_out) == (4, {})


async def test_a_stopped_replay_is_resumed_or_given_up(js: JetStream, names: Names) -> None:
    to = Access(js, Settings(prefix=names.prefix))
    positions = await published(js, names, *range(4))
    await settled(js, names, positions[-1])
    nothing = await operation.replay(to, ONE, None, 1000.0)
    assert isinstance(nothing, NotDone)
    assert "no replay for acme.billing was cut off" in nothing.text
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": 6})
    stopped = await operation.replay(to, ONE, ReplayFilter(since=0.0), 1000.0)
    assert isinstance(stopped, operation.ReplayReport)
    assert (stopped.sent, stopped.finished) == (2, False)
    other = await operation.replay(to, ONE, ReplayFilter(since=0.0), 1000.0)
    assert isinstance(other, NotDone)
    assert "--resume, or give it up with --abandon" in other.sentence
    await js.stream_update(info.config | {"max_msgs": -1})
    done = await operation.replay(to, ONE, None, 1000.0)
    assert isinstance(done, operation.ReplayReport)
    assert (done.sent, done.finished, done.again) == (4, True, stopped.again)
    assert bodies(await sent_again(js, names)) == [0, 1, 2, 3]

    await js.stream_update(info.config | {"max_msgs": 9})
    await operation.replay(to, ONE, ReplayFilter(since=0.0), 1000.0)
    assert not isinstance(await operation.give_up_replay(to, ONE), NotDone)
    assert isinstance(await operation.replay(to, ONE, None, 1.0), NotDone)
