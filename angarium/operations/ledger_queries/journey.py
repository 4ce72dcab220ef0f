"""One event's journey: the receivers that got it, and how each delivery ended."""

from typing import Any

from msgspec import Struct

from angarium.ledger.ledger_answers import RecordedDelivery
from angarium.ledger.schema import ENDINGS
from angarium.operations.failures import NotDone, OperationError, operation
from angarium.operations.ledger_queries.attempts import attempt_document
from angarium.operations.ledger_queries.ledger_access import (
    LedgerLag,
    OpenLedger,
    ledger_lag,
    text,
    why_nothing,
)

WHY_NONE = (
    "it was never published, or no receiver subscribes to it, or it still waits, or it became a dead "
    "letter for an unknown receiver, or it is older than the ledger keeps"
)


PAGE_ATTEMPTS_MAX = 1000
"""Attempts on a page, so it may have fewer deliveries."""


class Journey(Struct, frozen=True):
    """The deliveries of an event, by receiver, each with its first and last attempts.

    `more`: there are other deliveries.
    """

    event_id: str
    deliveries: list[dict[str, Any]]
    more: bool
    ledger: LedgerLag

    @property
    def recorded(self) -> dict[str, list[str | None]]:
        """The receivers, each with the marks of its deliveries that were sent again."""
        found: dict[str, list[str | None]] = {}
        for each in self.deliveries:
            found.setdefault(each["receiver"], []).append(each["again"])
        return found


@operation
async def journey(
    ledger: OpenLedger,
    event_id: str,
    tenant: str | None = None,
    *,
    after: tuple[str, int] = ("", 0),
    limit: int | None = None,
    attempts_max: int | None = None,
) -> Journey:
    """The journey of an event, of one tenant if given. Fails as not_found.

    It contains the deliveries `after` a receiver's sequence, at most `limit`, fewer with more than
    `attempts_max` attempts, usually 1000.
    """
    attempts_max = PAGE_ATTEMPTS_MAX if attempts_max is None else attempts_max
    bounds = {} if limit is None else {"limit": limit + 1, "attempts_max": attempts_max}
    found = await ledger.queries.journey(event_id, tenant, after, **bounds)
    if not found and not after[0]:
        raise OperationError(
            "not_found",
            f"no attempt of the event {event_id} is recorded: {await why_nothing(ledger, WHY_NONE)}",
            remedy="; see angarium inspect and angarium dead list",
        )
    page = found if limit is None else _page(found[:limit], attempts_max)
    return Journey(event_id, list(map(_shown, page)), len(found) > len(page), await ledger_lag(ledger))


def _page(found: list[RecordedDelivery], attempts_max: int) -> list[RecordedDelivery]:
    """The first deliveries, as many as have room for their attempts, and at least one."""
    size = 0
    for count, each in enumerate(found):
        size += len(each.attempts)
        if count and size > attempts_max:
            return found[:count]
    return found


async def recorded_journey(
    ledger: OpenLedger,
    event_id: str,
    tenant: str | None = None,
    *,
    after: tuple[str, int] = ("", 0),
    limit: int | None = None,
    attempts_max: int | None = None,
) -> Journey | NotDone:
    """The journey of an event, without a delivery if the ledger knows none."""
    found = await journey(ledger, event_id, tenant, after=after, limit=limit, attempts_max=attempts_max)
    if isinstance(found, NotDone) and found.kind == "not_found":
        return Journey(event_id, [], more=False, ledger=await ledger_lag(ledger))
    return found


def _shown(delivery: RecordedDelivery) -> dict[str, Any]:
    return {
        "receiver": delivery.receiver,
        "sequence": delivery.sequence,
        "type": delivery.type,
        "again": delivery.again,
        "state": _state(delivery),
        "reason": delivery.reason,
        "published_at": text(delivery.published_at),
        "stored_at": text(delivery.stored_at),
        "ended_at": text(delivery.ended_at),
        "attempts": [attempt_document(each) for each in delivery.attempts],
        "attempts_total": delivery.attempts_total,
        "repeats": [{"at": text(each.at), "position": each.position} for each in delivery.repeats],
    }


def _state(delivery: RecordedDelivery) -> str:
    """The state in one word: `open` while it is under way, `unknown` if it ended within a gap."""
    if delivery.ended_at is None:
        return "open"
    return "unknown" if delivery.ending is None else ENDINGS[delivery.ending - 1]
