"""Repeating what NATS could not do just now: soon at first, since most trouble is short, then in peace."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from streams.nats.answers import StreamInfo
from streams.nats.errors import ApiError, NotPermitted, Unavailable
from streams.nats.jetstream import STREAM_NOT_FOUND, JetStream

FIRST_S = 0.05
LONGEST_S = 1.0
PATIENCE_S = 30.0
"""How long a command, at which somebody waits, holds out without NATS."""

T = TypeVar("T")
P = ParamSpec("P")


class Pauses:
    """The pauses between the tries of one thing, each twice as long as the one before it."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    async def wait(self) -> None:
        await asyncio.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, LONGEST_S)


async def until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer, however long NATS is away; the caller bounds it where it must."""
    pauses = Pauses()
    while True:
        try:
            return await ask()
        except Unavailable:
            await pauses.wait()


async def stream_info(js: JetStream, stream: str) -> StreamInfo:
    """A stream that has to be there, however long NATS is away. Raises `ApiError` where it is not."""
    info = await until_answered(lambda: js.stream_info(stream))
    if info is None:
        raise ApiError(STREAM_NOT_FOUND, f"stream {stream} not found")
    return info


async def patiently(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a command: raises the last `Unavailable` after `PATIENCE_S`, `NotPermitted` at once."""
    pauses, loop = Pauses(), asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        try:
            return await ask(*args, **kwargs)
        except NotPermitted:
            raise
        except Unavailable:
            if loop.time() >= deadline:
                raise
            await pauses.wait()
