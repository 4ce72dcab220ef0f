"""The attempts to the receivers of a tenant, or to all, by minute, as the ledger recorded them."""

from msgspec import Struct

from angarium.ledger.ledger_answers import RecordedTotals
from angarium.operations.failures import operation
from angarium.operations.ledger_queries.ledger_access import LedgerLag, OpenLedger, ledger_lag


class RecordedMinutes(Struct, frozen=True):
    """The minutes in which something happened, the oldest first."""

    minutes: list[RecordedTotals]
    ledger: LedgerLag


@operation
async def recorded_minutes(ledger: OpenLedger, tenant: str | None, since: int, until: int) -> RecordedMinutes:
    """List the minutes between two times, in milliseconds."""
    return RecordedMinutes(await ledger.queries.totals(since, until, tenant), await ledger_lag(ledger))
