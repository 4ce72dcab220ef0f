"""Lists the attempts to a receiver, by result and time."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from actors.ids import check_type
from angarium.ledger.ledger_answers import AttemptFilter, RecordedAttempt
from angarium.ledger.schema import VERDICTS
from angarium.operations.failures import operation
from angarium.operations.ledger_queries.ledger_access import (
    LedgerLag,
    OpenLedger,
    ledger_lag,
    number_of,
    text,
)
from angarium.operations.ledger_queries.page_start import PageStart, next_start


class AttemptList(Struct, frozen=True):
    """Attempts, the newest first, and notes about the ledger."""

    attempts: list[dict[str, Any]]
    more: bool
    ledger: LedgerLag


@operation
async def find_attempts(ledger: OpenLedger, receiver: str, wanted: AttemptFilter) -> AttemptList:
    """List the newest attempts of those wanted. Fails as invalid and not_found."""
    if wanted.type is not None:
        check_type(wanted.type)
    number = await number_of(ledger, receiver)
    found = await ledger.queries.attempts(number, _with_one_more_row(wanted))
    more = len(found) > wanted.limit
    return AttemptList(
        [attempt_document(each) for each in found[: wanted.limit]], more, await ledger_lag(ledger)
    )


class FoundAttempts(Struct, frozen=True):
    """Attempts, the newest first, and where the older ones begin; None if these are all."""

    attempts: list[dict[str, Any]]
    next: PageStart | None
    ledger: LedgerLag


@operation
async def attempts_page(
    ledger: OpenLedger, receiver: str, wanted: AttemptFilter, start: PageStart | None
) -> FoundAttempts:
    """List the newest attempts of those wanted, from a place on. Fails as invalid and not_found."""
    if wanted.type is not None:
        check_type(wanted.type)
    number = await number_of(ledger, receiver)
    attempts, following = await attempts_from(ledger, number, wanted, start)
    return FoundAttempts(attempts, following, await ledger_lag(ledger))


async def attempts_from(
    ledger: OpenLedger, number: int, wanted: AttemptFilter, start: PageStart | None
) -> tuple[list[dict[str, Any]], PageStart | None]:
    """The newest attempts of those wanted, from a place on, and where the older ones begin."""
    limit, skipped = wanted.limit, 0
    if start is not None:
        wanted = replace(wanted, until=min(wanted.until, start.at + 1), limit=limit + start.skip)
    found = await ledger.queries.attempts(number, _with_one_more_row(wanted))
    if start is not None:
        skipped = start.skipped([each.at for each in found])
    page = found[skipped : skipped + limit]
    more = len(found) > skipped + limit
    following = next_start([each.at for each in page], start) if more else None
    return [attempt_document(each) for each in page], following


def _with_one_more_row(wanted: AttemptFilter) -> AttemptFilter:
    """The query with one more row, which shows whether there are older ones."""
    return replace(wanted, limit=wanted.limit + 1)


def attempt_document(attempt: RecordedAttempt) -> dict[str, Any]:
    """An attempt as JSON; a ping has no number and no event."""
    return {
        "at": text(attempt.at),
        "sequence": attempt.sequence or None,
        "event_id": attempt.event,
        "type": attempt.type,
        "attempt": attempt.attempt,
        "verdict": VERDICTS[attempt.verdict],
        "status": attempt.status,
        "error": attempt.error,
        "answer": attempt.answer,
        "latency_ms": attempt.latency_us / 1000,
        "next_at": text(attempt.next_at),
    }
