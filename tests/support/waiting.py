"""Waits for conditions, so that no test has to guess a time."""

import asyncio
from collections.abc import Awaitable, Callable

from streams.nats.wire import Message

PATIENCE_S = 60.0
LOOK_S = 0.005
COMMAND_LOOK_S = 0.5
"""The pause where a command is run to look: that takes a tenth of a second of a processor."""


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not within `PATIENCE_S`."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # What is waited for has no event.
            await asyncio.sleep(LOOK_S)


async def until_true(question: Callable[[], Awaitable[bool]], look_s: float = LOOK_S) -> None:
    """Waits for a condition that is asked for with `await`, with a pause before it is asked again."""
    async with asyncio.timeout(PATIENCE_S):
        while not await question():  # noqa: ASYNC110
            await asyncio.sleep(look_s)


class KeptMessages:
    """A handler that keeps what it was given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)

    async def first(self, count: int) -> list[Message]:
        """The first `count` messages, as soon as they are there."""
        await until(lambda: len(self.messages) >= count)
        return self.messages[:count]
