"""What our pull loop makes of a consumer, alone and against others; see also `test_puller.py`."""

import pytest

from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.reading import pull
from streams.reading.delivered import ACK
from streams.reading.pull import rewind
from tests.contract.pulling import (
    GROUP,
    MILLISECOND,
    MakeConsumer,
    Raw,
    TakeUp,
    acked,
    facts,
    fill,
    handed_out,
)
from tests.contract.servers import Server
from tests.contract.waiting import Seen, until


class TestPuller:
    async def test_hands_on_everything_in_order(
        self, js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
    ) -> None:
        await make_consumer()
        await fill(js, stream, 50)
        hand = await take_up(batch=10)
        await hand.seen.first(50)
        await fill(js, stream, 50)
        messages = await hand.seen.first(100)
        assert handed_out(messages) == [(n, n) for n in range(1, 101)]
        for message in messages:
            await wire.publish(message.reply, ACK)
        await acked(js, stream, floor=100, unacked=0)
        assert hand.gaps == []

    async def test_stays_through_expired_requests(
        self,
        js: JetStream,
        stream: str,
        make_consumer: MakeConsumer,
        take_up: TakeUp,
        wire: Wire,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(pull, "REQUEST_EXPIRES_S", 0.25)
        monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.1)
        await make_consumer()
        requests = Seen()
        await wire.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", requests)
        hand = await take_up(batch=10)
        await requests.first(3)
        await fill(js, stream, 12)
        assert handed_out(await hand.seen.first(12)) == [(n, n) for n in range(1, 13)]
        await requests.first(6)
        await fill(js, stream, 1)
        await hand.seen.first(13)
        assert hand.gaps == []

    async def test_waits_for_a_consumer_that_is_not_there(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp, wire: Wire
    ) -> None:
        requests = Seen()
        await wire.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.d", requests)
        await fill(js, stream, 1)
        hand = await take_up()
        await js.consumer_info(stream, "c")
        await make_consumer()
        await hand.seen.first(1)
        assert hand.gaps == []

    async def test_a_new_owner_gets_everything_and_the_old_one_is_told(
        self,
        js: JetStream,
        server: Server,
        stream: str,
        make_consumer: MakeConsumer,
        take_up: TakeUp,
    ) -> None:
        await make_consumer()
        await fill(js, stream, 5)
        old = await take_up()
        await old.seen.first(5)
        wire = await server.connect("new owner")
        other = JetStream(wire)
        await other.start()
        while True:
            await rewind(other, stream, "c", GROUP, 2)
            new = await take_up(js=other)
            await until(lambda: len(new.seen.messages) == 4 or bool(new.gaps))  # noqa: B023
            if not new.gaps:
                break
            await new.puller.stop()
        assert handed_out(new.seen.messages) == [(2, 1), (3, 2), (4, 3), (5, 4)]
        await old.gap()
        await fill(js, stream, 2)
        assert handed_out(await new.seen.first(6))[4:] == [(6, 5), (7, 6)]
        await new.puller.stop()
        await other.stop()
        await wire.close()

    async def test_a_number_that_is_not_the_next(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp, raw: Raw
    ) -> None:
        """Another client was handed the first one; after the gap nothing is handed on."""
        await make_consumer()
        await fill(js, stream, 3)
        await raw.ask(batch=1)
        await raw.next()
        await js.consumer_unpin(stream, "c", GROUP)
        hand = await take_up()
        assert await hand.gap() == "consumer sequence 2 after 0"
        await fill(js, stream, 1)
        await facts(js, stream)
        assert (hand.seen.messages, len(hand.gaps)) == ([], 1)

    async def test_a_reset_by_somebody_else(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
    ) -> None:
        await make_consumer()
        await fill(js, stream, 3)
        hand = await take_up()
        await hand.seen.first(3)
        await js.consumer_reset(stream, "c", 1)
        assert await hand.gap() == "consumer sequence 1 after 3"

    async def test_a_pin_taken_away(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
    ) -> None:
        await make_consumer()
        await fill(js, stream, 1)
        hand = await take_up(batch=2)
        await hand.seen.first(1)
        await js.consumer_unpin(stream, "c", GROUP)
        await fill(js, stream, 3)
        assert await hand.gap() in ("423 Nats-Wrong-Pin-Id", "the pin changed")
        assert len(hand.seen.messages) <= 2

    async def test_a_consumer_deleted(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
    ) -> None:
        await make_consumer()
        await fill(js, stream, 1)
        hand = await take_up()
        await hand.seen.first(1)
        await js.request(f"$JS.API.CONSUMER.DELETE.{stream}.c", b"")
        assert await hand.gap() == "409 Consumer Deleted"

    async def test_after_stop_nothing_is_asked_or_handed_on(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
    ) -> None:
        await make_consumer(priority_timeout=60_000 * MILLISECOND)
        hand = await take_up()
        await facts(js, stream)
        await hand.puller.stop()
        await hand.puller.stop()
        await fill(js, stream, 1)
        await rewind(js, stream, "c", GROUP, 1)
        again = await take_up()
        assert handed_out(await again.seen.first(1)) == [(1, 1)]
        assert (hand.seen.messages, hand.gaps) == ([], [])

    async def test_the_pin_is_not_given_to_a_request_that_was_dropped(
        self, js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp, raw: Raw
    ) -> None:
        """A client has the pin, more is waiting, and a standby goes and comes back as the owner."""
        await make_consumer(priority_timeout=60_000 * MILLISECOND)
        await fill(js, stream, 2)
        await raw.ask(batch=1)
        await raw.next()
        standby = await take_up()
        await facts(js, stream)
        await standby.puller.stop()
        await rewind(js, stream, "c", GROUP, 1)
        owner = await take_up()
        assert handed_out(await owner.seen.first(2)) == [(1, 1), (2, 2)]
