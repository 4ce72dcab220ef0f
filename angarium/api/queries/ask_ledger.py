"""Ledger queries: a bounded number at once, each for a bounded time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from angarium.api.api_state import ApiState
from angarium.api.problems import Fault, invalid, result_of, unavailable
from angarium.api.queries.times import milliseconds
from angarium.ledger.schema import END_OF_TIME
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.ledger_access import (
    CLOCK_AHEAD_MAX_S,
    LEDGER_CODE,
    OpenLedger,
    open_ledger,
)

QUERY_TIMEOUT_S = 10.0
"""Time limit of a query, so that others do not have to wait."""
T = TypeVar("T")


async def ask_ledger(api: ApiState, tenant: str, query: Callable[[OpenLedger], Awaitable[T | NotDone]]) -> T:
    """The answer of the ledger. Raises `ProblemRaised`."""
    with api.query_limits.admit(tenant):
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                outcome = await open_ledger(api.access.settings, query)
        except TimeoutError:
            raise unavailable(
                f"the ledger did not answer within {QUERY_TIMEOUT_S:g} s; query a shorter period"
            ) from None
    if isinstance(outcome, NotDone) and outcome.code == LEDGER_CODE:
        api.no_ledger(why=outcome.text)
        raise unavailable("this process has no ledger; ANGARIUM_LEDGER in its settings names one")
    return result_of(outcome)


def period_ms(since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """The period of a query, in milliseconds. Raises `ProblemRaised`."""
    begin = 0 if since is None else milliseconds(since)
    end = END_OF_TIME if until is None else milliseconds(until)
    if end <= begin:
        raise invalid(Fault(parameter="until", detail="until must be later than since"))
    return begin, end


def past_ms(name: str, at: datetime) -> int:
    """A time in the past, in milliseconds. Raises `ProblemRaised`."""
    found = milliseconds(at)
    if found > (time.time() + CLOCK_AHEAD_MAX_S) * 1000:
        raise invalid(Fault(parameter=name, detail=f"{name} is in the future"))
    return found
