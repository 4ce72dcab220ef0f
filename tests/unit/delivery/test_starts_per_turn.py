"""Few attempts begin in one turn of the event loop, in the order of their requests; none is forgotten."""

import asyncio

from angarium.delivery.connections.starts_per_turn import BEGUN_IN_TURN_MAX, StartsPerTurn


async def test_few_begin_in_a_turn_and_in_order() -> None:
    starts, begun = StartsPerTurn(), list[int]()

    async def begin(number: int) -> None:
        await starts.begin()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(10 * BEGUN_IN_TURN_MAX)]
    tasks[BEGUN_IN_TURN_MAX + 1].cancel()
    rest = [number for number in range(len(tasks)) if number != BEGUN_IN_TURN_MAX + 1]
    turned = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turned += 1
        assert len(begun) <= turned * BEGUN_IN_TURN_MAX
    assert begun == rest


async def test_a_waiter_that_stopped_waiting_takes_no_turn() -> None:
    starts = StartsPerTurn()
    tasks = [asyncio.create_task(starts.begin()) for _ in range(3 * BEGUN_IN_TURN_MAX)]
    await asyncio.sleep(0)
    for task in tasks[BEGUN_IN_TURN_MAX:-1]:
        task.cancel()
    for _ in range(2):
        await asyncio.sleep(0)
    assert tasks[-1].done()
