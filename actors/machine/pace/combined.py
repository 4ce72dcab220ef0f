"""The rules that a configuration asks for, together: each learns its part, and the lowest limit counts."""

from functools import lru_cache
from math import inf

from msgspec import Struct

from actors.configuration.policy import Adaptive, Policy
from actors.machine.bucket import RateLimit
from actors.machine.pace.after_429 import After429Rule
from actors.machine.pace.concurrency import ConcurrencyRule
from actors.machine.pace.headers import HeadersRule
from actors.machine.pace.pace import Observation, Pace, PaceLimits, PaceRule, not_ahead
from actors.machine.pace.smart import SmartRule

SLOW_PART = 0.1
"""If the configured rate is below `rate_min`, this part of it is the lowest rate instead."""


class CombinedRules(Struct, frozen=True):
    """These rules, of which none knows another; without any, nothing is learnt.

    `concurrency`: the configured number of attempts in flight; a learnt one that is not lower is no limit.
    """

    rules: tuple[PaceRule, ...] = ()
    concurrency: float = inf

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after each rule has learnt."""
        pace = not_ahead(pace, now)
        for rule in self.rules:
            pace = rule.learn(pace, observed, now)
        return pace

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The lowest of all limits."""
        per_second: float | None = None
        in_flight: int | None = None
        fewest = self.concurrency
        resumes_at, limited_by, in_flight_by = 0.0, "", ""
        for rule in self.rules:
            found = rule.limits(pace, now)
            if found.resumes_at > resumes_at:
                resumes_at, limited_by = found.resumes_at, found.limited_by
            if found.per_second is not None and (per_second is None or found.per_second < per_second):
                per_second = found.per_second
                limited_by = limited_by if resumes_at else found.limited_by
            if found.in_flight is not None and found.in_flight < fewest:
                in_flight, in_flight_by, fewest = found.in_flight, found.in_flight_by, found.in_flight
        return PaceLimits(
            per_second=per_second, in_flight=in_flight, resumes_at=resumes_at, limited_by=limited_by,
            in_flight_by=in_flight_by,
        )  # fmt: skip


def rules_in_force(policy: Policy, limit: RateLimit | None) -> CombinedRules:
    """The rules that the configuration asks for, under the rate limit in force."""
    concurrency = 1 if policy.order == "strict" else policy.concurrency
    return _rules(policy.adaptive, limit, concurrency)


@lru_cache(maxsize=256)
def _rules(adaptive: Adaptive, configured: RateLimit | None, concurrency: int) -> CombinedRules:
    """The rules; cached, since many receivers have the same, and each step of a learnt one needs them."""
    rules, per_second = list[PaceRule](), None if configured is None else configured.per_second
    limit = inf if per_second is None else per_second
    rate_min = adaptive.rate_min if adaptive.rate_min < limit else SLOW_PART * limit
    if adaptive.headers:
        rules.append(HeadersRule(limit, 0 if configured is None else configured.burst))
    if adaptive.after_429 and not adaptive.smart:  # It learns from a 429 by itself, and lowers less.
        rules.append(After429Rule(per_second, rate_min))
    if adaptive.concurrency and concurrency > 1:
        rules.append(ConcurrencyRule(concurrency))
    if adaptive.smart:
        rules.append(SmartRule(limit, rate_min, inf if adaptive.rate_max is None else adaptive.rate_max))
    return CombinedRules(tuple(rules), concurrency)
