"""The pace of a receiver: what was learnt about what it can take. Small, and changed only by recorded facts.

A rule is two pure functions: from a pace and an observation to a pace, and from a pace and a time to the
limits in force. A limit that grows back is a function of time, so its growth needs no fact. A takeover
continues with the pace; only the observation that was under way is lost. No limit is above the configured
one.
"""

from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.quota_headers import RESET_MAX_S, Quota


class HeaderLimit(Struct, frozen=True, gc=False, omit_defaults=True):
    """A limit that the receiver named in its headers: `per_second` attempts until `until`; 0.0 is a pause."""

    per_second: float
    until: float


class LoweredRate(Struct, frozen=True, gc=False, omit_defaults=True):
    """A rate that was lowered to `per_second` at the time `at`, and grows back to `limit`."""

    per_second: float
    limit: float
    at: float


class InFlightLimit(Struct, frozen=True, gc=False, omit_defaults=True):
    """The number of attempts that may be in flight.

    `at`: when it was lowered last; `base_ms`: the latency without load.
    """

    limit: float
    at: float = 0.0
    base_ms: float = 0.0


class ProbedRate(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A rate that follows latency and refusals.

    - `proven`: the highest rate that the receiver recently accepted.
    - `ceiling`: the rate at which trouble began; 0.0 as long as there was none.
    - `lowered_at`: when the rate was lowered last; `low`, `at`: to what, and when sending continues with
      it.
    - `before`: the ceiling before the rate was lowered several times in a row.
    - `base_ms`: the latency without load; `slow`: the rate was lowered for a higher one, not for a refusal.
    """

    proven: float = 0.0
    ceiling: float = 0.0
    low: float = 0.0
    at: float = 0.0
    lowered_at: float = 0.0
    before: float = 0.0
    base_ms: float = 0.0
    slow: bool = False


class Pace(Struct, frozen=True, gc=False, omit_defaults=True):
    """All that was learnt about a receiver."""

    told: HeaderLimit | None = None
    lowered: LoweredRate | None = None
    in_flight: InFlightLimit | None = None
    probed: ProbedRate | None = None


def not_ahead(pace: Pace, now: float) -> Pace:
    """The pace without times that are still to come: an earlier owner's clock was ahead of this one's.

    Otherwise a rate would not grow back, and no refusal would count, until this clock gets there.
    """
    told, lowered, in_flight, probed = pace.told, pace.lowered, pace.in_flight, pace.probed
    if told is not None and told.until > now + RESET_MAX_S:
        pace = replace(pace, told=replace(told, until=now + RESET_MAX_S))
    if lowered is not None and lowered.at > now:
        pace = replace(pace, lowered=replace(lowered, at=now))
    if in_flight is not None and in_flight.at > now:
        pace = replace(pace, in_flight=replace(in_flight, at=now))
    if probed is not None and (ahead_s := probed.lowered_at - now) > 0:
        pace = replace(pace, probed=replace(probed, lowered_at=now, at=probed.at - ahead_s))
    return pace


PACE_RULES = ("headers", "after_429", "concurrency", "smart")
"""The names of the rules, which are members of `adaptive`."""


class PaceLimits(Struct, frozen=True, gc=False, kw_only=True):
    """The learnt limits in force; None: no other than the configured one.

    `resumes_at`: nothing is sent before that time. `limited_by`, `in_flight_by`: the rules that set the rate,
    or the pause, and the number of attempts in flight.
    """

    per_second: float | None = None
    in_flight: int | None = None
    resumes_at: float = 0.0
    limited_by: str = ""
    in_flight_by: str = ""

    @property
    def is_any(self) -> bool:
        """True if any limit is in force."""
        return bool(self.limited_by or self.in_flight_by)


NOTHING_LEARNT, NO_PACE_LIMITS = Pace(), PaceLimits()


class Observation(Struct, frozen=True, gc=False, kw_only=True):
    """The outcomes of a span of time, in numbers.

    - `started_per_s`, `accepted_per_s`: attempts, and outcomes other than refusals, a second; 0.0 if not
      known.
    - `started_per_s_min`: attempts in a second, even if a refusal cut the span short.
    - `answers`: all outcomes; `throttled`: those with 429; `overloaded`: those with 503, or that took too
      long.
    - `refused_began_at`: when the attempt began that was throttled or overloaded last.
    - `latency_ms`: the mean of the deliveries; None without one.
    - `limit_was_reached`: a learnt limit held attempts back.
    - `in_flight_max`: the highest number of attempts in flight.
    - `resumes_at`: when sending continues, if a pause or backoff holds it up.
    - `quotas`: what the headers of the last answer said.
    """

    started_per_s: float = 0.0
    accepted_per_s: float = 0.0
    started_per_s_min: float = 0.0
    answers: int = 0
    throttled: int = 0
    overloaded: int = 0
    refused_began_at: float = 0.0
    latency_ms: float | None = None
    limit_was_reached: bool = False
    in_flight_max: int = 0
    resumes_at: float = 0.0
    quotas: tuple[Quota, ...] = ()

    @property
    def refused(self) -> int:
        """Outcomes by which a receiver says that it got too much."""
        return self.throttled + self.overloaded


class PaceRule(Protocol):
    """A rule that learns a part of the pace."""

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed until now; the same object if nothing was learnt."""
        ...

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The limits in force now."""
        ...
