"""The events of a tenant, or of all tenants, by minute: what was accepted, delivered, and failed.

The accepted ones are counted by the deliveries stream. The others are counted in the journal, as far back as
it can be read at once; a ledger knows them for the whole hour.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from actors.ids import tenant_of
from actors.machine import facts as f
from angarium.access import Access
from streams.bounded_gather import in_turns
from streams.journal_feed.recent_flushes import RecentFlush, RecentFlushes
from streams.nats.jetstream import ALL_SUBJECTS

SPAN_MINUTES = 60
SECONDS_A_MINUTE = 60


class SettledMinute(Struct):
    """The events that were delivered in a minute, the attempts that failed, and the events given up."""

    delivered: int = 0
    failed: int = 0
    given_up: int = 0


class AcceptedMinutes:
    """The number of events that were accepted in each minute, for the receivers of a tenant, or for all.

    Each reading counts only the minutes that were not over at the last one.
    """

    def __init__(self, access: Access, tenant: str | None) -> None:
        names = access.names
        self._js = access.js
        self._stream = names.deliveries
        self._subject = ALL_SUBJECTS if tenant is None else names.deliveries_to_all_of(tenant)
        self._known: dict[int, int] = {}

    async def read(self, now: float) -> dict[int, int]:
        """The counts of the last hour, by the number of the minute since 1970."""
        last = int(now // SECONDS_A_MINUTE)
        first = last - SPAN_MINUTES + 1
        begin = next((each for each in range(first, last) if each not in self._known), last)
        counts = {each: count for each, count in self._known.items() if each >= first}
        stored = [await self._stored_since(each * SECONDS_A_MINUTE) for each in range(begin, last + 1)]
        for number, count in enumerate(stored):
            following = stored[number + 1] if number + 1 < len(stored) else 0
            counts[begin + number] = max(0, count - following)
        self._known = {each: count for each, count in counts.items() if each < last}
        return counts

    async def _stored_since(self, at: float) -> int:
        """The number of messages that were stored from a time on, and are still there."""
        first = await self._js.first_since(self._stream, self._subject, at)
        if first is None:
            return 0
        found = await self._js.read(self._stream, self._subject, first.position, batch=1, max_bytes=1)
        return len(found.messages) + found.pending


class JournalMinutes:
    """Counts what happened in each minute by the journal, which was read from the instant `since` on."""

    def __init__(self, access: Access, tenant: str | None) -> None:
        self._flushes = RecentFlushes(access.js, access.names, span_s=float(SPAN_MINUTES * SECONDS_A_MINUTE))
        self._takes: Callable[[str], bool] = (
            (lambda _: True) if tenant is None else (lambda receiver: tenant_of(receiver) == tenant)
        )
        self._minutes: dict[int, SettledMinute] = {}

    @property
    def since(self) -> float:
        return self._flushes.since

    async def read(self, now: float) -> dict[int, SettledMinute]:
        """The counts of the last hour, by the number of the minute since 1970."""
        before = self.since
        found = await self._flushes.read_new()
        if self.since != before:
            self._minutes = {}  # A part was left out, or this is the first reading.
        await self._count(found)
        first = int(now // SECONDS_A_MINUTE) - SPAN_MINUTES + 1
        self._minutes = {each: counts for each, counts in self._minutes.items() if each >= first}
        return self._minutes

    async def _count(self, flushes: Iterable[RecentFlush]) -> None:
        async for flush in in_turns(flushes):
            counts = self._minutes.setdefault(int(flush.stored_at // SECONDS_A_MINUTE), SettledMinute())
            for fact in flush.facts:
                match fact:
                    case f.AttemptFailed(kind=f.NO_ATTEMPT):
                        pass
                    case f.Delivered(receiver=receiver, events=events) if self._takes(receiver):
                        counts.delivered += len(events)
                    case (
                        f.AttemptFailed(receiver=receiver, events=events)
                        | f.Throttled(receiver=receiver, events=events)
                    ) if self._takes(receiver):
                        counts.failed += len(events)
                    case f.DeadLettered(receiver=receiver, events=events) if self._takes(receiver):
                        counts.given_up += len(events)
                    case (
                        f.Forgot(receiver=receiver, discarded=discarded)
                        | f.Removed(receiver=receiver, discarded=discarded)
                    ) if self._takes(receiver):
                        counts.given_up += discarded
                    case _:
                        pass
