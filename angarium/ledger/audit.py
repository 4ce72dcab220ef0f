"""The audit of promise 4: attempts in every window against the limit in force. Pure.

In any window of t seconds at most `burst + rate·t` attempts may start. The ledger knows when an attempt ended
and how long it took, so its start is known to some milliseconds: windows are judged as if they were slightly
longer. If the limit changed in a window, the highest burst counts, and each rate for its time.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

CLOCK_TOLERANCE_MS = 10
BARS_MAX = 16
PAUSE_AFTER = 1024
"""Windows after which `pause` is called: a millisecond or two."""


class LimitPeriod(Struct, frozen=True):
    """The rate in force from `at` on; None: no limit. `others`: rates and bursts that hold as well."""

    at: int
    per_second: float | None = None
    burst: int = 0
    others: tuple[tuple[float, int], ...] = ()


class Window(Struct, frozen=True):
    """The window of one length that came closest to its limit.

    - `at`: when it began.
    - `allowed`: how many attempts might start in it; None if no limit was in force.
    - `exceeded`: the number of windows of this length in which more started.
    """

    length_s: float
    at: int | None = None
    attempts: int = 0
    allowed: int | None = None
    exceeded: int = 0


class LearntRange(Struct, frozen=True):
    """The lowest and the highest learnt rate in a part of the time, and what set the lowest; 0.0 is a pause.

    `sent`: attempts a second in that part.
    """

    lowest: float
    highest: float
    limited_by: str
    sent: float


class Bar(Struct, frozen=True):
    """A part of the time: the number of attempts in it, and its second that came closest to its limit.

    That second begins in the part: `most` attempts started in it, and `allowed` might; None: any number.
    `learnt`: the learnt rates that held in the part, if any did.
    """

    at: int
    attempts: int
    most: int
    allowed: int | None
    learnt: LearntRange | None = None


def lengths(limits: Sequence[LimitPeriod]) -> list[float]:
    """The lengths of the windows to check: a second, and the time that it takes to fill each burst."""
    fills = {each.burst / each.per_second for each in limits if each.per_second}
    others = {burst / per_second for each in limits for per_second, burst in each.others}
    return sorted({1.0} | fills | others)


def busiest(
    starts: Sequence[int],
    limits: Sequence[LimitPeriod],
    length_s: float,
    before: float = math.inf,
    pause: Callable[[], None] = lambda: None,
) -> Window:
    """Look at every window of that length that begins with an attempt, and `before`; `starts` ascend.

    `pause` is called now and then: the work may take a second.
    """
    found, least_room = Window(length_s), math.inf
    length_ms, end, exceeded = length_s * 1000, 0, 0
    period, allowed_within = 0, [_allowed_within(each, length_ms) for each in limits]
    ends = [*[each.at for each in limits[1:]], math.inf]
    for index, start in enumerate(starts):
        if start >= before:
            break
        if index % PAUSE_AFTER == 0:
            pause()
        while end < len(starts) and starts[end] < start + length_ms:
            end += 1
        while ends[period] <= start - CLOCK_TOLERANCE_MS:
            period += 1
        begin, until = start - CLOCK_TOLERANCE_MS, start + length_ms + CLOCK_TOLERANCE_MS
        alike = limits[period].at <= begin and until < ends[period]
        allowed = allowed_within[period] if alike else allowance(limits, start, start + length_ms)
        room = math.inf if allowed is None else allowed - (end - index)
        exceeded += room < 0
        fuller = room < least_room or (room == least_room and end - index > found.attempts)
        if fuller or found.at is None:
            found, least_room = Window(length_s, start, end - index, allowed), room
    return Window(length_s, found.at, found.attempts, found.allowed, exceeded)


def _allowed_within(limit: LimitPeriod, length_ms: float) -> int | None:
    """The allowance of a window that is within one period, as most do; it is the same for all of them."""
    return allowance([replace(limit, at=-CLOCK_TOLERANCE_MS)], 0, length_ms)


def allowance(limits: Sequence[LimitPeriod], since: float, until: float) -> int | None:
    """The number of attempts that may start in a window, with its tolerance; None if any number may."""
    found = [_allowed_by(limits, since, until)]
    for index in range(max((len(each.others) for each in limits), default=0)):
        found.append(_allowed_by([_other(each, index) for each in limits], since, until))
    return min((each for each in found if each is not None), default=None)


def _other(limit: LimitPeriod, index: int) -> LimitPeriod:
    """The limit's other with that index, as a limit of its own; no limit if it has fewer."""
    if index >= len(limit.others):
        return LimitPeriod(limit.at)
    return LimitPeriod(limit.at, *limit.others[index])


def _allowed_by(limits: Sequence[LimitPeriod], since: float, until: float) -> int | None:
    tokens, burst = 0.0, 0
    ends = [*[each.at for each in limits[1:]], math.inf]
    for limit, end in zip(limits, ends, strict=True):
        lasts_ms = min(end, until + CLOCK_TOLERANCE_MS) - max(limit.at, since - CLOCK_TOLERANCE_MS)
        if lasts_ms <= 0:
            continue
        if limit.per_second is None:
            return None
        tokens += limit.per_second * lasts_ms / 1000
        burst = max(burst, limit.burst)
    return math.floor(burst + tokens + 1e-9) if burst else None


def bars(
    starts: Sequence[int],
    limits: Sequence[LimitPeriod],
    since: int,
    until: int,
    pause: Callable[[], None] = lambda: None,
) -> list[Bar]:
    """The chart: the time in equal parts, none shorter than a second; `pause` as for `busiest`."""
    count = min(BARS_MAX, max(1, (until - since) // 1000))
    edges = [since + (until - since) * each // count for each in range(count + 1)]
    found = []
    for begin, end in pairwise(edges):
        first, last = bisect_left(starts, begin), bisect_left(starts, end)
        reach = bisect_left(starts, end + 1000)
        second = busiest(starts[first:reach], limits, 1.0, end, pause)
        allowed = second.allowed if first < last else allowance(limits, begin, begin + 1000)
        found.append(Bar(begin, last - first, second.attempts, allowed))
    return found
