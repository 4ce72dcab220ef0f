"""Slots for loads: never more loads than slots, the earliest due first, and none is lost."""

import asyncio

from streams.journal.load_slots import LoadSlots


async def hold(slots: LoadSlots, due: float, came: list[float], until: asyncio.Event) -> None:
    async with slots.slot(due):
        came.append(due)
        await until.wait()


async def pass_on() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_there_are_slots() -> None:
    slots, came, done = LoadSlots(2), list[float](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for due in (1.0, 2.0, 3.0):
            tasks.create_task(hold(slots, due, came, done))
        await pass_on()
        assert came == [1.0, 2.0]
        done.set()
    assert came == [1.0, 2.0, 3.0]


async def test_the_caller_that_is_due_first_comes_first_whenever_it_came() -> None:
    slots, came, done = LoadSlots(1), list[float](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for due in (5.0, 9.0, float("inf"), 3.0, 0.0, 3.0):
            tasks.create_task(hold(slots, due, came, done))
        await pass_on()
        done.set()
    assert came == [5.0, 0.0, 3.0, 3.0, 9.0, float("inf")]


async def test_a_waiter_that_gives_up_takes_no_slot() -> None:
    slots, came, done = LoadSlots(1), list[float](), asyncio.Event()
    first = asyncio.create_task(hold(slots, 1.0, came, done))
    second = asyncio.create_task(hold(slots, 2.0, came, done))
    third = asyncio.create_task(hold(slots, 3.0, came, done))
    await pass_on()
    second.cancel()
    first.cancel()
    third_too = asyncio.create_task(hold(slots, 4.0, came, done))
    await pass_on()
    assert came == [1.0, 3.0]
    done.set()
    await asyncio.wait_for(asyncio.gather(third, third_too), 1.0)


async def test_a_slot_that_comes_in_the_moment_of_giving_up_is_passed_to_the_next() -> None:
    slots, came, done = LoadSlots(1), list[float](), asyncio.Event()
    first = asyncio.create_task(hold(slots, 1.0, came, done))
    second = asyncio.create_task(hold(slots, 2.0, came, done))
    third = asyncio.create_task(hold(slots, 3.0, came, done))
    await pass_on()
    first.cancel()
    await asyncio.sleep(0)  # The slot is the second's now, who does not know it yet.
    second.cancel()
    await pass_on()
    assert came == [1.0, 3.0]
    done.set()
    await asyncio.wait_for(third, 1.0)


async def test_each_block_begins_in_its_turn_and_a_caller_that_leaves_gives_its_slot_back() -> None:
    turns, came, done = asyncio.Semaphore(0), list[float](), asyncio.Event()

    async def begin() -> None:
        await turns.acquire()

    slots = LoadSlots(2, begin)
    tasks = [asyncio.create_task(hold(slots, due, came, done)) for due in (1.0, 2.0, 3.0)]
    await pass_on()
    assert came == []
    tasks[0].cancel()
    await pass_on()
    turns.release()
    turns.release()
    await pass_on()
    assert came == [2.0, 3.0]
    done.set()
    await asyncio.gather(*tasks[1:])
