"""Paced work: one turn at a time, shared equally by askers, however often each asks."""

import asyncio

from angarium.api.background.spaced_work import SpacedWork


async def test_a_tenant_that_asks_often_gets_no_more_turns_than_another() -> None:
    work, taken = SpacedWork(0.0), list[str]()
    at_once = most = 0

    async def ask(whose: str) -> None:
        nonlocal at_once, most
        for _ in range(3):
            async with work.turn(whose):
                at_once += 1
                most = max(most, at_once)
                taken.append(whose)
                await asyncio.sleep(0)
                at_once -= 1

    await asyncio.gather(*(ask("greedy") for _ in range(8)), ask("modest"))
    assert most == 1
    # The modest one is done after its third turn of every second one.
    assert taken[:7].count("modest") == 3
    assert len(taken) == 27


async def test_there_is_a_pause_after_each_turn() -> None:
    work, loop = SpacedWork(0.02), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        async with work.turn("one"):
            pass
    assert loop.time() - began >= 0.06


async def test_a_turn_that_is_given_up_is_free_again() -> None:
    work = SpacedWork(0.0)
    entered = asyncio.Event()

    async def never_ends() -> None:
        async with work.turn("one"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(never_ends())
    await entered.wait()
    task.cancel()
    await asyncio.wait({task})
    async with asyncio.timeout(5), work.turn("one"):
        pass
