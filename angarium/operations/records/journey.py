"""One event's journey: the receivers that got it, and how each delivery ended."""

from typing import Any

from msgspec import Struct

from angarium.ledger.ledger_answers import RecordedDelivery
from angarium.ledger.schema import ENDINGS
from angarium.operations.failures import OperationError, operation
from angarium.operations.records.attempts import attempt_document
from angarium.operations.records.ledger_access import LedgerLag, OpenLedger, ledger_lag, text

WHY_NONE = (
    "no receiver subscribes to it; or it still waits (see angarium inspect); or it became a dead letter for "
    "an unknown receiver (see angarium dead list)"
)


class Journey(Struct, frozen=True):
    """The deliveries of an event, by receiver, each with its attempts; `more`: there are others."""

    event_id: str
    deliveries: list[dict[str, Any]]
    more: bool
    ledger: LedgerLag


@operation
async def journey(
    of: OpenLedger,
    event_id: str,
    tenant: str | None = None,
    *,
    after: tuple[str, int] = ("", 0),
    limit: int | None = None,
) -> Journey:
    """The journey of an event, of one tenant if given. Fails as not_found.

    It contains the deliveries `after` a receiver's sequence, at most `limit`.
    """
    found = await of.questions.journey(event_id, tenant, after, None if limit is None else limit + 1)
    known = await ledger_lag(of)
    if not found and not after[0]:
        why = "; ".join(known.notes) or WHY_NONE
        raise OperationError(
            "not_found",
            f"the ledger knows no receiver that was given the event {event_id}",
            remedy=f" ({why})",
        )
    return Journey(
        event_id, list(map(_shown, found[:limit])), limit is not None and len(found) > limit, known
    )


def _shown(delivery: RecordedDelivery) -> dict[str, Any]:
    return {
        "receiver": delivery.receiver,
        "sequence": delivery.sequence,
        "type": delivery.type,
        "again": delivery.again,
        "state": _state(delivery),
        "reason": delivery.reason,
        "stored_at": text(delivery.stored_at),
        "ended_at": text(delivery.ended_at),
        "attempts": [attempt_document(each) for each in delivery.attempts],
    }


def _state(delivery: RecordedDelivery) -> str:
    """The state in one word: `open` while it is under way, `unknown` if it ended within a gap."""
    if delivery.ended_at is None:
        return "open"
    return "unknown" if delivery.ending is None else ENDINGS[delivery.ending - 1]
