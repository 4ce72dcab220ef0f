"""Asks about many things concurrently, by default at most 32 at a time; goes through many in turns."""

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

ASKED_AT_ONCE = 32
"""Questions that are under way at a time, such as requests about many shards."""

WORKED_IN_A_TURN_S = 0.0005
"""Time for which a task works before others get their turns: a page waits for some of them."""
SORTED_IN_A_TURN_MAX = 1024

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


class Turns:
    """Lets other tasks have their turns, once this one has worked for a while.

    Without them nats-server takes this client for dead, since it answers no ping meanwhile, and a process of
    the API would answer nothing.
    """

    def __init__(self, turn_s: float = WORKED_IN_A_TURN_S) -> None:
        self._turn_s = turn_s
        self._until = time.perf_counter() + turn_s

    async def pause(self) -> None:
        """Return when the others had their turns, if it is time for that."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + self._turn_s


async def in_turns(things: Iterable[Thing], turn_s: float = WORKED_IN_A_TURN_S) -> AsyncIterator[Thing]:
    """The things, with turns for other tasks in between."""
    until = time.perf_counter() + turn_s
    for thing in things:
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + turn_s
        yield thing


async def sorted_in_turns(texts: Sequence[str]) -> list[str]:
    """The texts in order, with turns for other tasks in between."""
    starts = range(0, len(texts), SORTED_IN_A_TURN_MAX)
    parts = [sorted(texts[start : start + SORTED_IN_A_TURN_MAX]) async for start in in_turns(starts)]
    return [each async for each in in_turns(heapq.merge(*parts))]
