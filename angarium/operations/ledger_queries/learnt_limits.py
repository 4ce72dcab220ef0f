"""The learnt rate of a receiver over time, as `inspect` would have shown it. Pure.

A learnt rate that grows back is a function of time, so it is computed with the rules of the product, from the
recorded pace, the configuration and the rate limit of that moment.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.machine.bucket import RateLimit
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.state import State
from angarium.ledger.audit import Bar, LearntRange, LimitPeriod
from angarium.ledger.configurations import policy_of
from angarium.ledger.ledger_answers import Configured, RecordedChange, RecordedPace

FORGETTING = frozenset({"removed", "resumed", "retargeted"})
"""Changes of a receiver after which nothing is known of its pace."""
SAMPLES_PER_PART = 8
"""Moments of a part for which its learnt rate is computed, besides those at which it was recorded."""


class LearntLimits(Struct, frozen=True):
    """All that a receiver's learnt rate depends on, each in the order of time.

    - `forgotten_at`: when what had been learnt was forgotten.
    - `policies`: the configurations with the time from which on each holds; None: one that cannot be used.
    """

    paces: Sequence[RecordedPace]
    forgotten_at: Sequence[int]
    policies: Sequence[tuple[int, Policy | None]]
    limits: Sequence[LimitPeriod]

    @property
    def may_limit(self) -> bool:
        """True if a learnt rate may hold the receiver at some time."""
        return bool(self.paces) or any(policy and policy.adaptive.smart for _, policy in self.policies)

    def at(self, at: int) -> tuple[float, str] | None:
        """The learnt rate at a time, and the member of `adaptive` that set it; None without one."""
        known = self._pace_at(at)
        policy = _last([each for each in self.policies if each[0] <= at] or self.policies[:1])
        if policy is None:  # It grew back in a way that is not known.
            if known is None or known.per_second is None:
                return None
            return known.per_second, known.limited_by
        state = State(receiver="", pace=None if known is None else known.pace, limit=self._limit_at(at))
        found = pace_limits(state, policy, at / 1000)
        per_second = 0.0 if found.resumes_at else found.per_second
        return None if per_second is None else (per_second, found.limited_by)

    def between(self, since: int, until: int, attempts: int) -> LearntRange | None:
        """The range of the learnt rate in a part of the time, in which so many attempts started."""
        rates = [
            self.at(since + (until - since) * each // SAMPLES_PER_PART) for each in range(SAMPLES_PER_PART)
        ]
        first, end = (bisect_left(self.paces, at, key=_recorded_at) for at in (since, until))
        found = [rate for rate in rates if rate is not None]
        found += [
            (each.per_second, each.limited_by)
            for each in self.paces[first:end]
            if each.per_second is not None
        ]
        if not found:
            return None
        lowest, limited_by = min(found)
        return LearntRange(lowest, max(found)[0], limited_by, attempts * 1000 / (until - since))

    def _pace_at(self, at: int) -> RecordedPace | None:
        place = bisect_right(self.paces, at, key=_recorded_at)
        if not place:
            return None
        known, forgotten = self.paces[place - 1], bisect_right(self.forgotten_at, at)
        return None if forgotten and self.forgotten_at[forgotten - 1] > known.at else known

    def _limit_at(self, at: int) -> RateLimit | None:
        limit = self.limits[max(0, bisect_right(self.limits, at, key=lambda each: each.at) - 1)]
        return None if limit.per_second is None else RateLimit(limit.per_second, limit.burst)


def _recorded_at(pace: RecordedPace) -> int:
    return pace.at


def _last(policies: Sequence[tuple[int, Policy | None]]) -> Policy | None:
    return policies[-1][1] if policies else None


def learnt_limits(
    paces: Sequence[RecordedPace],
    changes: Sequence[RecordedChange],
    configurations: Sequence[Configured],
    limits: Sequence[LimitPeriod],
) -> LearntLimits:
    """The learnt rate by the ledger's rows; `changes` are all that the receiver ever had."""
    return LearntLimits(
        paces, [each.at for each in changes if each.kind in FORGETTING],
        [(each.at, policy_of(each.document)) for each in configurations], limits,
    )  # fmt: skip


def with_learnt(
    chart: Sequence[Bar], until: int, learnt: LearntLimits, pause: Callable[[], None] = lambda: None
) -> list[Bar]:
    """The chart with the learnt rate of each part; the last ends at `until`. `pause` as for `busiest`."""
    if not learnt.may_limit:
        return list(chart)
    ends, found = [*[each.at for each in chart], until], list[Bar]()
    for bar, (since, end) in zip(chart, pairwise(ends), strict=True):
        pause()
        found.append(replace(bar, learnt=learnt.between(since, end, bar.attempts)))
    return found
