"""Asks about many things concurrently, by default at most 32 at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

ASKED_AT_ONCE = 32
"""Questions that are under way at a time, such as requests about many shards."""

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


async def gather_bounded(
    things: Iterable[Thing], ask: Callable[[Thing], Awaitable[Answer]], asked_max: int = ASKED_AT_ONCE
) -> list[Answer]:
    """The answers about all these things, in their order. The first error is raised."""
    turn = asyncio.Semaphore(asked_max)

    async def ask_in_turn(thing: Thing) -> Answer:
        async with turn:
            return await ask(thing)

    return await asyncio.gather(*map(ask_in_turn, things))
