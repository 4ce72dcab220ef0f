"""The last hour of a tenant, or of all tenants, by minute: from the ledger, or else from the journal."""

import time

from msgspec import Struct

from angarium.api.api_state import ApiState
from angarium.api.problems import ProblemRaised
from angarium.api.queries.ask_ledger import ask_ledger
from angarium.operations.ledger_queries.minutes import RecordedMinutes, recorded_minutes
from angarium.operations.live.minute_totals import (
    SECONDS_A_MINUTE,
    SPAN_MINUTES,
    AcceptedMinutes,
    JournalMinutes,
    SettledMinute,
)
from streams.buckets.api_tokens import ALL_TENANTS

READ_AGAIN_MINUTES = 3
"""Minutes that the ledger may still add to: they are read again."""
PART_MINUTES = 15
"""Minutes of one query."""


class HourByMinute(Struct, frozen=True):
    """The last hour: counts by the number of the minute since 1970, of which `last` is the present one.

    - `accepted`: events that were accepted for receivers.
    - `settled`: what became of them; `known_since`: the first minute for which it is known.
    - `note`: a sentence if that is not the whole hour, or not up to now.
    """

    last: int
    accepted: dict[int, int]
    settled: dict[int, SettledMinute]
    known_since: int
    note: str = ""


class RecentMinutes:
    """Reads the last hour; each reading continues the one before."""

    def __init__(self, api: ApiState, tenant: str) -> None:
        self._api = api
        self._tenant = tenant
        self._one = None if tenant == ALL_TENANTS else tenant
        self._accepted = AcceptedMinutes(api.access, self._one)
        self._journal = JournalMinutes(api.access, self._one)
        self._recorded: dict[int, SettledMinute] = {}
        self._recorded_to = 0

    async def read(self) -> HourByMinute:
        """The last hour. Raises AngariumError."""
        now = time.time()
        last = int(now // SECONDS_A_MINUTE)
        first = last - SPAN_MINUTES + 1
        accepted = await self._accepted.read(now)
        try:
            late = await self._read_ledger(first, last)
        except ProblemRaised as raised:
            settled = await self._journal.read(now)
            known_since = max(first, int(self._journal.since // SECONDS_A_MINUTE))
            return HourByMinute(last, accepted, dict(settled), known_since, _sentence(raised.problem.detail))
        return HourByMinute(last, accepted, dict(self._recorded), first, _sentence(late))

    async def _read_ledger(self, first: int, last: int) -> str:
        """Read the minutes that are not known yet; returns why the newest are missing, or an empty text."""
        late, begin = "", max(first, self._recorded_to - READ_AGAIN_MINUTES)
        self._recorded = {each: counts for each, counts in self._recorded.items() if first <= each < begin}
        while begin <= last:
            end = min(begin + PART_MINUTES, last + 1)
            found = await self._ask(begin, end)
            for each in found.minutes:
                self._recorded[each.at // (SECONDS_A_MINUTE * 1000)] = SettledMinute(
                    each.delivered, each.failed + each.throttled, each.dead
                )
            late, begin = found.ledger.late, end
        self._recorded_to = last
        return late

    async def _ask(self, begin: int, end: int) -> RecordedMinutes:
        since, until = begin * SECONDS_A_MINUTE * 1000, end * SECONDS_A_MINUTE * 1000
        return await ask_ledger(
            self._api, self._tenant, lambda ledger: recorded_minutes(ledger, self._one, since, until)
        )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
