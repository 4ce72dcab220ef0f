"""Limits a tenant's unfinished requests to erase, in each process of the API."""

from streams.erasing.erasures import Erasures

UNFINISHED_MAX = 256
ASKED_ABOUT_MAX = 8
"""Earlier requests that a refused one asks about: it may be admitted in their place."""


class UnfinishedErasures:
    """The requests that a process accepted and does not know to be done, by tenant, the oldest first."""

    def __init__(self, erasures: Erasures) -> None:
        self._erasures = erasures
        self._events: dict[str, dict[str, None]] = {}

    async def admit(self, tenant: str, event: str) -> bool:
        """Note a request; False if the tenant has too many unfinished ones. Raises `Unavailable`."""
        events = self._events.setdefault(tenant, {})
        if event not in events and len(events) >= UNFINISHED_MAX:
            await self._forget_done(tenant, events)
        if event not in events and len(events) >= UNFINISHED_MAX:
            return False
        events[event] = None
        return True

    async def _forget_done(self, tenant: str, events: dict[str, None]) -> None:
        """Forget those of the oldest that are done; the others are asked about after all the rest."""
        for event in list(events)[:ASKED_ABOUT_MAX]:
            found = await self._erasures.get(tenant, event)
            events.pop(event, None)
            if found is not None and found.done_at is None:
                events[event] = None
