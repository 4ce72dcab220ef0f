"""The examination of the installation; requests within a few seconds share one, since it takes a while."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

from angarium.access import Access
from angarium.api.problems import result_of, unavailable
from angarium.operations.installation.doctor.examine import problems
from angarium.operations.installation.doctor.finding import Finding
from angarium.operations.installation.doctor.raised_alerts import ExaminedReceivers, examined_receivers

KEPT_TIME_S = 5.0
EXAMINE_TIMEOUT_S = 30.0
"""Time limit of the examination of all but the receivers."""
RECEIVERS_TIMEOUT_S = 30.0
"""Time limit of the examination of the receivers, after that; 100,000 of them take some seconds."""


T = TypeVar("T")


class Examined(Struct, frozen=True):
    """The findings about all but the receivers, and what was found about these."""

    at: datetime
    installation: list[Finding]
    receivers: ExaminedReceivers

    @property
    def findings(self) -> list[Finding]:
        """All findings, the problems first."""
        return sorted([*self.installation, *self.receivers.findings], key=lambda each: each.ok)


class Examination:
    """The examinations of one process, one at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = asyncio.Lock()
        self._last: Examined | None = None
        self._kept_until = 0.0

    async def recent(self) -> Examined:
        """The last examination, or a new one if that is too old. Raises `ProblemRaised`."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            if self._last is None or loop.time() >= self._kept_until:
                self._last = await self._examine()
                self._kept_until = loop.time() + KEPT_TIME_S
            return self._last

    async def _examine(self) -> Examined:
        found = result_of(await _within(EXAMINE_TIMEOUT_S, problems(self._access), "installation was"))
        receivers = await _within(RECEIVERS_TIMEOUT_S, examined_receivers(self._access), "receivers were")
        return Examined(datetime.now(UTC), found, result_of(receivers))


async def _within(time_s: float, examination: Awaitable[T], what: str) -> T:
    """The result of a part of the examination. Raises `ProblemRaised` if it takes longer."""
    try:
        async with asyncio.timeout(time_s):
            return await examination
    except TimeoutError:
        raise unavailable(f"the {what} not examined within {time_s:g} s") from None
