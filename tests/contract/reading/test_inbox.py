"""The inbox of a shard: passes on everything above the floor, in order, to its owner alone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.machine.event import Event
from streams.installation.topology import Names
from streams.lost_tails.marks import Mark
from streams.nats.answers import ConsumerInfo
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.reading import pull, reader
from streams.reading.backlog import Backlog
from streams.reading.inbox import PULL_BATCH
from streams.reading.read_marks import ReadMarks
from streams.server.embedded import EmbeddedServer
from tests.contract.support.inboxes import RECEIVER, SHARD, Owner
from tests.contract.support.servers import Server
from tests.support.free_ports import free_port
from tests.support.installation import install, publish, shard
from tests.support.waiting import until, until_true


async def consumers(js: JetStream, names: Names) -> list[ConsumerInfo]:
    """The consumers of all shards, as the server sees them."""
    return sorted(await js.consumers(names.deliveries), key=lambda each: each.name)


@pytest.fixture
async def owner(js: JetStream, names: Names) -> AsyncIterator[Owner]:
    owner = Owner(js, names)
    await owner.inbox.start()
    yield owner
    await owner.inbox.stop()


async def test_events_come_in_order_with_what_was_published(
    js: JetStream, names: Names, owner: Owner
) -> None:
    for number in range(30):
        await publish(js, names, RECEIVER, b"%d" % number, {"Nats-Msg-Id": f"id-{number}"})
    await owner.has(30)
    assert [(receiver, event.id, event.body) for receiver, event in owner.events] == [
        (RECEIVER, f"id-{number}", b"%d" % number) for number in range(30)
    ]
    assert owner.positions == list(range(1, 31))
    assert owner.inbox.received == 30


async def test_messages_read_by_another_reader_are_compared_too(
    js: JetStream, names: Names, owner: Owner
) -> None:
    """A read for a parked receiver went further than the inbox, and another message took that position."""
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await owner.has(3)
    owner.known = Mark(position=4, stored_at=1.5)
    owner.refuse = lambda event: event.position == 4
    await publish(js, names, RECEIVER)
    await until(lambda: bool(owner.losses))
    assert owner.losses[0].mark == owner.known


async def test_a_read_by_another_reader_hides_no_loss(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server restarted without its tail and was filled up again before the loss was noticed."""
    marks = ReadMarks()
    monkeypatch.setattr(reader, "ReadMarks", lambda: marks)
    owner = Owner(js, names)
    await owner.inbox.start()
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await owner.has(3)
    handed_out = Mark(position=3, stored_at=1.5)
    assert marks.newest is not None
    marks.newest = replace(marks.newest, stored_at=handed_out.stored_at)

    def refuse(event: Event) -> bool:
        owner.known = Mark(position=event.position, stored_at=event.stored_at)
        return True

    owner.refuse = refuse
    await publish(js, names, RECEIVER)
    await until(lambda: bool(owner.losses))
    assert owner.losses[0].mark == handed_out
    await owner.inbox.stop()


async def test_only_the_shards_own_receivers_come(js: JetStream, names: Names, owner: Owner) -> None:
    other = next(f"acme.r{n}" for n in range(100) if shard(f"acme.r{n}") != SHARD)
    same = next(f"acme.r{n}" for n in range(100) if shard(f"acme.r{n}") == SHARD)
    for receiver in (other, same, other, RECEIVER):
        await publish(js, names, receiver)
    await owner.has(2)
    assert [receiver for receiver, _ in owner.events] == [same, RECEIVER]
    assert owner.positions == [2, 4]


async def test_no_message_up_to_the_floor_is_delivered(js: JetStream, names: Names, owner: Owner) -> None:
    await owner.inbox.stop()
    for _ in range(10):
        await publish(js, names, RECEIVER)
    later = Owner(js, names)
    later.floor = 7
    await later.inbox.start()
    await later.has(3)
    assert later.positions == [8, 9, 10]
    await later.inbox.stop()


async def test_the_messages_that_are_left_unread_in_a_pause_are_counted(
    js: JetStream, names: Names, owner: Owner
) -> None:
    await owner.inbox.stop()
    for _ in range(3 * PULL_BATCH):
        await publish(js, names, RECEIVER)
    later = Owner(js, names)

    def pause(_: Event) -> bool:
        later.inbox.set_pulling_paused(True)
        return False

    later.refuse = pause
    await later.inbox.start()
    await later.has(PULL_BATCH)
    assert later.inbox.unread == 2 * PULL_BATCH
    later.refuse = lambda _: False
    later.inbox.set_pulling_paused(False)
    await later.has(3 * PULL_BATCH)
    assert later.inbox.unread == 0
    await later.inbox.stop()


async def test_a_name_that_no_receiver_can_have_is_malformed(
    js: JetStream, names: Names, owner: Owner
) -> None:
    bad = next(f"1st.r{n}" for n in range(100) if shard(f"1st.r{n}") == SHARD)
    await publish(js, names, bad)
    await publish(js, names, RECEIVER, headers={"Angarium-Type": "a b"})
    await owner.has(2)
    ((receiver, position, why),) = owner.malformed
    assert (receiver, position) == (bad, 1)
    assert why.startswith("tenant '1st'")
    ((_, event),) = owner.events
    assert event.malformed.startswith("Angarium-Type: event type 'a b'")
    assert owner.inbox.received == 2


async def test_only_a_bounded_part_of_a_name_as_long_as_a_subject_is_looked_at(
    js: JetStream, names: Names, owner: Owner
) -> None:
    """Names that were looked up are kept in memory."""
    long = next(f"acme.{n}{'x' * 3000}" for n in range(100) if shard(f"acme.{n}{'x' * 3000}") == SHARD)
    await publish(js, names, long)
    await owner.has(1)
    ((receiver, _, why),) = owner.malformed
    assert receiver == long
    assert len(why) < 400


NASTY: list[dict[str, str]] = [
    {},
    {"Nats-Msg-Id": "räksmörgås", "Content-Type": "text/plain"},
    {"Nats-Msg-Id": "  padded  "},
    {"Angarium-Id": "a:b: c", "Angarium-Source": "17", "traceparent": "x"},
    {"angarium-id": "other case", "Status": "503", "Description": "No Responders"},
    {"Nats-Stream": "forged", "Nats-Sequence": "1", "Nats-Time-Stamp": "never", "Nats-Subject": "x.y"},
    {"Angarium-Again": "again-1", "Angarium-Id": "x" * 300},
]


async def test_an_event_is_the_same_from_every_reader(js: JetStream, names: Names, owner: Owner) -> None:
    for headers in NASTY:
        await publish(js, names, RECEIVER, b"\x00\xff\r\n", headers or None)
    await owner.has(len(NASTY))
    handed_out = [event for _, event in owner.events]
    backlog = Backlog(js, names, SHARD, asyncio.Semaphore(1))
    batch = await backlog.read(RECEIVER, 0, len(NASTY), 100)
    assert batch.events == handed_out
    assert [await backlog.event(RECEIVER, each.position) for each in handed_out] == handed_out


async def test_released_messages_are_acked(js: JetStream, names: Names, owner: Owner) -> None:
    for _ in range(5):
        await publish(js, names, RECEIVER)
    await owner.has(5)
    owner.inbox.ack(2)
    owner.inbox.ack(3)

    async def acked() -> bool:
        return [(each.ack_floor, each.unacked) for each in await consumers(js, names)] == [(3, 2)]

    await until_true(acked)


async def test_no_consumer_is_left_when_it_stops(js: JetStream, names: Names, owner: Owner) -> None:
    await owner.reading()
    assert [each.name for each in await consumers(js, names)] == [f"shard-{SHARD}-1"]
    await owner.inbox.stop()

    async def gone() -> bool:
        return not await consumers(js, names)

    await until_true(gone)


async def test_a_new_owner_gets_all_above_its_floor_over_any_acts_of_the_old_one(
    server: Server, js: JetStream, names: Names, owner: Owner
) -> None:
    """Each owner has its own consumer."""
    for _ in range(6):
        await publish(js, names, RECEIVER)
    await owner.has(6)
    owner.inbox.ack(6)
    wire = await server.connect("new owner")
    new_js = JetStream(wire)
    await new_js.start()
    new = Owner(new_js, names, epoch=2)
    new.floor = 2
    await new.inbox.start()
    await new.has(4)
    for _ in range(20):
        await publish(js, names, RECEIVER)
    await new.has(24)
    owner.inbox.ack(26)
    assert new.positions == list(range(3, 27))
    assert (await consumers(js, names))[1].ack_floor == 2
    await new.inbox.stop()
    await new_js.stop()
    await wire.close()


async def test_without_a_lease_nothing_is_read(js: JetStream, names: Names, prefix: str) -> None:
    owner = Owner(js, names)
    owner.within_lease = False
    await publish(js, names, RECEIVER)
    await owner.inbox.start()
    assert await consumers(js, names) == []
    assert owner.inbox.consumers == 0
    owner.within_lease = True
    await owner.has(1)
    await owner.inbox.stop()


async def test_a_message_that_could_not_be_taken_comes_again_before_any_later_one(
    js: JetStream, names: Names, owner: Owner
) -> None:
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    await owner.reading()
    owner.refuse = lambda event: event.position == 3 and len(reports) < 2
    for _ in range(5):
        await publish(js, names, RECEIVER)
    await until(lambda: owner.positions[-1:] == [5])
    assert owner.positions == [1, 2, 1, 2, 1, 2, 3, 4, 5]
    assert [str(report["exception"]) for report in reports] == ["refused"] * 2
    assert owner.inbox.consumers == 3


async def test_reading_continues_after_a_gap_from_the_present_floor(
    js: JetStream, names: Names, owner: Owner
) -> None:
    for _ in range(4):
        await publish(js, names, RECEIVER)
    await owner.has(4)
    owner.floor = 3
    await js.consumer_deleted(names.deliveries, f"shard-{SHARD}-1")
    await owner.reading(consumers=2)
    assert [each.name for each in await consumers(js, names)] == [f"shard-{SHARD}-1-1"]
    await publish(js, names, RECEIVER)
    await until(lambda: owner.positions[-1] == 5)
    assert owner.positions[4:][-2:] == [4, 5]
    assert owner.inbox.received == 5


async def test_a_consumer_that_vanished_unnoticed_is_replaced(
    js: JetStream, names: Names, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer's server may have died without notice."""
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.05)
    await publish(js, names, RECEIVER)
    await owner.has(1)
    owner.floor = 1
    owner.inbox.set_pulling_paused(True)
    await js.consumer_deleted(names.deliveries, f"shard-{SHARD}-1")
    owner.inbox.set_pulling_paused(False)
    await publish(js, names, RECEIVER)
    await until(lambda: owner.positions[-1:] == [2])
    assert owner.inbox.consumers >= 2


async def test_an_attempt_to_make_a_consumer_takes_a_new_name(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt whose answer was lost may have been carried out, or may still be."""
    create, asked = js.consumer_create, list[str]()

    async def unanswered(stream: str, config: dict[str, Any], timeout_s: float) -> ConsumerInfo:
        asked.append(config["name"])
        made = await create(stream, config, timeout_s)
        if len(asked) == 1:
            raise Unavailable("the answer is lost")
        return made

    monkeypatch.setattr(js, "consumer_create", unanswered)
    owner = Owner(js, names)
    await owner.inbox.start()
    await owner.reading()
    assert asked == [f"shard-{SHARD}-1", f"shard-{SHARD}-1-1"]

    async def alone() -> bool:
        return [each.name for each in await consumers(js, names)] == asked[1:]

    await until_true(alone)
    await owner.inbox.stop()


async def test_a_server_has_more_time_for_each_further_attempt(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is short, since the consumer may be on a server that was killed."""
    monkeypatch.setattr(reader, "CONSUMER_TIMEOUT_MIN_S", 0.1)
    monkeypatch.setattr(reader, "CONSUMER_TIMEOUT_MAX_S", 0.3)
    create, given = js.consumer_create, list[float]()

    async def unanswered(stream: str, config: dict[str, Any], timeout_s: float) -> ConsumerInfo:
        given.append(timeout_s)
        if len(given) < 4:
            raise Unavailable("no answer in time")
        return await create(stream, config, timeout_s)

    monkeypatch.setattr(js, "consumer_create", unanswered)
    owner = Owner(js, names)
    await owner.inbox.start()
    await owner.reading()
    assert given == [0.1, 0.2, 0.3, 0.3]
    await owner.inbox.stop()


async def test_a_recreated_stream_is_not_read(
    js: JetStream, names: Names, owner: Owner, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await owner.has(3)
    owner.floor = 3
    await js.request(f"$JS.API.STREAM.DELETE.{names.deliveries}", b"", 5.0)
    await install(js, prefix)
    await publish(js, names, RECEIVER)
    await until(lambda: any("recreated" in getattr(record, "why", "") for record in caplog.records))
    assert owner.positions == [1, 2, 3]
    assert owner.inbox.consumers == 1


async def test_an_inbox_that_breaks_says_so(
    js: JetStream, names: Names, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that is no longer read must not look healthy, for any defect."""
    await owner.reading()

    def broken() -> int:
        raise RuntimeError("a defect")

    owner.read_floor = broken
    owner.refuse = lambda _: True  # To have it read the floor.
    await publish(js, names, RECEIVER)
    await until(lambda: bool(owner.broken))
    assert "reader.broken" in caplog.messages


async def test_an_inbox_that_stops_is_not_broken(owner: Owner) -> None:
    await owner.inbox.stop()
    assert not owner.broken


async def test_a_restart_of_the_server_loses_nothing(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, port=free_port(), sync_interval="always") as server:
        wire = await connect(ConnectOptions(servers=(server.url,)))
        js = JetStream(wire)
        await js.start()
        names = await install(js, "restart")
        owner = Owner(js, names)
        await owner.inbox.start()
        for _ in range(5):
            await publish(js, names, RECEIVER)
        await owner.has(5)
        owner.floor = 3
        await server.kill()
        await server.start()
        await until(lambda: wire.is_connected)
        await publish(js, names, RECEIVER)
        await until(lambda: owner.positions[-3:] == [4, 5, 6])
        assert owner.positions == [1, 2, 3, 4, 5, 4, 5, 6]
        await owner.inbox.stop()
        await js.stop()
        await wire.close()
