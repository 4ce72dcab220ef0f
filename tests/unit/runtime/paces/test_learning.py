"""A receiver whose answers teach its pace, before and after a takeover."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from actors.configuration.policy import Adaptive, Rate
from actors.machine import facts as f
from actors.machine.outcome import Answered
from actors.ports import Attempt
from actors.runtime.operator_actions.resume import resume
from tests.unit.worlds.shard import ShardWorld, relaxed, strict
from tests.unit.worlds.values import answer
from tests.unit.worlds.virtual_time import in_virtual_time

LIMIT = Rate(limit=10, burst=20)
EMPTY = answer(200, ratelimit='"a";r=0;t=30')
LITTLE = answer(200, ratelimit='"a";r=6;t=30')
REFUSED = answer(429, retry_after="1")


def refusing(*sequences: int) -> Callable[[Attempt], Answered]:
    """Answers 429 to the first attempts of these events."""
    return lambda made: REFUSED if made.sequence in sequences and made.ordinal == 1 else answer(200)


def spacings(world: ShardWorld) -> list[float]:
    return [later - earlier for earlier, later in pairwise(world.sender.times)]


@pytest.mark.parametrize("takes_over", [False, True])
@in_virtual_time
async def test_nothing_left_is_a_pause_until_the_reset_which_a_takeover_keeps(takes_over: bool) -> None:
    world = strict()
    world.sender.answers(EMPTY)
    world.publish(2)
    await world.pass_time(1)
    if takes_over:
        world.crash()
    await world.pass_time(28)
    assert world.sender.numbers == [1]
    await world.pass_time(3)
    assert world.sender.numbers == [1, 2]


@pytest.mark.parametrize("takes_over", [False, True])
@in_virtual_time
async def test_little_left_is_spread_over_the_time_left(takes_over: bool) -> None:
    world = strict()
    world.sender.answers(LITTLE)
    world.publish(9)
    await world.pass_time(1)
    if takes_over:
        world.crash()
    await world.until_settled(9)
    # The first two may go at once: nothing was learnt yet when the first one began.
    assert spacings(world)[1:5] == pytest.approx([5.0] * 4, abs=0.1)
    assert sum(spacings(world)[7:]) < 1


@pytest.mark.parametrize("told", [LITTLE, REFUSED], ids=["little", "429"])
@in_virtual_time
async def test_an_owner_whose_clock_is_behind_the_last_attempt_does_not_wait_for_it(told: Answered) -> None:
    """The lesson is long over, but it is still recorded."""
    world = strict(rate=LIMIT)
    world.sender.answers(told)
    world.publish(1)
    await world.until_settled(1)
    await world.pass_time(200)
    world.publish(1)
    await world.until_settled(2)
    await world.pass_time(1)
    world.clock.ahead_s = -100.0
    world.crash()
    begun = len(world.sender.times)
    world.publish(3)
    await world.pass_time(5)
    assert len(world.sender.times) - begun == 3


@in_virtual_time
async def test_a_retry_after_counts_and_not_the_quota_that_comes_with_it() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="1", ratelimit='"a";r=0;t=30'))
    world.publish()
    await world.until_settled(1)
    assert world.sender.times[1] < 3


@in_virtual_time
async def test_a_429_halves_the_rate_which_a_takeover_keeps_and_time_gives_back() -> None:
    world = relaxed(rate=LIMIT)
    world.sender.answers(REFUSED)
    world.publish(60)
    await world.pass_time(3)
    world.crash()
    await world.pass_time(2)
    begun = len(world.sender.times)
    await world.pass_time(4)
    # Half of ten, and a tenth more of ten for each ten seconds.
    assert 4 * 5 <= len(world.sender.times) - begun <= 4 * 6
    assert min(spacings(world)[begun:]) > 0.1
    pace = world.state.pace
    assert pace is not None
    assert pace.lowered is not None
    assert (pace.lowered.per_second, pace.lowered.limit) == (5.0, 10.0)
    assert len(world.journal.of(f.PaceSet)) == 1


@in_virtual_time
async def test_a_receiver_that_no_more_answers_429_gets_its_whole_rate_again() -> None:
    world = relaxed(rate=LIMIT)
    world.sender.answers(REFUSED)
    world.publish(1)
    await world.until_settled(1)
    await world.pass_time(60)
    begun = len(world.sender.times)
    world.publish(100)
    await world.pass_time(4)
    assert len(world.sender.times) - begun >= 40


@in_virtual_time
async def test_without_a_rate_the_measured_one_is_halved() -> None:
    world = relaxed(concurrency=8)
    world.sender.latency_s = 0.4
    world.publish(400)
    world.sender.reply = refusing(50, 120)
    await world.pass_time(20)
    rates = [fact.per_second for fact in world.journal.of(f.PaceSet)]
    assert rates[-1] == pytest.approx(10, abs=2.5)


@pytest.mark.parametrize("told", [EMPTY, LITTLE, REFUSED], ids=["empty", "little", "429"])
@in_virtual_time
async def test_nothing_is_learnt_if_it_is_off_or_a_node_does_not_know_the_fact(
    told: Answered,
) -> None:
    off = strict(rate=LIMIT, adaptive=Adaptive(headers=False, after_429=False))
    older = strict(rate=LIMIT)
    older.all_know_paces = False
    for world in (off, older):
        world.sender.reply = lambda _: told
        world.publish(3)
        await world.pass_time(9)
        assert world.state.pace is None
        assert not world.journal.of(f.PaceSet)
        assert len(world.sender.made) >= 3


@in_virtual_time
async def test_a_resume_forgets_what_was_learnt() -> None:
    world = strict()
    world.sender.answers(EMPTY)
    world.publish(2)
    await world.pass_time(5)
    await resume(world.actor)
    await world.until_settled(2)
    assert world.state.pace is None
    assert world.sender.times[1] < 6


@in_virtual_time
async def test_at_most_one_fact_a_second_is_written() -> None:
    world = relaxed(concurrency=16)
    count = 0

    def tells(_: Any) -> Answered:
        nonlocal count
        count += 1
        left = (0, 9, 3, 30)[count % 4]
        return answer(
            429 if count % 7 == 0 else 200, x_ratelimit_limit="100", x_ratelimit_remaining=str(left),
            x_ratelimit_reset_after="0.01",
        )  # fmt: skip

    world.sender.reply = tells
    world.publish(3000)
    await world.pass_time(30)
    at = [fact.at for fact in world.journal.of(f.PaceSet)]
    assert len(at) > 9
    assert all(at[index + 2] - at[index] >= 1 for index in range(len(at) - 2))
    assert len(at) <= at[-1] - at[0] + 2


@in_virtual_time
async def test_no_burst_follows_a_learnt_rate_and_the_configured_limit_holds_all_the_time() -> None:
    world = relaxed(rate=LIMIT, concurrency=64)
    world.sender.reply = refusing(30, 31, 200)
    world.publish(900)
    await world.pass_time(70)
    times = world.sender.times
    assert len(times) > 300
    for first in range(len(times)):
        for count in (21, 40, 100):
            if first + count < len(times):
                assert count + 1 <= LIMIT.burst_max + 10 * (times[first + count] - times[first]) + 1e-6
