"""Retries with exponential backoff, 50 ms to 1 s, and logs the reason once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from actors.errors import Unavailable
from streams.nats.answers import StreamInfo
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 1.0
COMMAND_PATIENCE_S = 30.0
"""Time that a command retries while NATS is away; a person waits for it."""

T = TypeVar("T")
P = ParamSpec("P")


class Pauses:
    """The pauses between attempts, each twice as long as the one before.

    With `js`, a new connection ends a pause at once, and the next pause is short again.
    """

    def __init__(self, js: JetStream | None = None) -> None:
        self._js = js
        self.next_s = PAUSE_MIN_S

    async def wait(self) -> None:
        if self._js is None:
            await asyncio.sleep(self.next_s)
        elif await self._js.reconnected(self.next_s):
            self.next_s = PAUSE_MIN_S
            return
        self.next_s = min(2 * self.next_s, PAUSE_MAX_S)

    def begin_again(self) -> None:
        """Let the next pause be short: an attempt succeeded."""
        self.next_s = PAUSE_MIN_S


class ReasonLog:
    """A log line `event` that says why something waits: a warning, once for each reason.

    While NATS is away, and shortly after, it is logged at level debug: the lost connection was logged
    already, and a problem that stays is logged later. `fields` are added to each line.
    """

    def __init__(self, js: JetStream, log: logging.Logger, event: str, **fields: Any) -> None:
        self._js = js
        self._log = log
        self._event = event
        self._fields = fields
        self._logged = 0, ""

    def log_once(self, why: str, **fields: Any) -> None:
        """Log the reason, unless that was done before; `fields` belong to this occurrence."""
        level = logging.DEBUG if self._js.is_disturbed else logging.WARNING
        if (level, why) != self._logged:
            self._logged = level, why
            self._write(level, why, self._fields | fields)

    def _write(self, level: int, why: str, fields: dict[str, Any]) -> None:
        self._log.log(level, self._event, extra=fields | {"why": why})

    def clear(self) -> None:
        """Forget what was logged: if the same reason comes again, it is logged again."""
        self._logged = 0, ""


class GatheredReasonLog(ReasonLog):
    """A reason that many parts have at the same time: one line for each, with their number."""

    def _write(self, level: int, why: str, fields: dict[str, Any]) -> None:
        if level >= logging.WARNING:
            self._js.gathered_log(self._log, level, self._event, why, **fields)
        else:
            super()._write(level, why, fields)


async def retry_until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Retry until there is an answer; callers that need a time limit set one.

    Raises `NotPermitted` if it is final, as for a command.
    """
    pauses = Pauses()
    while True:
        try:
            return await ask()
        except Unavailable as error:
            if isinstance(error, NotPermitted) and error.final:
                raise
            await pauses.wait()


async def stream_info(js: JetStream, stream: str) -> StreamInfo:
    """The state of a stream that must exist; waits while NATS is away. Raises `ApiError` if it does not."""
    return await retry_until_answered(lambda: js.existing_stream(stream))


async def retry_for_command(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Ask for a command; raises the last `Unavailable` after `COMMAND_PATIENCE_S`, `NotPermitted` at once."""
    pauses, loop = Pauses(), asyncio.get_running_loop()
    deadline = loop.time() + COMMAND_PATIENCE_S
    while True:
        try:
            return await ask(*args, **kwargs)
        except NotPermitted:
            raise
        except Unavailable:
            if loop.time() >= deadline:
                raise
            await pauses.wait()
