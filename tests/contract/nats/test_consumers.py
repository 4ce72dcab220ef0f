"""What the server promises to those who pull, by one pinned client, and what a RESET does."""

import pytest

from streams.nats import jetstream
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.reading.delivered import ACK, delivered
from tests.contract.pulling import (
    GROUP,
    MILLISECOND,
    MakeConsumer,
    Raw,
    acked,
    facts,
    fill,
    handed_out,
)


class TestTheServer:
    async def test_numbers_what_it_hands_out(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer(filter_subject=f"{stream}.1")
        await fill(js, stream, 7)
        await raw.ask(batch=3)
        messages = await raw.seen.first(3)
        assert handed_out(messages) == [(1, 1), (4, 2), (7, 3)]
        first = delivered(messages[0].reply)
        assert (first.deliveries, first.pending) == (1, 2)
        stored = await js.message(stream, 1)
        assert stored is not None
        assert (messages[0].subject, messages[0].data) == (stored.subject, stored.data)
        assert first.stored_at == stored.stored_at

    async def test_ends_a_request_by_saying_what_it_leaves(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer()
        await raw.ask(no_wait=True, expires=0)
        assert (await raw.status())[:2] == ("404", "No Messages")
        await fill(js, stream, 2)
        await raw.ask(expires=100 * MILLISECOND)
        await raw.next()
        await raw.next()
        status, text, headers = await raw.status()
        assert (status, text, headers["Nats-Pending-Messages"]) == ("408", "Request Timeout", "8")

    async def test_wants_to_know_the_group(self, stream: str, make_consumer: MakeConsumer, raw: Raw) -> None:
        await make_consumer()
        await raw.ask(group="")
        assert (await raw.status())[:2] == ("400", "Bad Request - Priority Group missing")
        await raw.ask(group="other")
        assert (await raw.status())[:2] == ("400", "Bad Request - Invalid Priority Group")

    async def test_answers_503_where_there_is_no_consumer(self, raw: Raw) -> None:
        await raw.ask()
        assert (await raw.status())[0] == "503"

    async def test_tells_in_heartbeats_how_far_it_came(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer()
        await fill(js, stream, 3)
        await raw.ask(idle_heartbeat=100 * MILLISECOND, expires=500 * MILLISECOND)
        for _ in range(3):
            await raw.next()
        status, text, headers = await raw.status()
        assert (status, text) == ("100", "Idle Heartbeat")
        assert (headers["Nats-Last-Consumer"], headers["Nats-Last-Stream"]) == ("3", "3")

    async def test_hands_out_no_more_than_may_be_unacked(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer(max_ack_pending=3)
        await fill(js, stream, 5)
        await raw.ask()
        messages = await raw.seen.first(3)
        info = await facts(js, stream)
        assert (info.unacked, info.pending, info.delivered, info.ack_floor) == (3, 2, 3, 0)
        await wire.publish(messages[1].reply, ACK)
        assert handed_out(await raw.seen.first(4))[3] == (4, 4)
        await wire.publish(messages[0].reply, ACK)
        assert handed_out(await raw.seen.first(5))[4] == (5, 5)
        await acked(js, stream, floor=2, unacked=3)
        info = await facts(js, stream)
        assert (info.pending, info.ack_floor_consumer) == (0, 2)

    async def test_hands_out_again_what_is_not_acked_in_time(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        """Before anything newer, and under new numbers: so order is never taken from redelivery."""
        await make_consumer(ack_wait=300 * MILLISECOND, max_ack_pending=3)
        await fill(js, stream, 4)
        await raw.ask()
        messages = await raw.seen.first(3)
        await wire.publish(messages[1].reply, ACK)
        messages = await raw.seen.first(6)
        assert handed_out(messages)[3:] == [(4, 4), (1, 5), (3, 6)]
        assert delivered(messages[4].reply).deliveries == 2

    async def test_pins_the_first_who_is_served(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw, wire: Wire
    ) -> None:
        """Also a producer's own header of this name does not hide the pin."""
        await make_consumer()
        standby = Raw(wire, stream)
        await standby.open()
        await raw.ask(batch=1)
        await js.publish(f"{stream}.1", b"", {"Nats-Pin-Id": "a producer's"})
        message = await raw.next()
        assert message.headers is not None
        pin = message.headers["Nats-Pin-Id"]
        assert pin == (await facts(js, stream)).pinned != "a producer's"
        await standby.ask()
        await fill(js, stream, 2)
        await raw.ask(id=pin)
        assert handed_out([await raw.next(), await raw.next()]) == [(2, 2), (3, 3)]
        assert standby.seen.messages == []
        await standby.ask(id="another")
        assert (await standby.status())[0] == "423"

    async def test_unpins(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw, wire: Wire
    ) -> None:
        await make_consumer()
        await js.consumer_unpin(stream, "c", GROUP)
        await fill(js, stream, 1)
        await raw.ask()
        pin = ((await raw.next()).headers or {})["Nats-Pin-Id"]
        other = Raw(wire, stream)
        await other.open()
        await other.ask()
        await js.consumer_unpin(stream, "c", GROUP)
        assert (await facts(js, stream)).pinned == ""
        await fill(js, stream, 1)
        message = await other.next()
        assert handed_out([message]) == [(2, 2)]
        assert (message.headers or {})["Nats-Pin-Id"] != pin
        await raw.ask(id=pin)
        assert (await raw.status())[0] == "423"

    async def test_knows_what_it_has_not(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert await js.consumer_info(stream, "c") is None
        with pytest.raises(ApiError) as missing:
            await js.consumer_unpin(stream, "c", GROUP)
        assert missing.value.code == 10014
        monkeypatch.setattr(jetstream, "API_TIMEOUT_S", 0.2)
        with pytest.raises(ApiError) as missing:
            await js.consumer_reset(stream, "c", 1)
        assert missing.value.code == 10014
        await make_consumer()
        with pytest.raises(ApiError) as missing:
            await js.consumer_unpin(stream, "c", "other")
        assert missing.value.code == 10160

    async def test_creates_the_same_consumer_once(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer
    ) -> None:
        made = await make_consumer()
        assert (await make_consumer()).created == made.created
        assert made.config["priority_policy"] == "pinned_client"
        with pytest.raises(ApiError) as refused:
            await make_consumer(max_ack_pending=7)
        assert refused.value.code == 10148

    async def test_tells_when_the_consumer_is_deleted(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer()
        await raw.ask()
        await facts(js, stream)
        await js.request(f"$JS.API.CONSUMER.DELETE.{stream}.c", b"")
        assert (await raw.status())[:2] == ("409", "Consumer Deleted")


class TestReset:
    async def test_hands_out_again_from_there_under_numbers_from_one(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        """Also what was acked, below and above the floor."""
        await make_consumer()
        await fill(js, stream, 5)
        await raw.ask(batch=5)
        for message in (await raw.seen.first(5))[:3]:
            await wire.publish(message.reply, ACK)
        await wire.publish(raw.seen.messages[4].reply, ACK)
        await acked(js, stream, floor=3, unacked=1)
        assert await js.consumer_reset(stream, "c", 2) == 2
        info = await facts(js, stream)
        assert (info.delivered, info.delivered_consumer) == (1, 0)
        assert (info.ack_floor, info.ack_floor_consumer, info.unacked, info.pending) == (1, 0, 0, 4)
        await raw.ask(id=info.pinned)
        messages = (await raw.seen.first(9))[5:]
        assert handed_out(messages) == [(2, 1), (3, 2), (4, 3), (5, 4)]
        assert {delivered(message.reply).deliveries for message in messages} == {1}

    async def test_without_a_sequence_goes_back_to_the_floor(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer()
        await fill(js, stream, 4)
        await raw.ask(batch=4)
        messages = await raw.seen.first(4)
        for number in (0, 2):
            await wire.publish(messages[number].reply, ACK)
        await acked(js, stream, floor=1, unacked=2)
        assert await js.consumer_reset(stream, "c") == 2
        await raw.ask(id=(await facts(js, stream)).pinned)
        assert handed_out((await raw.seen.first(7))[4:]) == [(2, 1), (3, 2), (4, 3)]

    async def test_goes_to_those_who_wait(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        """So the pin has to be taken away first."""
        await make_consumer()
        await fill(js, stream, 2)
        await raw.ask()
        await raw.seen.first(2)
        await js.consumer_reset(stream, "c", 1)
        assert handed_out((await raw.seen.first(4))[2:]) == [(1, 1), (2, 2)]

    async def test_an_ack_from_before_counts_once_it_was_handed_out_again(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        """Acks are not fenced: a former owner may still ack."""
        await make_consumer()
        await fill(js, stream, 4)
        await raw.ask(batch=4)
        old = await raw.seen.first(4)
        await js.consumer_reset(stream, "c", 3)
        await wire.publish(old[2].reply, ACK)
        await raw.ask(batch=2, id=(await facts(js, stream)).pinned)
        assert handed_out((await raw.seen.first(6))[4:]) == [(3, 1), (4, 2)]
        await wire.publish(old[2].reply, ACK)
        await acked(js, stream, floor=3, unacked=1)
        assert (await facts(js, stream)).ack_floor_consumer == 1

    async def test_beyond_the_end_skips_what_is_still_to_come(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, raw: Raw
    ) -> None:
        await make_consumer()
        await fill(js, stream, 2)
        assert await js.consumer_reset(stream, "c", 5) == 5
        await fill(js, stream, 3)
        await raw.ask()
        assert handed_out([await raw.next()]) == [(5, 1)]
