"""Finds the worst receivers: failing ones, and those whose events arrive late."""

import time
from typing import Any

from msgspec import Struct

from angarium.operations.failures import operation
from angarium.operations.ledger_queries.ledger_access import LedgerLag, OpenLedger, ledger_lag, text


class WorstRanking(Struct, frozen=True):
    """The failing receivers, longest outage first, and those whose events came latest within `within_s`."""

    failing: list[dict[str, Any]]
    late: list[dict[str, Any]]
    within_s: float
    ledger: LedgerLag


@operation
async def find_worst(
    ledger: OpenLedger, within_s: float, limit: int, tenant: str | None = None
) -> WorstRanking:
    """Find the `limit` worst of each kind, among a tenant's receivers or among all."""
    failing = [
        {
            "receiver": each.receiver,
            "failing_since": text(each.failing_since),
            "failures": each.failures,
            "disabled": each.disabled,
            "last_attempt_at": text(each.last_at),
            "status": each.last_status,
            "error": each.last_error,
        }
        for each in await ledger.queries.failing(limit, tenant)
    ]
    late = [
        {
            "receiver": each.receiver,
            "latest_s": each.late_ms_max / 1000,
            "mean_s": round(each.late_ms / each.delivered / 1000, 3),
            "delivered": each.delivered,
            "attempts": each.attempts,
            "failed": each.failed,
        }
        for each in await ledger.queries.late(round((time.time() - within_s) * 1000), limit, tenant)
    ]
    return WorstRanking(failing, late, within_s, await ledger_lag(ledger))
