"""The limit that headers name: nothing left is a pause, little left is spread over the time left."""

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from tests.plants.pace.pace import Limits, Observed, Pace, Told

CHANGE_MIN = 0.1
"""A change that is smaller than this part is not worth a fact."""


class RateHeaders(Struct, frozen=True):
    """Obeys the tightest of the quotas of which little is left, if it is below the configured `limit`."""

    limit: float = inf

    def learn(self, pace: Pace, observed: Observed, now: float) -> Pace:
        """The pace after the headers of an answer."""
        if not observed.quotas:
            return pace
        in_force = pace.told if pace.told and now < pace.told.until else None
        little = [quota for quota in observed.quotas if quota.little and quota.reset_s > 0]
        if not little:
            return replace(pace, told=None) if in_force else pace
        tightest = min(little, key=lambda quota: (quota.left / quota.reset_s, -quota.reset_s))
        told = Told(tightest.left / tightest.reset_s, now + tightest.reset_s)
        if in_force and bool(in_force.per_second) == bool(told.per_second):
            rate_change = abs(told.per_second - in_force.per_second)
            if rate_change <= CHANGE_MIN * in_force.per_second and abs(told.until - in_force.until) < 2:
                return pace
        return replace(pace, told=told)

    def limits(self, pace: Pace, now: float) -> Limits:
        """The limit that was named, until its reset."""
        told = pace.told
        if told is None or now >= told.until:
            return Limits()
        if told.per_second == 0:
            return Limits(resumes_at=told.until, why="headers")
        return Limits(per_second=told.per_second, why="headers") if told.per_second < self.limit else Limits()
