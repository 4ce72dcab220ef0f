"""Turns: no more at a time than there are places, the earliest due first, and none is lost."""

import asyncio

from streams.journal.load_turns import LoadTurns


async def hold(turns: LoadTurns, due: float, came: list[float], until: asyncio.Event) -> None:
    async with turns.turn(due):
        came.append(due)
        await until.wait()


async def pass_on() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_there_are_places() -> None:
    turns, came, done = LoadTurns(2), list[float](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for due in (1.0, 2.0, 3.0):
            tasks.create_task(hold(turns, due, came, done))
        await pass_on()
        assert came == [1.0, 2.0]
        done.set()
    assert came == [1.0, 2.0, 3.0]


async def test_the_caller_that_is_due_first_comes_first_whenever_it_came() -> None:
    turns, came, done = LoadTurns(1), list[float](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for due in (5.0, 9.0, float("inf"), 3.0, 0.0, 3.0):
            tasks.create_task(hold(turns, due, came, done))
        await pass_on()
        done.set()
    assert came == [5.0, 0.0, 3.0, 3.0, 9.0, float("inf")]


async def test_a_waiter_that_gives_up_takes_no_place() -> None:
    turns, came, done = LoadTurns(1), list[float](), asyncio.Event()
    first = asyncio.create_task(hold(turns, 1.0, came, done))
    second = asyncio.create_task(hold(turns, 2.0, came, done))
    third = asyncio.create_task(hold(turns, 3.0, came, done))
    await pass_on()
    second.cancel()
    first.cancel()
    third_too = asyncio.create_task(hold(turns, 4.0, came, done))
    await pass_on()
    assert came == [1.0, 3.0]
    done.set()
    await asyncio.wait_for(asyncio.gather(third, third_too), 1.0)


async def test_a_place_that_comes_in_the_moment_of_giving_up_goes_on_to_the_next() -> None:
    turns, came, done = LoadTurns(1), list[float](), asyncio.Event()
    first = asyncio.create_task(hold(turns, 1.0, came, done))
    second = asyncio.create_task(hold(turns, 2.0, came, done))
    third = asyncio.create_task(hold(turns, 3.0, came, done))
    await pass_on()
    first.cancel()
    await asyncio.sleep(0)  # The place is the second's now, who does not know it yet.
    second.cancel()
    await pass_on()
    assert came == [1.0, 3.0]
    done.set()
    await asyncio.wait_for(third, 1.0)
