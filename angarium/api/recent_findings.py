"""The findings of `angarium doctor` for `/v1/alerts`: kept for a few seconds, since they take a while."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

from angarium.access import Access
from angarium.api.problems import result_of, unavailable
from angarium.operations.installation.doctor.all_checks import installation_problems
from angarium.operations.installation.doctor.findings import Finding
from angarium.operations.installation.doctor.raised_alerts import CheckedReceivers, checked_receivers

KEPT_TIME_S = 5.0
INSTALLATION_TIMEOUT_S = 30.0
"""Time limit of the checks of all but the receivers."""
RECEIVERS_TIMEOUT_S = 30.0
"""Time limit of the checks of the receivers, after that; 100,000 of them take some seconds."""


T = TypeVar("T")


class FindingsAndAlerts(Struct, frozen=True):
    """The findings about all but the receivers, and what was found about these."""

    at: datetime
    installation: list[Finding]
    receivers: CheckedReceivers

    @property
    def findings(self) -> list[Finding]:
        """All findings, the problems first."""
        return sorted([*self.installation, *self.receivers.findings], key=lambda each: each.ok)


class RecentFindings:
    """The last findings of one process; only one check is made at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = asyncio.Lock()
        self._last: FindingsAndAlerts | None = None
        self._kept_until = 0.0

    async def get(self) -> FindingsAndAlerts:
        """The last findings, or new ones if those are too old. Raises `ProblemRaised`."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            if self._last is None or loop.time() >= self._kept_until:
                self._last = await self._check()
                self._kept_until = loop.time() + KEPT_TIME_S
            return self._last

    async def _check(self) -> FindingsAndAlerts:
        found = result_of(
            await _within(INSTALLATION_TIMEOUT_S, installation_problems(self._access), "installation was")
        )
        receivers = await _within(RECEIVERS_TIMEOUT_S, checked_receivers(self._access), "receivers were")
        return FindingsAndAlerts(datetime.now(UTC), found, result_of(receivers))


async def _within(time_s: float, check: Awaitable[T], what: str) -> T:
    """The result of a part of the checks. Raises `ProblemRaised` if it takes longer."""
    try:
        async with asyncio.timeout(time_s):
            return await check
    except TimeoutError:
        raise unavailable(f"the {what} not checked within {time_s:g} s") from None
