"""Audits a receiver's rate: attempts in every window against the limit in force at that time."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from angarium.ledger.audit import CLOCK_TOLERANCE_MS, Bar, LimitPeriod, Window, bars, busiest, lengths
from angarium.ledger.ledger_answers import RecordedChange
from angarium.operations.failures import OperationError, operation
from angarium.operations.ledger_queries.learnt_limits import LearntLimits, learnt_limits, with_learnt
from angarium.operations.ledger_queries.ledger_access import (
    LedgerLag,
    OpenLedger,
    ledger_lag,
    number_of,
    text,
)

ATTEMPTS_MAX = 200_000
"""Number of attempts in one audit; audit longer periods in parts."""
CONFIGURATIONS_MAX = 1000
"""Configurations of a period by which its learnt rates are computed."""
COMPARISONS_PER_ATTEMPT = 8
"""Windows times limits for each attempt: of many changes of the rate, only a part is judged at once."""

_JUDGES = ThreadPoolExecutor(1, "audit")
"""Audits run one after the other, in slices: other requests wait while one occupies the interpreter."""
WORK_BEFORE_REST_S = 0.005
"""Work after which an audit rests as long."""


class Audit(Struct, frozen=True):
    """The audit of a receiver's rate.

    - `verdict`: `kept` if no window has more attempts than its limit allows; `no_limit` if none was in force.
    - `limits`: those that were in force.
    - `windows`: the busiest window of each length.
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


class AuditedLimit(Struct, frozen=True, omit_defaults=True):
    """A rate that was in force from `at` on; null: before the audited period, or no limit.

    `others`: rates per second that hold as well, each with its burst.
    """

    at: str | None
    per_second: float | None
    burst: int
    others: tuple[tuple[float, int], ...] = ()


class AuditedWindow(Struct, frozen=True):
    """The busiest window of one length: it began `at`, and `allowed` attempts might start in it.

    `exceeded` counts the windows in which more did. `allowed` is null if no limit was in force.
    """

    length_s: float
    at: str | None
    attempts: int
    allowed: int | None
    exceeded: int


class AuditedPart(Struct, frozen=True):
    """A part of the period: all attempts in it, and the second in it that came closest to its limit.

    `most` attempts began in that second, and `allowed` might: null where no limit was in force.
    `learnt_min` and `learnt_max` are the lowest and the highest learnt rate per second in the part, and
    `limited_by` is the member of `adaptive` that set the lowest; null where none held, 0 is a pause.
    """

    at: str | None
    attempts: int
    most: int
    allowed: int | None
    learnt_min: float | None
    learnt_max: float | None
    limited_by: str | None


class AuditDocument(Struct, frozen=True):
    """The audit as JSON, with times as texts."""

    receiver: str
    verdict: Literal["kept", "exceeded", "no_limit"]
    since: str
    until: str
    attempts: int
    limits: list[AuditedLimit]
    windows: list[AuditedWindow]
    chart: list[AuditedPart]
    ledger: LedgerLag


@operation
async def audit(
    ledger: OpenLedger, receiver: str, since: int, until: int, attempts_max: int = ATTEMPTS_MAX
) -> Audit:
    """Audit a period. Fails as invalid, as not_found, and as refused if it has too many attempts."""
    number = await number_of(ledger, receiver)
    starts = await ledger.queries.starts(number, since, until, attempts_max + 1)
    if len(starts) > attempts_max:
        raise _too_much(receiver, f"more than {attempts_max} attempts", starts[-2])
    changes = await ledger.queries.changes(number)
    limits = _limits_of(changes, since, until, starts)
    comparisons = len(lengths(limits)) * len(limits)
    if len(starts) * comparisons > COMPARISONS_PER_ATTEMPT * attempts_max:
        last = starts[COMPARISONS_PER_ATTEMPT * attempts_max // comparisons]
        raise _too_much(receiver, f"{len(starts)} attempts and {len(limits)} limits", last)
    learnt = await _learnt(ledger, number, (since, until), changes, limits)
    loop = asyncio.get_running_loop()
    windows, drawn = await loop.run_in_executor(_JUDGES, _judged, starts, limits, learnt)
    limited = any(each.per_second is not None for each in limits)
    exceeded = any(each.exceeded for each in windows)
    return Audit(
        receiver, "exceeded" if exceeded else "kept" if limited else "no_limit", str(text(since or 1)),
        str(text(until)), len(starts), limits, windows, drawn, await ledger_lag(ledger),
    )  # fmt: skip


def _too_much(receiver: str, count: str, until: int) -> OperationError:
    return OperationError(
        "refused",
        f"{receiver} has {count} in that period: audit it until {text(until)}, then continue from there",
    )


async def _learnt(
    ledger: OpenLedger,
    number: int,
    within: tuple[int, int],
    changes: list[RecordedChange],
    limits: list[LimitPeriod],
) -> LearntLimits:
    """All that the learnt rate of a receiver depended on in a period."""
    queries = ledger.queries
    configurations = await queries.configurations_before(number, within[0], 1)
    configurations += await queries.configurations(number, *within, CONFIGURATIONS_MAX)
    # A pace is learnt from answers, so there are no more of them than attempts.
    paces = await queries.paces(number, *within, ATTEMPTS_MAX)
    return learnt_limits(paces, changes, configurations, limits)


def _judged(
    starts: list[int], limits: list[LimitPeriod], learnt: LearntLimits
) -> tuple[list[Window], list[Bar]]:
    """The busiest windows and the chart, computed in a thread that rests as long as it works."""
    rest = _Rests()
    windows = [busiest(starts, limits, length_s, pause=rest) for length_s in lengths(limits)]
    if not starts:
        return windows, []
    until = starts[-1] + 1
    return windows, with_learnt(bars(starts, limits, starts[0], until, rest), until, learnt, rest)


class _Rests:
    """Sleeps as long as the thread has worked since the last time, in slices."""

    def __init__(self) -> None:
        self._since = time.thread_time()

    def __call__(self) -> None:
        worked = time.thread_time() - self._since
        if worked >= WORK_BEFORE_REST_S:
            time.sleep(worked)
            self._since = time.thread_time()


def document(found: Audit) -> AuditDocument:
    """The audit as JSON."""
    return AuditDocument(
        found.receiver, found.verdict, found.since, found.until, found.attempts,
        [AuditedLimit(text(each.at), each.per_second, each.burst, each.others) for each in found.limits],
        [
            AuditedWindow(each.length_s, text(each.at), each.attempts, each.allowed, each.exceeded)
            for each in found.windows
        ],
        list(map(_part, found.chart)), found.ledger,
    )  # fmt: skip


def _part(bar: Bar) -> AuditedPart:
    learnt = bar.learnt
    return AuditedPart(
        text(bar.at), bar.attempts, bar.most, bar.allowed,
        None if learnt is None else round(learnt.lowest, 6),
        None if learnt is None else round(learnt.highest, 6),
        None if learnt is None else learnt.limited_by,
    )  # fmt: skip


def _limits_of(changes: list[RecordedChange], since: int, until: int, starts: list[int]) -> list[LimitPeriod]:
    """The limits in force between two times, by the facts that set them.

    A limit that was set before the first attempt counts from the beginning, since nothing happened before it.
    """
    found = [LimitPeriod(0)]
    for each in changes:
        if each.kind == "rate_set" and each.at < until:
            others = tuple((other["per_second"], other["burst"]) for other in each.detail.get("others", ()))
            limit = LimitPeriod(each.at, each.detail.get("per_second"), each.detail.get("burst", 0), others)
            found = [limit] if each.at <= since else [*found, limit]
    if (
        found[0] == LimitPeriod(0)
        and len(found) > 1
        and (not starts or starts[0] >= found[1].at - CLOCK_TOLERANCE_MS)
    ):
        found = [replace(found[1], at=0), *found[2:]]
    return found
