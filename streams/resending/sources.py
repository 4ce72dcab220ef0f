"""Checks with the leader that a message exists before a copy of it is sent; an answer holds for a lease.

An event may be erased while a replay or a redrive has it in memory. So a copy leaves only within a lease of
the question to the leader whether its source is there. The eraser looks for copies once more when more than a
lease has passed since the last source was gone (`docs/decisions/erasing-events.md`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable

from streams.clock import Timekeeper
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command

ASKED_AT_ONCE = 16


async def _unchecked() -> None:
    return


class CheckedSources:
    """The messages of one stream that are sent again; what the leader says of them holds for `lease_s`.

    `check` is called with each question, and raises if no copy may be sent any more.
    """

    def __init__(
        self, js: JetStream, stream: str, time: Timekeeper, lease_s: float,
        check: Callable[[], Awaitable[None]] = _unchecked,
    ) -> None:  # fmt: skip
        self._js = js
        self._stream = stream
        self._time = time
        self._lease_s = lease_s
        self._check = check
        self._until: dict[int, float] = {}

    def now(self) -> float:
        """The current time, to be noted before a question, and passed to `remember`."""
        return self._time.boottime()

    def is_certain(self, position: int) -> bool:
        """True if the leader has said less than a lease ago that the message is there."""
        return self.now() < self._until.get(position, -math.inf)

    async def ask(self, *positions: int) -> bool:
        """Ask the leader for these messages; False if the first is gone.

        Raises like `retry_for_command`, and what the check raises.
        """
        asked_at = self.now()
        await self._check()
        found = await asyncio.gather(
            *(retry_for_command(self._js.message, self._stream, each) for each in positions)
        )
        for position in positions:
            self._until.pop(position, None)
        self.remember((each.position for each in found if each is not None), asked_at)
        return found[0] is not None

    def remember(self, positions: Iterable[int], asked_at: float) -> None:
        """Record messages that the leader has, by its answer to a question at that time."""
        now = self.now()
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(positions, asked_at + self._lease_s))
