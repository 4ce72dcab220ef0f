"""Audits a receiver's rate: attempts in every window against the limit in force at that time."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from angarium.ledger.audit import CLOCK_TOLERANCE_MS, Bar, LimitPeriod, Window, bars, busiest, lengths
from angarium.ledger.ledger_answers import RecordedChange
from angarium.operations.failures import OperationError, operation
from angarium.operations.records.ledger_access import LedgerLag, OpenLedger, ledger_lag, number_of, text

ATTEMPTS_MAX = 200_000
"""Some seconds' work; for more, ask for one stretch after the other."""


class Audit(Struct, frozen=True):
    """The audit of a receiver's rate: `kept` where no window has more attempts than its limit allows.

    `no_limit`: none was in force. `limits` are those that were, `windows` the busiest of each length.
    """

    receiver: str
    verdict: Literal["kept", "exceeded", "no_limit"]
    since: str
    until: str
    attempts: int
    limits: list[LimitPeriod]
    windows: list[Window]
    chart: list[Bar]
    ledger: LedgerLag


@operation
async def audit(of: OpenLedger, receiver: str, since: int, until: int) -> Audit:
    """Audit a stretch of time. Fails as invalid, as not_found, and as refused where it is too long."""
    number = await number_of(of, receiver)
    starts = await of.questions.starts(number, since, until, ATTEMPTS_MAX + 1)
    if len(starts) > ATTEMPTS_MAX:
        raise OperationError(
            "refused",
            f"{receiver} has more than {ATTEMPTS_MAX} attempts since then: audit it with --until "
            f"{text(starts[-2])}, and continue from there",
        )
    limits = limits_of(await of.questions.changes(number), since, until, starts)
    windows = [busiest(starts, limits, length_s) for length_s in lengths(limits)]
    limited = any(each.per_second is not None for each in limits)
    exceeded = any(each.exceeded for each in windows)
    drawn = bars(starts, limits, starts[0], starts[-1] + 1) if starts else []
    return Audit(
        receiver, "exceeded" if exceeded else "kept" if limited else "no_limit", str(text(since or 1)),
        str(text(until)), len(starts), limits, windows, drawn, await ledger_lag(of),
    )  # fmt: skip


def limits_of(changes: list[RecordedChange], since: int, until: int, starts: list[int]) -> list[LimitPeriod]:
    """The limits in force between two instants, by the facts that set them.

    A limit that was set before the first attempt holds from the beginning: there was nothing before to judge.
    """
    found = [LimitPeriod(0)]
    for each in changes:
        if each.kind == "rate_set" and each.at < until:
            limit = LimitPeriod(each.at, each.detail.get("per_second"), each.detail.get("burst", 0))
            found = [limit] if each.at <= since else [*found, limit]
    if (
        found[0] == LimitPeriod(0)
        and len(found) > 1
        and (not starts or starts[0] >= found[1].at - CLOCK_TOLERANCE_MS)
    ):
        found = [replace(found[1], at=0), *found[2:]]
    return found
