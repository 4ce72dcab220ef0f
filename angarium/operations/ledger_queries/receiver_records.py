"""The ledger's part of a page about a receiver: its newest attempts, and its last minutes."""

from msgspec import Struct

from angarium.ledger.ledger_answers import AttemptFilter
from angarium.operations.failures import operation
from angarium.operations.ledger_queries.attempts import FoundAttempts, attempts_from
from angarium.operations.ledger_queries.ledger_access import OpenLedger, ledger_lag, number_of
from angarium.operations.ledger_queries.minutes import Minute, minutes_of
from angarium.operations.ledger_queries.page_start import PageStart


class ReceiverRecords(Struct, frozen=True):
    """Attempts, the newest first, and minutes, the oldest first."""

    attempts: FoundAttempts
    minutes: list[Minute]


@operation
async def receiver_records(
    ledger: OpenLedger, receiver: str, wanted: AttemptFilter, start: PageStart | None, since: int, until: int
) -> ReceiverRecords:
    """The attempts wanted, from a place on, and the minutes between two times. Fails as not_found."""
    number, lag = await number_of(ledger, receiver), await ledger_lag(ledger)
    attempts, following = await attempts_from(ledger, number, wanted, start)
    return ReceiverRecords(
        FoundAttempts(attempts, following, lag), await minutes_of(ledger, number, since, until)
    )
