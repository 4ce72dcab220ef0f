"""Following a subject: every message once, in order, with any hints or none."""

import asyncio
from typing import Any

import pytest

from streams.buckets.follower import BYTES_IN_A_ROW, MESSAGES_IN_A_ROW, READ_PAUSE_S, Follower
from streams.nats.answers import Page, StoredMessage, StreamInfo
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.wire import Wire
from tests.contract.conftest import MakeStream
from tests.contract.support.faults import misbehaving
from tests.contract.support.servers import Server
from tests.support.waiting import until

NEVER_S = 3600.0
"""An interval after which only hints can wake a follower."""


class Followed:
    def __init__(self) -> None:
        self.positions: list[int] = []

    def __call__(self, message: StoredMessage) -> None:
        self.positions.append(message.position)

    async def until(self, positions: list[int]) -> None:
        await until(lambda: len(self.positions) >= len(positions))
        assert self.positions == positions


@pytest.fixture
async def stream(make_stream: MakeStream) -> StreamInfo:
    return await make_stream()


async def test_start_returns_when_all_is_handed_on(js: JetStream, stream: StreamInfo, prefix: str) -> None:
    await asyncio.gather(*(js.publish(f"{prefix}.k.{i % 7}", b"") for i in range(600)))
    await js.publish(f"{prefix}.other", b"")
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.k.*", followed, every_s=NEVER_S)
    assert follower.applied == 0
    await follower.start()
    assert followed.positions == list(range(1, 601))
    assert follower.applied == 600
    await follower.stop()


async def test_a_whole_stream_is_read_in_few_requests_that_name_no_subject(
    js: JetStream, stream: StreamInfo, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each request with a subject nats-server compares it with all keys that remain."""
    await asyncio.gather(*(js.publish(f"{prefix}.k.{i}", b"") for i in range(600)))
    asked: list[str] = []
    read = js.read

    async def noted(stream: str, subject: str, *which: Any) -> Page:
        asked.append(subject)
        return await read(stream, subject, *which)

    monkeypatch.setattr(js, "read", noted)
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.>", followed, every_s=NEVER_S, whole_stream=True)
    await follower.start()
    assert followed.positions == list(range(1, 601))
    assert asked == [ALL_SUBJECTS]
    await js.publish(f"{prefix}.k.7", b"")
    await followed.until([*range(1, 602)])
    assert set(asked) == {ALL_SUBJECTS}
    await follower.stop()


async def test_a_hint_is_enough(js: JetStream, stream: StreamInfo, prefix: str) -> None:
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.k.*", followed, every_s=NEVER_S)
    await follower.start()
    for i in range(1, 10):
        await js.publish(f"{prefix}.k.{i}", b"")
        await followed.until(list(range(1, i + 1)))
    await follower.stop()


async def test_a_key_has_its_last_value(js: JetStream, make_stream: MakeStream, prefix: str) -> None:
    await make_stream(max_msgs_per_subject=1, discard="new")
    for value in (b"1", b"2", b"3"):
        await js.publish(f"{prefix}.key", value)
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.>", followed, every_s=NEVER_S)
    await follower.start()
    await followed.until([3])
    await js.publish(f"{prefix}.key", b"", {"KV-Operation": "DEL"})
    await followed.until([3, 4])
    await follower.stop()


async def test_others_have_their_turns_while_much_is_handed_on(
    js: JetStream, stream: StreamInfo, prefix: str
) -> None:
    """Many small messages, or few large ones: neither holds up the loop of a node."""
    await asyncio.gather(*(js.publish(f"{prefix}.k.{i}", b"") for i in range(200)))
    await asyncio.gather(*(js.publish(f"{prefix}.k.{i}", bytes(40_000)) for i in range(8)))
    at_once, sizes = [0], [0]

    def count(message: StoredMessage) -> None:
        at_once[-1] += 1
        sizes[-1] += len(message.data)

    async def others() -> None:
        while True:
            at_once.append(0)
            sizes.append(0)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    follower = Follower(js, prefix, f"{prefix}.k.*", count, every_s=NEVER_S)
    await follower.start()
    task.cancel()
    assert sum(at_once) == 208
    assert max(at_once) <= MESSAGES_IN_A_ROW
    assert max(sizes) < BYTES_IN_A_ROW + 40_000
    await follower.stop()


async def test_a_key_that_changes_all_the_time_is_read_at_a_limited_rate(
    js: JetStream, make_stream: MakeStream, prefix: str
) -> None:
    """The stream keeps its last values alone, so a reader that waits has less to read."""
    await make_stream(max_msgs_per_subject=1, discard="new")
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.>", followed, every_s=NEVER_S)
    await follower.start()
    began = asyncio.get_running_loop().time()
    for _ in range(300):
        await js.publish(f"{prefix}.key", b"")
    await until(lambda: followed.positions[-1:] == [300])
    reads = (asyncio.get_running_loop().time() - began) / READ_PAUSE_S + 2
    assert len(followed.positions) <= 2 * reads
    await follower.stop()


async def test_a_follower_reads_without_a_hint(js: JetStream, make_stream: MakeStream, prefix: str) -> None:
    """The stream stores another subject than the published one, so no hint comes."""
    await make_stream(
        subjects=[f"{prefix}.in.*"],
        subject_transform={"src": f"{prefix}.in.*", "dest": f"{prefix}.out.{{{{wildcard(1)}}}}"},
    )
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.out.*", followed, every_s=0.02)
    await follower.start()
    await js.publish(f"{prefix}.in.a", b"")
    await js.publish(f"{prefix}.in.b", b"")
    await followed.until([1, 2])
    await follower.stop()


async def test_a_hint_without_a_message_is_harmless(js: JetStream, stream: StreamInfo, prefix: str) -> None:
    """A publish that the stream refused wakes it as well."""
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.k", followed, every_s=NEVER_S)
    await follower.start()
    await js.publish(f"{prefix}.k", b"", {"Nats-Expected-Last-Subject-Sequence": "9"})
    await js.publish(f"{prefix}.k", b"")
    await followed.until([1])
    await follower.stop()


async def test_start_waits_for_a_stream_that_is_still_to_come(
    js: JetStream, make_stream: MakeStream, prefix: str
) -> None:
    followed = Followed()
    follower = Follower(js, prefix, f"{prefix}.k", followed, every_s=0.02)
    starting = asyncio.ensure_future(follower.start())
    assert await js.stream_info(prefix) is None
    await make_stream()
    await js.publish(f"{prefix}.k", b"")
    await starting
    await followed.until([1])
    await follower.stop()


async def test_a_follower_without_hints_catches_up_when_asked(
    js: JetStream, server: Server, stream: StreamInfo, prefix: str
) -> None:
    """The follower was never started and gets no hints; the replica shows only some messages at first."""
    async with misbehaving(server) as deaf:
        followed, subject = Followed(), f"{prefix}.k.*"
        follower = Follower(deaf, prefix, subject, followed, every_s=NEVER_S)
        await follower.catch_up()
        for number in range(3):
            await js.publish(f"{prefix}.k.{number}", b"")
        await js.publish(f"{prefix}.other", b"")
        deaf.shown[subject] += [0, 2]
        await follower.catch_up()
        assert followed.positions == [1, 2, 3]
        await follower.catch_up()
        assert not deaf.shown[subject]
        assert followed.positions == [1, 2, 3]


async def test_a_message_deleted_before_it_was_shown_is_not_waited_for(
    js: JetStream, server: Server, stream: StreamInfo, prefix: str
) -> None:
    async def wipe() -> None:
        await js.purge(prefix, 2)

    async with misbehaving(server) as deaf:
        followed, subject = Followed(), f"{prefix}.k"
        follower = Follower(deaf, prefix, subject, followed, every_s=NEVER_S)
        await js.publish(subject, b"")
        deaf.shown[subject] += [0]
        deaf.before_last[subject] += [nothing, wipe]
        await follower.catch_up()
        assert followed.positions == []


async def nothing() -> None:
    """The calls at the first time."""


async def test_a_follower_hears_of_what_another_connection_stores(
    js: JetStream, server: Server, stream: StreamInfo, prefix: str
) -> None:
    wire: Wire = await server.connect("follower")
    other = JetStream(wire)
    await other.start()
    followed = Followed()
    follower = Follower(other, prefix, f"{prefix}.k", followed, every_s=NEVER_S)
    await follower.start()
    await js.stream_info(prefix)
    await js.publish(f"{prefix}.k", b"")
    await followed.until([1])
    await follower.stop()
    await other.stop()
    await wire.close()


async def test_after_stop_nothing_is_handed_on(js: JetStream, stream: StreamInfo, prefix: str) -> None:
    stopped, going = Followed(), Followed()
    followers = [
        Follower(js, prefix, f"{prefix}.k", handler, every_s=NEVER_S) for handler in (stopped, going)
    ]
    for follower in followers:
        await follower.start()
    await followers[0].stop()
    await followers[0].stop()
    await js.publish(f"{prefix}.k", b"")
    await going.until([1])
    await followers[1].stop()
    assert stopped.positions == []


async def test_an_error_of_the_handler_is_not_silent(js: JetStream, stream: StreamInfo, prefix: str) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(_: StoredMessage) -> None:
        raise RuntimeError("the handler broke")

    follower = Follower(js, prefix, f"{prefix}.k", fail, every_s=NEVER_S)
    await follower.start()
    await js.publish(f"{prefix}.k", b"")
    await until(lambda: bool(reported))
    assert str(reported[0]["exception"]) == "the handler broke"
    assert follower.applied == 0
    await follower.stop()
