"""A receiver that tells nothing and has a hidden limit, which `concurrency` or `smart` finds."""

from collections import deque

from actors.configuration.policy import Adaptive, Rate, Retry
from actors.machine import facts as f
from actors.machine.outcome import Outcome
from actors.ports import Attempt
from tests.unit.worlds.shard import RECEIVER, ShardWorld, relaxed
from tests.unit.worlds.values import answer
from tests.unit.worlds.virtual_time import in_virtual_time

RETRY = Retry(base_s=0.05, cap_s=0.1)


class HiddenLimit:
    """Refuses attempts beyond `limit` in a second, or beyond `at_once` in flight; counts what it is asked."""

    def __init__(self, world: ShardWorld, *, limit: int = 1000, at_once: int = 1000) -> None:
        self.world, self.limit, self.at_once = world, limit, at_once
        self._taken = deque[float]()
        self.taken = self.refused = 0
        world.sender.reply = self.answer

    def answer(self, _: Attempt) -> Outcome:
        now, taken = self.world.clock.now(), self._taken
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if len(self.world.sender.in_flight[RECEIVER]) >= self.at_once or len(taken) >= self.limit:
            self.refused += 1
            return answer(429 if len(taken) >= self.limit else 503)
        taken.append(now)
        self.taken += 1
        return answer(200)

    def forget(self) -> None:
        self.taken = self.refused = 0


@in_virtual_time
async def test_smart_finds_a_hidden_limit_and_a_takeover_continues_with_it() -> None:
    world = relaxed(concurrency=64, retry=RETRY, adaptive=Adaptive(smart=True, headers=False))
    world.sender.latency_s = 0.05
    receiver = HiddenLimit(world, limit=20)
    world.publish(4000)
    await world.pass_time(90)
    world.crash()
    receiver.forget()
    await world.pass_time(60)
    assert receiver.taken >= 0.8 * 20 * 60
    assert receiver.refused <= 0.02 * receiver.taken
    at = [fact.at for fact in world.journal.of(f.PaceSet)]
    assert 3 < len(at) <= at[-1] - at[0] + 2


@in_virtual_time
async def test_without_smart_the_same_receiver_is_asked_too_much() -> None:
    world = relaxed(concurrency=64, retry=RETRY, adaptive=Adaptive(after_429=False))
    world.sender.latency_s = 0.05
    receiver = HiddenLimit(world, limit=20)
    world.publish(4000)
    await world.pass_time(60)
    assert receiver.refused > 0.05 * receiver.taken


@in_virtual_time
async def test_smart_stays_between_its_bounds_and_below_the_rate() -> None:
    world = relaxed(rate=Rate(limit=10, burst=1), concurrency=64, adaptive=Adaptive(smart=True, rate_max=8))
    world.publish(400)
    await world.pass_time(45)
    times = [each for each in world.sender.times if each >= 15]
    assert 7.5 <= len(times) / 30 <= 8.1


@in_virtual_time
async def test_concurrency_finds_how_many_attempts_a_receiver_takes_at_once() -> None:
    world = relaxed(concurrency=32, retry=RETRY, adaptive=Adaptive(concurrency=True))
    world.sender.latency_s = 0.2
    receiver = HiddenLimit(world, at_once=6)
    world.publish(3000)
    await world.pass_time(60)
    world.crash()
    world.sender.widest = 0
    receiver.forget()
    await world.pass_time(30)
    assert world.sender.widest <= 8
    assert receiver.taken >= 30 * 10
    assert receiver.refused <= 0.1 * receiver.taken


@in_virtual_time
async def test_a_strict_receiver_learns_no_number_of_attempts() -> None:
    world = relaxed(concurrency=1, adaptive=Adaptive(concurrency=True))
    world.sender.answers(503, 503, 429)
    world.publish(5)
    await world.until_settled(5)
    assert world.state.pace is None or world.state.pace.in_flight is None
