"""Loss of a stream's tail: detected by what was read, on the server in memory and on the real one."""

import math

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names, consumer_for_claim
from streams.journal.journal import Journal
from streams.journal.refusal import RecordedLoss, compare_or_refuse, lift, read_recorded_loss, refuse
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.comparison import Loss, find_loss
from streams.lost_tails.marks import Mark, Marks
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import JetStream
from streams.reading.reply_subject import delivery_info
from tests.contract.support.shards import (
    RECEIVER,
    SHARD,
    Clocks,
    Listening,
    blank,
    last_flush,
    mark_at,
    own,
    repeated,
)
from tests.support.installation import publish, shard
from tests.support.waiting import KeptMessages, until

WHO = RecordedLoss(node="a", at=1.5, stream="")


async def begun(js: JetStream, names: Names, listening: Listening) -> Journal:
    claimed = await own(js, names, "a")
    journal = Journal(js, names, claimed, "a", listening, time=Clocks(), retention_s=3600.0)
    journal.start()
    return journal


async def recreate(js: JetStream, names: Names, count: int) -> None:
    """Another stream takes the place of the deliveries, with `count` messages."""
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.request(f"$JS.API.STREAM.DELETE.{names.deliveries}", b"")
    await js.stream_create(info.config)
    for _ in range(count):
        await publish(js, names, RECEIVER)


async def test_a_message_has_one_time_in_every_answer(js: JetStream, names: Names) -> None:
    """The time is the same in the stream's state, in the leader's answer, and in the reply subject."""
    await js.consumer_create(
        names.deliveries, consumer_for_claim("c", names.deliveries_of(shard(RECEIVER)), 1)
    )
    seen, inbox = KeptMessages(), js.wire.new_inbox()
    await js.wire.subscribe(inbox, seen)
    for position in range(1, 8):
        await publish(js, names, RECEIVER)
        info, mark = await js.stream_info(names.deliveries), await mark_at(js, names, position)
        assert info is not None
        assert (info.last, info.last_at) == (mark.position, mark.stored_at)
        request = b'{"batch": 1, "expires": 1000000000}'
        puller = f"$JS.API.CONSUMER.MSG.NEXT.{names.deliveries}.c"
        if position == 1:
            await js.wire.publish(puller, request, inbox)
            await until(lambda: bool(seen.messages))
            delivered = delivery_info(seen.messages[0].reply)
            assert (delivered.position, delivered.stored_at) == (mark.position, mark.stored_at)


async def test_a_message_that_exists_is_not_lost(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    assert await find_loss(js, names.deliveries, Mark()) is None
    assert await find_loss(js, names.deliveries, await mark_at(js, names, 2)) is None
    assert await find_loss(js, names.deliveries, Mark(position=3)) is None


async def test_a_purged_message_is_not_lost(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    mark = await mark_at(js, names, 2)
    await js.purge(names.deliveries, 3)
    assert await find_loss(js, names.deliveries, mark) is None
    await js.purge(names.deliveries, 4)
    assert await find_loss(js, names.deliveries, mark) is None


async def test_a_message_that_was_deleted_by_hand_is_not_lost(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    mark = await mark_at(js, names, 2)
    await js.delete(names.deliveries, 2)
    assert await find_loss(js, names.deliveries, mark) is None


async def test_a_deleted_message_is_waited_for_once_and_a_loss_is_noticed_after_that(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark stays until the shard reads a newer message, and is compared at each claim and each purge."""
    for _ in range(3):
        await publish(js, names, RECEIVER)
    mark, asked, ask = await mark_at(js, names, 2), list[int](), js.message
    await js.delete(names.deliveries, 2)

    async def message(stream: str, sequence: int) -> StoredMessage | None:
        asked.append(sequence)
        return await ask(stream, sequence)

    monkeypatch.setattr(js, "message", message)
    assert await find_loss(js, names.deliveries, mark) is None
    assert len(asked) > 1, "it may be missing only for a moment"
    asked.clear()
    assert await find_loss(js, names.deliveries, mark) is None
    assert asked == [2]
    await recreate(js, names, 5)
    assert await find_loss(js, names.deliveries, mark) is not None


async def test_a_stream_that_ends_below_the_mark_has_lost_its_tail(js: JetStream, names: Names) -> None:
    loss = await find_loss(js, names.deliveries, Mark(position=4, stored_at=1.5))
    assert loss is not None
    assert "it ends at 0, but the message at 4 was read from it" in loss.why


async def test_a_deposed_leader_proves_no_loss(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message may still exist: no majority has followed this leader since the question."""
    await publish(js, names, RECEIVER)
    told = await js.stream_info(names.deliveries)
    assert told is not None
    answers = [replace(told, last=0, heard_s=heard_s) for heard_s in (60.0, math.inf)]
    ask = js.stream_info

    async def stream_info(stream: str) -> StreamInfo | None:
        return answers.pop() if answers else await ask(stream)

    monkeypatch.setattr(js, "stream_info", stream_info)
    assert await find_loss(js, names.deliveries, Mark(position=1)) is None
    assert not answers


async def test_a_stream_that_has_grown_again(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    mark = await mark_at(js, names, 2)
    await recreate(js, names, 5)
    loss = await find_loss(js, names.deliveries, mark)
    assert loss is not None
    assert (loss.stream, loss.mark) == (names.deliveries, mark)
    assert "the message read at 2 was stored at" in loss.why


class TestShardMarks:
    async def test_the_marks_are_in_every_flush_and_never_fall(self, js: JetStream, names: Names) -> None:
        listening = Listening()
        journal = await begun(js, names, listening)
        for position, expected in ((7, 7), (5, 7), (9, 9)):
            listening.known = Marks(deliveries=Mark(position=position, stored_at=position + 0.5))
            journal.add(repeated(journal.index + 1), blank(), urgent=True)
            await listening.has(journal.index)
            flush = await last_flush(js, names)
            assert flush.marks == journal.marks
            assert flush.marks.deliveries == Mark(position=expected, stored_at=expected + 0.5)
        await journal.stop()

    async def test_raised_marks_cause_a_flush(self, js: JetStream, names: Names) -> None:
        listening = Listening()
        journal = await begun(js, names, listening)
        listening.known = Marks(events=Mark(position=3, stored_at=1.5))
        journal.routing_moved()
        await until(lambda: bool(listening.positions))
        flush = await last_flush(js, names)
        assert (flush.facts, flush.marks.events.position) == ((), 3)
        await journal.stop()


class TestRoutedMark:
    async def test_the_routed_position_is_in_every_flush_and_never_falls(
        self, js: JetStream, names: Names
    ) -> None:
        listening = Listening()
        journal = await begun(js, names, listening)
        for routed, expected in ((7, 7), (5, 7), (9, 9)):
            listening.progress = RoutingProgress(routed=routed)
            journal.add(repeated(journal.index + 1), blank(), urgent=True)
            await listening.has(journal.index)
            assert (await last_flush(js, names)).routed == journal.routing.routed == expected
        await journal.stop()

    async def test_a_raised_routed_position_causes_a_flush(self, js: JetStream, names: Names) -> None:
        listening = Listening()
        journal = await begun(js, names, listening)
        listening.progress = RoutingProgress(routed=3)
        journal.routing_moved()
        await until(lambda: bool(listening.positions))
        flush = await last_flush(js, names)
        assert (flush.facts, flush.routed) == ((), 3)
        await journal.stop()

    async def test_the_routed_position_is_recorded_before_a_release(
        self, js: JetStream, names: Names
    ) -> None:
        """Otherwise the next owner would route the last second's events again."""
        listening = Listening()
        journal = await begun(js, names, listening)
        listening.progress = RoutingProgress(routed=3)
        journal.routing_moved()
        assert await journal.drain(5.0)
        assert (await last_flush(js, names)).routed == 3
        await journal.stop()

    async def test_the_routed_position_is_repeated_by_a_claim(self, js: JetStream, names: Names) -> None:
        listening = Listening()
        journal = await begun(js, names, listening)
        listening.progress = RoutingProgress(routed=3)
        journal.routing_moved()
        assert await journal.drain(5.0)
        await journal.stop()
        claimed = await own(js, names, "b")
        assert (claimed.routing.routed, (await last_flush(js, names)).routed) == (3, 3)


class TestRecordedLoss:
    async def test_the_record_of_a_loss_refuses_the_shard_until_the_message_is_there(
        self, js: JetStream, names: Names
    ) -> None:
        """The record wins over the journal's marks: the node that found the loss knew more."""
        claimed = await own(js, names, "a")
        loss = Loss(names.deliveries, Mark(position=1), "it is gone")
        assert await refuse(js, names, SHARD, claimed.epoch, loss, WHO)
        recorded = await read_recorded_loss(js, names, SHARD)
        assert recorded is not None
        assert (recorded.node, recorded.stream, recorded.mark) == ("a", names.deliveries, loss.mark)
        with pytest.raises(StreamRecreated, match="it ends at 0"):
            await compare_or_refuse(js, names, SHARD, claimed.epoch, Marks(), WHO)
        await publish(js, names, RECEIVER)
        await compare_or_refuse(js, names, SHARD, claimed.epoch, Marks(), WHO)
        assert await read_recorded_loss(js, names, SHARD) is None

    async def test_the_record_of_a_loss_is_made_at_a_claim(self, js: JetStream, names: Names) -> None:
        claimed = await own(js, names, "a")
        marks = Marks(events=Mark(position=9, stored_at=1.5))
        with pytest.raises(StreamRecreated, match=names.events):
            await compare_or_refuse(js, names, SHARD, claimed.epoch, marks, WHO)
        recorded = await read_recorded_loss(js, names, SHARD)
        assert recorded is not None
        assert (recorded.stream, recorded.mark) == (names.events, marks.events)

    async def test_the_record_of_a_loss_is_the_owners_alone(self, js: JetStream, names: Names) -> None:
        """A process back from the dead knows the stream as it was, not that the loss was accepted."""
        before = await own(js, names, "a")
        claimed = await own(js, names, "b")
        loss = Loss(names.deliveries, Mark(position=1), "it is gone")
        assert not await refuse(js, names, SHARD, before.epoch, loss, WHO)
        assert await read_recorded_loss(js, names, SHARD) is None
        assert await refuse(js, names, SHARD, claimed.epoch, loss, WHO)
        assert not await lift(js, names, SHARD, before.epoch)
        assert await read_recorded_loss(js, names, SHARD) is not None
