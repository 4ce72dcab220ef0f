"""Publishing for benches: bodies with their time of publishing, many at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from streams.nats.answers import Answer, Stored

PUBLISHED_AT_ONCE = 1000

T = TypeVar("T")


async def run_all(work: Callable[[T], Awaitable[object]], items: Sequence[T]) -> None:
    """Call `work` with each item, a thousand at a time. A task for each would take seconds to start."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(some() for _ in range(min(PUBLISHED_AT_ONCE, len(items)))))


def body(size: int) -> bytes:
    """A body of that size in bytes which begins with the time, as the sink reads it."""
    return f"{time.time():.6f}".encode().ljust(size, b" ")


def stored(answer: Answer) -> int:
    """The position of a message. Raises click.ClickException if it was not accepted."""
    if not isinstance(answer, Stored):
        raise click.ClickException(f"NATS did not accept a message: {answer}")
    return answer.position
