"""Keeps one tenant from filling the stream of timed events: what exceeds its share waits elsewhere.

As long as half of the room is free, no tenant's share matters. Beyond that, a tenant that has an eighth of
the room stores nothing more: its events wait in the events stream, where floods of one tenant are dealt with
anyway. What a tenant has is estimated from samples, every few seconds; so it may exceed its share by what it
publishes within that time.
"""

import asyncio
import logging
from collections.abc import Callable

from actors.errors import Unavailable
from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import GatheredReasonLog
from streams.reading.sampling import sample_stream
from streams.tasks import cancel_and_wait, on_defect

FREE_SHARE = 0.5
"""Share of the room that must be free for tenants to store as much as they like."""
TENANT_SHARE = 0.125
"""Share of the room that a tenant may have beyond that."""
SAMPLES_MAX = 16
SHARES_CHECK_EVERY_S = 5.0
TENANTS_MAX = 64
"""Tenants that are checked in one round; the others store meanwhile."""

log = logging.getLogger(__name__)


class TenantShares:
    """The room for entries, as the router of one partition sees it."""

    def __init__(self, js: JetStream, names: Names, partition: int, on_broken: Callable[[str], None]) -> None:
        self._js = js
        self._partition = partition
        self._names = names
        self._on_broken = on_broken
        self._over_share: frozenset[str] = frozenset()
        self._storing: dict[str, None] = {}
        self._checked_at = float("-inf")
        self._checking: asyncio.Task[None] | None = None
        self._reason_log = GatheredReasonLog(js, log, "later.waiting")

    async def stop(self) -> None:
        """Check no more."""
        await cancel_and_wait(self._checking)

    def refusal_reason(self, tenant: str) -> str:
        """The reason why a tenant may store nothing more at the moment; empty if it may."""
        self._storing[tenant] = None
        now = asyncio.get_running_loop().time()
        if now >= self._checked_at + SHARES_CHECK_EVERY_S and (
            self._checking is None or self._checking.done()
        ):
            self._checked_at = now
            self._checking = asyncio.ensure_future(self._check())
            self._checking.add_done_callback(on_defect("router", self._on_broken))
        if tenant in self._over_share:
            return f"{self._names.later} fills, and the tenant has an eighth of its room"
        return ""

    async def _check(self) -> None:
        storing, self._storing = list(self._storing)[:TENANTS_MAX], {}
        try:
            info = await self._js.existing_stream(self._names.later)
            if info.max_bytes <= 0 or info.bytes <= (1 - FREE_SHARE) * info.max_bytes:
                storing = []
            self._over_share = frozenset([each for each in storing if await self._is_over_share(each, info)])
        except (Unavailable, ApiError) as error:
            self._reason_log.log_once(str(error), partition=self._partition)
        else:
            self._reason_log.clear()

    async def _is_over_share(self, tenant: str, info: StreamInfo) -> bool:
        subject = self._names.timed_subjects.tenant_entries(tenant)
        parts = await sample_stream(self._js, info, SAMPLES_MAX, subject)
        return sum(each.size for each in parts) > TENANT_SHARE * info.max_bytes
