"""The pull loop, with scripted answers that no real server gives on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from streams.nats.answers import Put
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.reading import pull
from streams.reading.pull import Puller
from streams.reading.pull_room import LARGE_AT_ONCE, REQUEST_BYTES_MAX, ROOM_BYTES, PullRoom
from streams.reading.reply_subject import ACK, DeliveryInfo, delivery_info
from tests.support.waiting import LOOK_S, KeptMessages, until
from tests.unit.worlds.virtual_time import in_virtual_time


class ScriptedWire:
    """Keeps what is sent, and hands in what the test says."""

    is_connected = True
    max_payload = 1 << 20
    server_version = "2.15.1"

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.handlers: dict[str, Callable[[Message], None]] = {}
        self.listeners: list[Callable[[bool], None]] = []

    def new_inbox(self) -> str:
        return f"inbox{len(self.handlers)}"

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self.sent.append(Message(subject, data, reply, headers))

    unsent = 0

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        for put, reply in zip(puts, replies, strict=True):
            self.sent.append(Message(put.subject, put.data, reply, put.headers))

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        for subject in subjects:
            await self.publish(subject, data)

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, headers: bool = True
    ) -> "ScriptedSubscription":
        self.handlers[subject] = handler
        return ScriptedSubscription(self, subject)

    def on_forbidden(self, listener: Callable[[str], None]) -> None:
        """All is permitted."""

    def on_change(self, listener: Callable[[bool], None]) -> None:
        self.listeners.append(listener)

    async def close(self) -> None:
        self.is_connected = False


class ScriptedSubscription:
    def __init__(self, wire: ScriptedWire, subject: str) -> None:
        self._wire = wire
        self._subject = subject

    async def unsubscribe(self) -> None:
        self._wire.handlers.pop(self._subject, None)


def reply_of(number: int) -> str:
    return f"$JS.ACK.S.c.1.{number + 7}.{number}.0.0"


class Script:
    """A puller with a batch of 10, and `more` besides, whose first request is made."""

    def __init__(self, room: PullRoom | None = None) -> None:
        self.wire = ScriptedWire()
        self.seen = KeptMessages()
        self.gaps: list[str] = []
        self.more = 0
        self.puller = Puller(
            JetStream(self.wire),
            "S",
            "c",
            room=room or PullRoom(),
            batch=10,
            on_message=self._take,
            on_gap=self.gaps.append,
            more=lambda: self.more,
        )

    def _take(self, message: Message, info: DeliveryInfo) -> None:
        assert info == delivery_info(message.reply)
        self.seen(message)

    async def refused_after(self) -> float:
        """Refuse the request that was made, and return the time until the next one."""
        loop, before = asyncio.get_running_loop(), len(self.wire.sent)
        refused_at = loop.time()
        self.hear(Status="409", Description="Exceeded MaxAckPending", Nats_Pending_Messages="10")
        await self.request(before + 1)
        return loop.time() - refused_at

    async def request(self, number: int) -> dict[str, object]:
        """The request of this number, counted from 1, as soon as it is made."""
        await until(lambda: len(self.wire.sent) >= number)
        message = self.wire.sent[number - 1]
        assert message.subject == "$JS.API.CONSUMER.MSG.NEXT.S.c"
        assert message.reply in self.wire.handlers
        request: dict[str, object] = msgspec.json.decode(message.data)
        return request

    def hear(self, reply: str = "", size: int = 0, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for handler in list(self.wire.handlers.values()):
            handler(Message("any", b"", reply, named or None, size))

    def beat(self) -> None:
        """Hear a heartbeat, before anything was handed out."""
        self.hear(Status="100", Nats_Last_Consumer="0")

    def hand_out(self, *numbers: int, size: int = 0) -> None:
        for number in numbers:
            self.hear(reply_of(number), size)

    def limit_reached(self, messages: int = 10, size: int = REQUEST_BYTES_MAX) -> None:
        """Say that the next message does not fit into the request, of which this is left."""
        self.hear(
            Status="409", Description="Message Size Exceeds MaxBytes",
            Nats_Pending_Messages=str(messages), Nats_Pending_Bytes=str(size),
        )  # fmt: skip

    def acks(self) -> list[str]:
        """The reply subjects of all acks so far."""
        return [message.subject for message in self.wire.sent if message.data == ACK]

    def numbers(self) -> list[int]:
        return [delivery_info(message.reply).number for message in self.seen.messages]


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    await script.puller.start()
    await script.request(1)
    yield script
    await script.puller.stop()


async def test_a_request_names_batch_bytes_expiry_and_heartbeat(script: Script) -> None:
    assert await script.request(1) == {
        "batch": 10,
        "max_bytes": REQUEST_BYTES_MAX,
        "expires": 30_000_000_000,
        "idle_heartbeat": 1_500_000_000,
    }


async def test_half_a_batch_is_asked_for_again(script: Script) -> None:
    script.hand_out(1, 2, 3, 4, size=100)
    await asyncio.sleep(0)
    assert len(script.wire.sent) == 1
    script.hand_out(5, size=100)
    request = await script.request(2)
    quarter = REQUEST_BYTES_MAX // 4
    assert (request["batch"], request["max_bytes"]) == (5, quarter)
    script.hear(Status="408", Nats_Pending_Messages="5", Nats_Pending_Bytes=str(quarter))
    request = await script.request(3)
    assert (request["batch"], request["max_bytes"]) == (5, quarter)
    assert script.numbers() == [1, 2, 3, 4, 5]


async def test_a_request_includes_the_additional_room(script: Script) -> None:
    script.more = 20
    script.hand_out(*range(1, 6), size=10)
    assert (await script.request(2))["batch"] == 25
    script.more = 0
    script.hand_out(*range(6, 26), size=10)
    await asyncio.sleep(0.01)
    assert len(script.wire.sent) == 2  # Ten are still asked for, and no more may be.
    script.hand_out(*range(26, 31), size=10)
    assert (await script.request(3))["batch"] == 5


async def test_half_of_the_bytes_are_asked_for_again(script: Script) -> None:
    script.hand_out(1, size=REQUEST_BYTES_MAX // 2 - 1)
    await asyncio.sleep(0)
    assert len(script.wire.sent) == 1
    script.hand_out(2, size=1)
    request = await script.request(2)
    assert (request["batch"], request["max_bytes"]) == (2, REQUEST_BYTES_MAX // 2)


async def test_the_rest_of_a_request_that_has_its_messages_is_free_again(script: Script) -> None:
    for first in (1, 6, 11):
        script.hand_out(*range(first, first + 5), size=10)
        request = await script.request(first // 5 + 2)
        assert (request["batch"], request["max_bytes"]) == (5, REQUEST_BYTES_MAX // 4)
    left = str(REQUEST_BYTES_MAX - 100)
    script.hear(
        Status="409", Description="Batch Completed", Nats_Pending_Messages="0", Nats_Pending_Bytes=left
    )
    script.hand_out(*range(16, 21), size=10)
    request = await script.request(5)
    assert (request["batch"], request["max_bytes"]) == (5, REQUEST_BYTES_MAX // 4 + 100)


async def test_a_request_whose_bytes_are_used_up_has_ended(script: Script) -> None:
    """The server says so only if there are bytes left."""
    script.hand_out(1, size=REQUEST_BYTES_MAX)
    request = await script.request(2)
    assert (request["batch"], request["max_bytes"]) == (10, REQUEST_BYTES_MAX)


async def test_a_message_larger_than_a_limit_is_requested_alone(script: Script) -> None:
    script.limit_reached()
    alone = await script.request(2)
    assert (alone["batch"], alone["expires"], "max_bytes" in alone) == (1, 3_000_000_000, False)
    script.hand_out(1, size=1 << 20)
    assert (await script.request(3))["max_bytes"] == REQUEST_BYTES_MAX
    script.hand_out(2, size=10)
    script.limit_reached(9, REQUEST_BYTES_MAX - 10)
    assert (await script.request(4))["max_bytes"] == REQUEST_BYTES_MAX
    script.limit_reached()
    assert (await script.request(5))["batch"] == 1
    # It is not there any more.
    script.hear(
        Status="408", Description="Request Timeout", Nats_Pending_Messages="1", Nats_Pending_Bytes="0"
    )
    assert (await script.request(6))["batch"] == 10
    assert script.gaps == []


async def test_no_request_follows_a_message_that_did_not_fit_until_all_have_ended(
    script: Script,
) -> None:
    """A message larger than either of two requests would otherwise end one after the other forever."""
    quarter = REQUEST_BYTES_MAX // 4
    script.hand_out(1, 2, 3, 4, 5, size=10)
    await script.request(2)
    script.limit_reached(5, REQUEST_BYTES_MAX - 50)
    await asyncio.sleep(0)
    assert len(script.wire.sent) == 2
    script.limit_reached(5, quarter)
    assert (await script.request(3))["max_bytes"] == REQUEST_BYTES_MAX
    script.limit_reached()
    assert (await script.request(4))["batch"] == 1


async def test_a_limit_is_requested_again_though_a_message_came_with_another_request(script: Script) -> None:
    script.hand_out(1, 2, 3, 4, 5, size=10)
    await script.request(2)
    script.limit_reached(5, REQUEST_BYTES_MAX - 50)
    script.hand_out(6, size=1000)
    request = await script.request(3)
    assert (request["batch"], request["max_bytes"]) == (6, REQUEST_BYTES_MAX * 3 // 4 + 1000)


async def test_only_a_few_large_messages_are_requested_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits to request its message hears no heartbeat, and expects none."""
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.02)
    room = PullRoom()
    scripts = [Script(room) for _ in range(LARGE_AT_ONCE + 1)]
    for each in scripts:
        await each.puller.start()
        await each.request(1)
        each.limit_reached()
    for each in scripts[:-1]:
        await each.request(2)
    await until(lambda: all(each.gaps for each in scripts[:-1]))
    last = scripts[-1]
    assert (await last.request(2))["batch"] == 1
    for each in scripts:
        await each.puller.stop()


async def test_all_pullers_of_a_connection_share_its_room() -> None:
    room = PullRoom()
    for count in range(1, 513):
        room.enter()
        assert room.share * count <= ROOM_BYTES
        assert room.share <= REQUEST_BYTES_MAX
    script = Script(room)
    await script.puller.start()
    assert (await script.request(1))["max_bytes"] == ROOM_BYTES // 513
    script.hand_out(2)
    await script.puller.stop()
    assert room.share == ROOM_BYTES // 512


async def test_the_long_form_of_a_reply_is_read(script: Script) -> None:
    for number in (1, 2):
        script.hear(f"$JS.ACK.hub.Ab3.S.c.1.{number + 7}.{number}.0.0.rnd")
    assert script.numbers() == [1, 2]
    assert [delivery_info(message.reply).position for message in script.seen.messages] == [8, 9]


@pytest.mark.parametrize("status", ["404", "408", "409"])
async def test_a_request_that_ended_is_made_again(script: Script, status: str) -> None:
    script.hear(Status=status, Description="Leadership Change", Nats_Pending_Messages="10")
    assert (await script.request(2))["batch"] == 10
    assert script.gaps == []


@in_virtual_time
async def test_a_refused_request_is_made_again_after_a_pause_that_grows_up_to_a_bound() -> None:
    """A server that refuses at once would otherwise be asked without end."""
    script = Script()
    await script.puller.start()
    await script.request(1)
    pauses = [await script.refused_after() for _ in range(7)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0], abs=2 * LOOK_S)
    await script.puller.stop()


@pytest.mark.parametrize("sign", [lambda script: script.hand_out(1), lambda script: script.beat()])
@in_virtual_time
async def test_after_a_sign_of_the_consumer_pauses_are_short_again(sign: Callable[[Script], None]) -> None:
    script = Script()
    await script.puller.start()
    await script.request(1)
    for _ in range(4):
        await script.refused_after()
    sign(script)
    assert await script.refused_after() == pytest.approx(0.05, abs=2 * LOOK_S)
    await script.puller.stop()


async def test_a_pull_end_without_a_count_left_all_requested(script: Script) -> None:
    script.hand_out(1)
    script.hear(Status="409", Description="Server Shutdown")
    assert (await script.request(2))["batch"] == 10


@pytest.mark.parametrize(
    ("status", "text"), [("503", "No Responders"), ("400", "Bad Request"), ("409", "Consumer Deleted")]
)
async def test_these_statuses_end_a_puller(script: Script, status: str, text: str) -> None:
    script.hear(Status=status, Description=text)
    assert script.gaps == [f"{status} {text}"]


async def test_a_gap_in_the_numbers_ends_a_puller(script: Script) -> None:
    script.hand_out(1, 2, 4)
    assert script.gaps == ["consumer sequence 4 after 2"]
    assert script.numbers() == [1, 2]


async def test_the_first_number_is_one(script: Script) -> None:
    script.hand_out(3)
    assert script.gaps == ["consumer sequence 3 after 0"]


async def test_one_ack_is_for_all_up_to_a_position(script: Script) -> None:
    script.hand_out(1, 2, 3)
    script.puller.ack(7)
    assert script.acks() == []
    script.puller.ack(9)
    script.puller.ack(9)
    assert script.acks() == [reply_of(2)]
    script.puller.ack(20)
    assert script.acks() == [reply_of(2), reply_of(3)]


async def test_a_message_that_comes_again_takes_no_ack_back(script: Script) -> None:
    script.hand_out(1, 2)
    script.hear("$JS.ACK.S.c.2.8.3.0.0")
    script.puller.ack(9)
    assert script.acks() == [reply_of(2)]


async def test_the_last_ack_is_repeated_with_each_heartbeat(script: Script) -> None:
    """A consumer whose ack was lost may be full, and hand out nothing more."""
    script.hear(Status="100", Nats_Last_Consumer="0")
    assert script.acks() == []
    script.hand_out(1, 2)
    script.puller.ack(8)
    for _ in range(2):
        script.hear(Status="100", Nats_Last_Consumer="2")
    assert script.acks() == [reply_of(1)] * 3


async def test_a_heartbeat_that_knows_of_more_ends_a_puller(script: Script) -> None:
    script.hand_out(1)
    for last in ("0", "1"):
        script.hear(Status="100", Nats_Last_Consumer=last)
        assert script.gaps == []
    script.hear(Status="100", Nats_Last_Consumer="2")
    assert script.gaps == ["the server has handed out 2, we have 1"]


@pytest.mark.parametrize(
    ("connected", "reason"), [(False, "the connection was lost"), (True, "a new connection")]
)
async def test_another_connection_ends_a_puller(script: Script, connected: bool, reason: str) -> None:
    for listener in script.wire.listeners:
        listener(connected)
    assert script.gaps == [reason]


async def test_silence_ends_a_puller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.02)
    script = Script()
    await script.puller.start()
    await until(lambda: bool(script.gaps))
    assert script.gaps == ["no heartbeat for 0.04 s"]
    await script.puller.stop()


async def test_heartbeats_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.02)
    script = Script()
    await script.puller.start()
    looked = 0

    def look() -> bool:
        nonlocal looked
        looked += 1
        script.hear(Status="100", Nats_Last_Consumer="0")
        return looked > 20

    await until(look)
    assert script.gaps == []
    await script.puller.stop()


async def test_while_it_is_held_it_takes_what_comes_and_asks_for_nothing(script: Script) -> None:
    script.puller.set_pulling_paused(True)
    script.hand_out(1, 2, 3, 4, 5, 6)
    script.hear(Status="408", Nats_Pending_Messages="4")
    assert script.numbers() == [1, 2, 3, 4, 5, 6]
    await asyncio.sleep(0)
    assert len(script.wire.sent) == 1
    script.puller.set_pulling_paused(False)
    assert (await script.request(2))["batch"] == 10


async def test_a_puller_held_from_the_start_requests_messages_when_it_is_released() -> None:
    script = Script()
    script.puller.set_pulling_paused(True)
    await script.puller.start()
    await asyncio.sleep(0)
    assert script.wire.sent == []
    script.puller.set_pulling_paused(False)
    await script.request(1)
    await script.puller.stop()


async def test_silence_does_not_end_a_held_puller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.005)
    held, going = Script(), Script()
    held.puller.set_pulling_paused(True)
    for script in (held, going):
        await script.puller.start()
    await until(lambda: bool(going.gaps))
    assert held.gaps == []
    for script in (held, going):
        await script.puller.stop()


async def test_a_puller_requests_nothing_after_a_gap(script: Script) -> None:
    script.hand_out(2)
    script.hand_out(1)
    script.hear(Status="400")
    assert (script.gaps, script.seen.messages) == (["consumer sequence 2 after 0"], [])
    assert len(script.wire.sent) == 1


async def test_a_stopped_puller_passes_nothing_on(script: Script) -> None:
    handlers = list(script.wire.handlers.values())
    await script.puller.stop()
    assert script.wire.handlers == {}
    for handler in handlers:
        handler(Message("any", b"", "$JS.ACK.S.c.1.1.1.0.0"))
    for listener in script.wire.listeners:
        listener(False)
    assert (script.gaps, script.seen.messages) == ([], [])
