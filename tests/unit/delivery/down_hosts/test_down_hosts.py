"""Hosts that are down: one attempt at a time, tenants in turn, and all go on with the first contact."""

import asyncio

from actors.configuration.policy import Policy
from angarium.delivery.connections.down_hosts import (
    BEGIN_WITHIN_S,
    FAILURES_COUNT_FOR_S,
    FAILURES_MIN,
    HOSTS_MAX,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    TURN_MAX_S,
    WAKE_EVERY_S,
    WOKEN_AT_ONCE,
    DownHosts,
)
from angarium.delivery.http_exchange.target import parse_target
from tests.unit.worlds.virtual_time import in_virtual_time

HERE = Policy(url="https://shared.example/hook")
TARGET = parse_target(HERE.url)
ELSEWHERE = Policy(url="https://other.example/hook")


class Receivers:
    """Receivers of one host that is down, each with an event that is due all the time."""

    def __init__(self, *, connect_s: float = 0.2) -> None:
        self.hosts = DownHosts()
        self.hosts.on_turn(self.wake)
        self.is_up = False
        self.connect_s = connect_s
        self.tried = list[tuple[float, str]]()
        self.served = set[str]()
        self.idle = set[str]()
        self.woken = list[str]()
        self.under_way = self.most = 0
        self._tasks = set[asyncio.Task[None]]()

    def wake(self, receiver: str) -> None:
        self.woken.append(receiver)
        if receiver not in self.idle | self.served and self.hosts.may_try(receiver, HERE, has_attempts=False):
            task = asyncio.get_running_loop().create_task(self._attempt(receiver))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attempt(self, receiver: str) -> None:
        self.hosts.begun(receiver, TARGET)
        self.tried.append((now(), receiver))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.connect_s)
        self.under_way -= 1
        if self.is_up:
            self.served.add(receiver)
            self.hosts.reached(TARGET)
        else:
            self.hosts.unreached(receiver, TARGET)
            self.wake(receiver)

    def fail(self, count: int = FAILURES_MIN, receivers: int = 2) -> None:
        for number in range(count):
            self.hosts.unreached(f"z.r{number % receivers}", TARGET)


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_a_host_is_down_after_failures_of_two_receivers() -> None:
    receivers = Receivers()
    receivers.fail(FAILURES_MIN - 1)
    assert not receivers.hosts.is_down(HERE)
    receivers.fail(1)
    assert receivers.hosts.is_down(HERE)
    assert (receivers.hosts.count, receivers.hosts.is_down(ELSEWHERE)) == (1, False)
    assert receivers.hosts.may_try("a.r", ELSEWHERE, has_attempts=False)
    assert not receivers.hosts.may_try("a.r", HERE, has_attempts=False)


@in_virtual_time
async def test_one_receiver_alone_has_its_own_backoff() -> None:
    receivers = Receivers()
    receivers.fail(20, receivers=1)
    assert not receivers.hosts.is_down(HERE)
    assert receivers.hosts.may_try("z.r0", HERE, has_attempts=False)


@in_virtual_time
async def test_old_failures_do_not_count() -> None:
    receivers = Receivers()
    receivers.fail(FAILURES_MIN - 1)
    await asyncio.sleep(FAILURES_COUNT_FOR_S + 1)
    receivers.fail(FAILURES_MIN - 1)
    assert not receivers.hosts.is_down(HERE)


@in_virtual_time
async def test_a_hundred_receivers_make_one_attempt_at_a_time() -> None:
    receivers = Receivers()
    receivers.fail()
    for number in range(100):
        receivers.wake(f"t{number % 10}.r{number}")
    await asyncio.sleep(600)
    assert receivers.most == 1
    assert 600 / (PAUSE_MAX_S + 1) < len(receivers.tried) < 600 / PAUSE_MAX_S + 10
    assert len({name for _, name in receivers.tried}) == len(receivers.tried)


@in_virtual_time
async def test_a_host_that_is_back_is_found_soon_and_all_go_on() -> None:
    receivers = Receivers()
    receivers.fail()
    for number in range(3 * WOKEN_AT_ONCE):
        receivers.wake(f"t{number % 10}.r{number}")
    await asyncio.sleep(200)
    receivers.is_up = True
    began = now()
    while len(receivers.served) < 3 * WOKEN_AT_ONCE:  # noqa: ASYNC110  # In virtual time.
        await asyncio.sleep(0.01)
    assert now() - began < PAUSE_MAX_S + 4 * WAKE_EVERY_S + 1
    assert (receivers.hosts.count, receivers.hosts.is_down(HERE)) == (0, False)


@in_virtual_time
async def test_tenants_have_their_turns_at_a_host_that_is_down() -> None:
    receivers = Receivers()
    receivers.fail()
    for number in range(50):
        receivers.wake(f"many.r{number}")
    receivers.wake("one.r")
    await asyncio.sleep(10)
    assert "one.r" in [name for _, name in receivers.tried[:3]]


@in_virtual_time
async def test_receivers_that_are_not_ready_lose_their_turn_at_once() -> None:
    receivers = Receivers()
    receivers.fail()
    for number in range(40):
        receivers.wake(f"a.r{number}")
    receivers.idle = {f"a.r{number}" for number in range(39)}
    await asyncio.sleep(3)
    assert [name for _, name in receivers.tried][-1] == "a.r39"


@in_virtual_time
async def test_a_turn_that_is_not_used_lapses_and_comes_again() -> None:
    receivers = Receivers()
    receivers.fail()
    await asyncio.sleep(PAUSE_MAX_S)
    assert receivers.hosts.may_try("asks.only", HERE, has_attempts=False)
    assert receivers.hosts.may_try("asks.only", HERE, has_attempts=False)
    assert not receivers.hosts.may_try("asks.only", HERE, has_attempts=True)
    receivers.idle.add("asks.only")
    receivers.wake("a.r")
    assert receivers.tried == []
    await asyncio.sleep(BEGIN_WITHIN_S + 0.1)
    assert [name for _, name in receivers.tried] == ["a.r"]


@in_virtual_time
async def test_an_end_that_says_nothing_passes_the_turn_on() -> None:
    receivers = Receivers()
    receivers.fail()
    await asyncio.sleep(PAUSE_MAX_S)
    assert receivers.hosts.may_try("b.r", HERE, has_attempts=False)
    receivers.hosts.begun("b.r", TARGET)
    receivers.wake("a.r")
    await asyncio.sleep(TURN_MAX_S - 0.1)
    assert receivers.tried == []
    receivers.hosts.ended("b.r", TARGET)
    await asyncio.sleep(0.1)
    assert [name for _, name in receivers.tried] == ["a.r"]


@in_virtual_time
async def test_an_attempt_that_hangs_does_not_keep_the_turn() -> None:
    """An attempt may also wait for the budget of its tenant."""
    receivers = Receivers()
    receivers.fail()
    await asyncio.sleep(PAUSE_MAX_S)
    assert receivers.hosts.may_try("hangs.r", HERE, has_attempts=False)
    receivers.hosts.begun("hangs.r", TARGET)
    receivers.wake("a.r")
    await asyncio.sleep(TURN_MAX_S + 2 * PAUSE_MIN_S + 0.1)
    assert [name for _, name in receivers.tried] == ["a.r"]
    receivers.hosts.unreached("hangs.r", TARGET)
    receivers.wake("b.r")
    await asyncio.sleep(10 * PAUSE_MIN_S)
    assert [name for _, name in receivers.tried][:2] == ["a.r", "b.r"]


@in_virtual_time
async def test_attempts_that_were_under_way_do_not_make_the_pause_longer() -> None:
    receivers = Receivers(connect_s=0.0)
    receivers.fail(100)
    receivers.wake("a.r")
    receivers.wake("b.r")
    await asyncio.sleep(4 * PAUSE_MIN_S)
    assert [name for _, name in receivers.tried] == ["a.r", "b.r"]


@in_virtual_time
async def test_receivers_that_failed_long_ago_do_not_count() -> None:
    receivers = Receivers()
    receivers.hosts.unreached("z.r1", TARGET)
    await asyncio.sleep(FAILURES_COUNT_FOR_S + 1)
    receivers.fail(20, receivers=1)
    assert not receivers.hosts.is_down(HERE)


@in_virtual_time
async def test_receivers_behind_a_proxy_take_no_part() -> None:
    hosts = DownHosts(has_own_path=lambda policy: True)
    for number in range(9):
        hosts.unreached(f"a.r{number}", TARGET)
    assert hosts.count == 1
    assert hosts.may_try("a.r", HERE, has_attempts=False)


def fail_hosts(hosts: DownHosts, count: int, *, receivers: int) -> None:
    """Have all receivers of that many hosts fail, as often as it takes."""
    for number in range(count):
        for failure in range(FAILURES_MIN):
            hosts.unreached(f"evil.r{failure % receivers}", parse_target(f"https://h{number}.example/"))


@in_virtual_time
async def test_hosts_of_single_receivers_drive_out_none_that_is_down() -> None:
    receivers = Receivers()
    receivers.fail()
    fail_hosts(receivers.hosts, HOSTS_MAX + 1, receivers=1)
    assert (receivers.hosts.count, receivers.hosts.is_down(HERE)) == (1, True)


@in_virtual_time
async def test_failing_hosts_are_forgotten_in_their_order() -> None:
    receivers = Receivers()
    receivers.fail(FAILURES_MIN - 1)
    fail_hosts(receivers.hosts, HOSTS_MAX, receivers=1)
    receivers.fail(FAILURES_MIN - 1)
    assert not receivers.hosts.is_down(HERE)


@in_virtual_time
async def test_hosts_that_are_down_are_forgotten_in_order_and_receivers_go_on() -> None:
    receivers = Receivers()
    receivers.fail()
    receivers.wake("a.r")
    fail_hosts(receivers.hosts, HOSTS_MAX, receivers=2)
    assert (receivers.hosts.count, receivers.hosts.is_down(HERE)) == (HOSTS_MAX, False)
    await asyncio.sleep(0.1)
    assert [name for _, name in receivers.tried] == ["a.r"]
