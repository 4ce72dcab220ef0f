"""Lanes: order within each lane, despite losses on the way, and no lane waits for another."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

import pytest

from streams.nats.jetstream import JetStream
from streams.routing import lanes
from streams.routing.lanes import CopySlots, Lanes
from tests.sim.server import FakeServer
from tests.support.waiting import PATIENCE_S, until


def connected() -> JetStream:
    """A connection that lasts."""
    return JetStream(FakeServer().connect("test"))


def beginning(
    send: Callable[[str, int], Awaitable[str]],
) -> Callable[[str, int, Callable[[str], None]], None]:
    """Sends by a task for each item, which ends as `send` does; a defect ends it, too."""

    def begin(lane: str, item: int, ended: Callable[[str], None]) -> None:
        task = asyncio.ensure_future(send(lane, item))
        task.add_done_callback(lambda task: ended(task.result()))

    return begin


def slots(count: int = 1000) -> CopySlots:
    """More than enough, if not said otherwise."""
    return CopySlots(count)


class ScriptedSender:
    """Takes the items of all lanes. A refusal in `refuses` is used once; a shut gate makes its lane wait."""

    def __init__(self) -> None:
        self.stored: defaultdict[str, list[int]] = defaultdict(list)
        self.arrived: Counter[int] = Counter()
        self.refuses: defaultdict[str, list[str]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}
        self.under_way: Counter[str] = Counter()
        self.most = 0
        self.broken: list[str] = []
        self.lanes: Lanes[int] = Lanes(
            connected(), beginning(self._send), self._note, self.broken.append, slots()
        )

    async def _send(self, lane: str, item: int) -> str:
        assert not self.under_way[lane]
        self.under_way[lane] += 1
        self.most = max(self.most, self.under_way.total())
        await self.gates[lane].wait() if lane in self.gates else await asyncio.sleep(0)
        self.under_way[lane] -= 1
        if self.refuses[lane]:
            return self.refuses[lane].pop()
        self.stored[lane].append(item)
        return ""

    def _note(self, item: int) -> None:
        self.arrived[item] += 1


@pytest.fixture
async def sender() -> ScriptedSender:
    return ScriptedSender()


async def test_each_lane_keeps_its_order_under_refusals(sender: ScriptedSender) -> None:
    rng = random.Random(1)
    names = [f"t.r{number}" for number in range(100)]
    for name in names:
        sender.refuses[name] = ["full"] * rng.choice((0, 0, 1, 3))
    for item in range(30):
        for name in names:
            sender.lanes.add(name, item)
        if item % 7 == 0:
            await asyncio.sleep(0)
    await until(lambda: sender.arrived.total() == 3000)
    assert all(sender.stored[name] == list(range(30)) for name in names)
    assert sender.most <= lanes.SENDERS_MAX


async def test_more_refused_lanes_than_senders_stop_no_other_lane(sender: ScriptedSender) -> None:
    refused = [f"t.r{number}" for number in range(2 * lanes.SENDERS_MAX)]
    for name in refused:
        sender.refuses[name] = ["full"] * 1000
        sender.lanes.add(name, 0)
    await until(lambda: all(len(sender.refuses[name]) < 1000 for name in refused[: lanes.SENDERS_MAX]))
    for item in range(5):
        sender.lanes.add("t.healthy", item)
    await until(lambda: len(sender.stored["t.healthy"]) == 5)
    await sender.lanes.stop()


async def test_a_lane_that_has_no_answer_stops_no_other(sender: ScriptedSender) -> None:
    sender.gates["t.slow"] = asyncio.Event()
    for item in range(3):
        for name in ("t.slow", "t.other"):
            sender.lanes.add(name, item)
    await until(lambda: sender.stored["t.other"] == [0, 1, 2])
    assert sender.stored["t.slow"] == []
    sender.gates["t.slow"].set()
    await until(lambda: sender.stored["t.slow"] == [0, 1, 2])


async def test_an_item_added_while_the_last_sender_ends_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first sender has nothing more to send, but the loop has not reported its end yet."""
    monkeypatch.setattr(lanes, "SENDERS_MAX", 1)
    sent = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()

    async def send(_: str, __: int) -> str:
        return ""

    leaving = Lanes(
        connected(), beginning(send), lambda item: sent[item].set_result(None), pytest.fail, slots()
    )
    for number in (0, 1):
        leaving.add(f"t.r{number}", number)
        async with asyncio.timeout(PATIENCE_S):
            await sent[number]


async def test_why_it_waits_is_said_once_and_again_when_it_waits_again(
    sender: ScriptedSender, caplog: pytest.LogCaptureFixture
) -> None:
    for round_ in (1, 2):
        for number in range(10):
            sender.refuses[f"t.r{number}"] = ["full"] * 2
            sender.lanes.add(f"t.r{number}", round_)
        await until(lambda: sender.arrived[round_] == 10)  # noqa: B023  # Awaited within the round.
        assert [record.message for record in caplog.records] == ["routing.waiting"] * round_


async def test_after_stop_nothing_is_sent(sender: ScriptedSender) -> None:
    sender.gates["t.slow"] = asyncio.Event()
    sender.lanes.add("t.slow", 1)
    await until(lambda: sender.under_way["t.slow"] == 1)
    await sender.lanes.stop()
    sender.gates["t.slow"].set()
    await sender.lanes.stop()
    assert sender.stored["t.slow"] == []


async def test_a_sender_that_fails_is_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise its lane would stop forever, unnoticed."""
    broken: list[str] = []

    def fail(lane: str, item: int, ended: Callable[[str], None]) -> None:
        raise RuntimeError("the sender broke")

    failing: Lanes[int] = Lanes(connected(), fail, lambda _: None, broken.append, slots())
    failing.add("t.a", 1)
    await until(lambda: bool(broken))
    assert broken == ["its router broke"]
    assert "the sender broke" in caplog.text


async def test_a_tenant_of_weight_three_sends_three_items_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "SENDERS_MAX", 1)
    sent, all_sent = list[str](), asyncio.Event()

    async def send(lane: str, _: int) -> str:
        sent.append(lane.partition(".")[0])
        await asyncio.sleep(0)
        return ""

    def arrived(item: int) -> None:
        if len(sent) == 16:
            all_sent.set()

    weights = {"large": 3, "small": 1}
    turns = Lanes(connected(), beginning(send), arrived, pytest.fail, slots(), weights.__getitem__)
    for number in range(8):
        for tenant in weights:
            turns.add(f"{tenant}.r{number}", number)
    async with asyncio.timeout(PATIENCE_S):
        await all_sent.wait()
    assert sent[:12] == ["large", "large", "large", "small"] * 2 + ["large", "large", "small", "small"]


async def test_lanes_of_a_node_share_slots_and_none_keeps_them_from_another() -> None:
    """Ten slots, three partitions with more to send: at most ten items are under way, and all arrive."""
    shared, under_way, most, arrived = slots(10), Counter[str](), list[int](), Counter[int]()

    def begin(lane: str, item: int, ended: Callable[[str], None]) -> None:
        under_way[lane] += 1
        most.append(under_way.total())

        def end() -> None:
            under_way[lane] -= 1
            ended("")

        asyncio.get_running_loop().call_later(0.001, end)

    def note(item: int) -> None:
        arrived[item] += 1

    partitions: list[Lanes[int]] = [Lanes(connected(), begin, note, pytest.fail, shared) for _ in range(3)]
    for partition, each in enumerate(partitions):
        for number in range(40):
            each.add(f"t.r{number}", partition)
    await until(lambda: arrived == {0: 40, 1: 40, 2: 40})
    assert max(most) == 10


async def test_lanes_that_stopped_leave_their_slots_to_others() -> None:
    """The stopped lanes also leave a slot that they waited for, and that of an item once it ends."""
    shared, ends, arrived = slots(1), list[Callable[[str], None]](), list[int]()
    leaving, staying = (
        Lanes[int](connected(), lambda _, __, ended: ends.append(ended), arrived.append, pytest.fail, shared)
        for _ in range(2)
    )
    leaving.add("t.a", 1)
    await until(lambda: len(ends) == 1)
    leaving.add("t.b", 2)
    await asyncio.sleep(0)
    staying.add("t.c", 3)
    await asyncio.sleep(0)
    await leaving.stop()
    ends[0]("")
    await until(lambda: len(ends) == 2)
    ends[1]("")
    assert arrived == [3]
