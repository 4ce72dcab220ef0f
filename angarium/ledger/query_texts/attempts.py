"""The query for attempts at a receiver, and the conditions that a filter adds to it."""

from msgspec.structs import replace

from angarium.ledger.ledger_answers import AttemptFilter

ATTEMPTS = """
SELECT a.at, a.sequence, a.attempt, a.verdict, a.status, a.error, a.latency_us, a.next_at, a.answer, a.type,
    a.delivery, a.block
FROM blocks b CROSS JOIN attempts a {index}
WHERE b.block BETWEEN ? AND ? AND b.until >= ? AND b.since < ?
    AND a.block = b.block AND a.receiver = ? AND a.at >= ? AND a.at < ? {only}
ORDER BY a.at DESC, a.position DESC, a.ordinal DESC LIMIT ?
"""


def filtered(wanted: AttemptFilter) -> tuple[str, str, tuple[int | str, ...]]:
    """The index to use for the wanted attempts, the conditions, and their values.

    Without an index, the table itself is read, which has this order.
    """
    if wanted.error is not None:
        wanted = replace(wanted, failed=True)
    index, only, values = _by_status(wanted)
    if wanted.error is not None:
        contained = wanted.error.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
        only, values = f"{only} AND lower(a.error) LIKE ? ESCAPE '!'", (*values, f"%{contained}%")
    if wanted.type is None:
        return index, only, values
    return index or "attempts_type", f"{only} AND a.type = ?", (*values, wanted.type)


def _by_status(wanted: AttemptFilter) -> tuple[str, str, tuple[int | str, ...]]:
    match wanted.status:
        case None if wanted.failed:
            return "attempts_failed", "AND a.verdict <> 0", ()
        case None:
            return "", "", ()
        case (low, high) if wanted.failed or low >= 300:
            return "attempts_failed", "AND a.verdict <> 0 AND a.status BETWEEN ? AND ?", (low, high)
        case (low, high) if not low <= 200 <= high:
            only = "AND a.verdict = 0 AND a.status <> 200 AND a.status BETWEEN ? AND ?"
            return "attempts_other", only, (low, high)
        case (low, high):
            return "", "AND a.status BETWEEN ? AND ?", (low, high)
