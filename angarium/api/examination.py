"""The examination of the installation; requests within a few seconds share one, since it takes a while."""

import asyncio
from datetime import UTC, datetime

from msgspec import Struct

from angarium.api.problems import result_of, unavailable
from angarium.connecting import Access
from angarium.operations.installation.examine import problems
from angarium.operations.installation.finding import Finding
from angarium.operations.installation.raised_alerts import RaisedAlerts, raised_alerts

KEPT_TIME_S = 5.0
EXAMINE_TIMEOUT_S = 30.0
"""Time limit of an examination; 100,000 receivers take some seconds."""


class Examined(Struct, frozen=True):
    """The findings of one examination, and the alerts that are raised."""

    at: datetime
    findings: list[Finding]
    raised: RaisedAlerts


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
        try:
            async with asyncio.timeout(EXAMINE_TIMEOUT_S):
                findings = result_of(await problems(self._access))
                raised = result_of(await raised_alerts(self._access))
                return Examined(datetime.now(UTC), findings, raised)
        except TimeoutError:
            raise unavailable(f"the installation was not examined within {EXAMINE_TIMEOUT_S:g} s") from None
