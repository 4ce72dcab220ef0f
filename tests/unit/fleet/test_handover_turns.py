"""Turns of handovers: two at a time, and none waits for long."""

import asyncio

import pytest

from streams.fleet.handover_turns import HANDOVERS_AT_ONCE, TURN_MAX_S, HandoverTurns, turn_s

WITHIN_S = 5.0


@pytest.mark.parametrize("waiting", [0, 1, 7, 127, 1023])
def test_if_every_turn_takes_its_longest_all_have_begun_in_time(waiting: int) -> None:
    left_s, lanes = WITHIN_S, [0.0] * HANDOVERS_AT_ONCE
    for still in range(waiting, -1, -1):
        begins = min(lanes)
        assert begins <= left_s
        lanes[lanes.index(begins)] = begins + turn_s(left_s - begins, still)


@pytest.mark.parametrize(("left_s", "seconds"), [(WITHIN_S, TURN_MAX_S), (0.5, 0.5), (-1.0, 0.0)])
def test_a_turn_has_the_time_that_is_left_and_not_more_than_its_longest(
    left_s: float, seconds: float
) -> None:
    assert turn_s(left_s, 0) == seconds


async def test_no_more_turns_are_given_at_once_and_the_next_one_follows_an_end() -> None:
    turns, ends, begun = HandoverTurns(WITHIN_S), [asyncio.Event() for _ in range(4)], list[int]()

    async def take(number: int) -> None:
        async with turns.turn():
            begun.append(number)
            await ends[number].wait()

    async with asyncio.TaskGroup() as group:
        for number in range(len(ends)):
            group.create_task(take(number))
        await asyncio.sleep(0)
        assert begun == [0, 1]
        ends[1].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert begun == [0, 1, 2]
        for end in ends:
            end.set()
    assert begun == [0, 1, 2, 3]


async def test_a_cancelled_wait_for_a_turn_leaves_it_to_the_next() -> None:
    turns, end, begun = HandoverTurns(WITHIN_S), asyncio.Event(), list[int]()

    async def take(number: int) -> None:
        async with turns.turn():
            begun.append(number)
            await end.wait()

    tasks = [asyncio.create_task(take(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    end.set()
    await asyncio.wait(tasks)
    assert begun == [0, 1, 3]
