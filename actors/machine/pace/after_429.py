"""The rate after a 429: halved, and back by a tenth of the limit for each 10 s without another one."""

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.pace import LoweredRate, Observation, Pace, PaceLimits

CUT_FACTOR = 0.5
GROWTH_TIME_S = 100.0
"""Time in which a lowered rate grows by the whole limit: a tenth in 10 s."""


class After429Rule(Struct, frozen=True):
    """Halves the rate in force, or the measured one if that is lower; once for all that was under way.

    `limit`: the configured rate; None without one: then the rate grows back to the measured one, and the
    limit ends.
    """

    limit: float | None
    rate_min: float = 0.1

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed."""
        lowered = pace.lowered
        if not observed.throttled or (lowered and observed.refused_began_at <= lowered.at):
            return pace
        started = observed.started_per_s or (0.0 if self.limit else observed.started_per_s_min)
        known = [rate for rate in (self._rate(pace, now), started) if rate]
        if not known:
            return pace
        in_force = min(known)
        limit = self.limit or in_force
        return replace(pace, lowered=LoweredRate(max(self.rate_min, CUT_FACTOR * in_force), limit, now))

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The lowered rate as it has grown until now; no limit once it is back."""
        rate = self._rate(pace, now)
        return (
            PaceLimits()
            if rate is None or rate == self.limit
            else PaceLimits(per_second=rate, limited_by="after_429")
        )

    def _rate(self, pace: Pace, now: float) -> float | None:
        if pace.lowered is None:
            return self.limit
        grown = pace.lowered.per_second + pace.lowered.limit * max(0.0, now - pace.lowered.at) / GROWTH_TIME_S
        if grown >= pace.lowered.limit:
            return self.limit
        return grown if self.limit is None else min(self.limit, grown)
