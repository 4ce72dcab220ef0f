"""10,000 receivers of one host come back together: they never get more than the sum of their rates."""

import asyncio
from collections import Counter

import pytest

from actors.configuration.policy import Offline, Rate, Retry
from actors.machine import decide
from actors.machine.event import Event
from actors.machine.outcome import Failed, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.connections import down_hosts
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.http_exchange.target import Target
from tests.unit.worlds.sender import Sender
from tests.unit.worlds.shard import ShardWorld, Stream
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

PER_SECOND = 0.4
EVENTS = 3
HOST = Target(scheme="https", host="example.com", port=443, path="/hook")
REFUSED = Failed(error="connect", detail="connection refused", latency_ms=1.0, unreached=True)


class StreamByReceiver(Stream):
    """The deliveries, found by their receiver at once."""

    def __init__(self) -> None:
        super().__init__()
        self._known = dict[str, list[Event]]()

    def of(self, receiver: str, after: int) -> list[Event]:
        if not self._known:
            for to, each in self.messages:
                self._known.setdefault(to, []).append(each)
        return [each for each in self._known.get(receiver, ()) if each.position > after]


class OneHost(Sender):
    """A host that answers 503, is away (None), or answers 200; it counts the requests of each second."""

    def __init__(self, hosts: DownHosts) -> None:
        super().__init__()
        self.status: int | None = 503
        self.requests = Counter[int]()
        self._hosts = hosts

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self._hosts.begun(attempt.receiver, HOST)
        await asyncio.sleep(0.02)
        if self.status is None:
            self._hosts.unreached(attempt.receiver, HOST)
            return REFUSED
        self.requests[int(asyncio.get_running_loop().time())] += 1
        self._hosts.reached(HOST)
        return answer(self.status)


def world_with(count: int) -> tuple[ShardWorld, OneHost]:
    """A shard with so many receivers at one host, each with events that wait."""
    world, hosts = ShardWorld(), DownHosts()
    given = policy(
        rate=Rate(limit=PER_SECOND, burst=10), retry=Retry(base_s=30, cap_s=30),
        url="https://example.com/hook", offline=Offline(after_s=1, ping=True),
    )  # fmt: skip
    world.host.stop()
    host = OneHost(hosts)
    world.stream, world.sender = StreamByReceiver(), host
    world.down_hosts = hosts  # type: ignore[assignment]
    names = [f"acme.r{number}" for number in range(count)]
    world.policies.known |= dict.fromkeys(names, given)
    for each in names:
        world.store(EVENTS, receiver=each)
    world.claim(unclean=False)
    hosts.on_turn(lambda receiver: world.host.residents.activate(receiver).wake())
    return world, host


async def peak_of(count: int) -> float:
    """The most requests in a second after the host is back, as a multiple of the sum of the rates."""
    world, host = world_with(count)
    await world.pass_time(5)
    host.status = None
    await world.pass_time(40)
    states = world.journal.folded.values()
    assert all(each.failing_since is not None for each in states)
    host.status = 200
    host.requests.clear()
    await world.until(lambda: all(not each.open and each.counters.delivered == EVENTS for each in states))
    assert sum(host.requests.values()) == count * (1 + EVENTS)
    return max(host.requests.values()) / (count * PER_SECOND)


@pytest.mark.parametrize(
    ("count", "let_go"), [(1000, 6), pytest.param(10_000, 64, marks=pytest.mark.soak)], ids=["1000", "10000"]
)
@in_virtual_time
async def test_no_wave_is_above_the_sum_of_their_rates(
    count: int, let_go: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_hosts, "WOKEN_AT_ONCE", let_go)
    assert await peak_of(count) <= 1.02


@in_virtual_time
async def test_without_the_rule_about_the_return_saved_tokens_make_a_wave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(down_hosts, "WOKEN_AT_ONCE", 6)
    monkeypatch.setattr(decide, "return_at", lambda state, policy, at: at)
    monkeypatch.setattr(decide, "emptied", lambda bucket, since: bucket)
    assert await peak_of(1000) > 1.1
