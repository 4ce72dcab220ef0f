"""The limit that headers name: nothing left is a pause, little left is spread over the time left."""

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.pace import Observed, Pace, PaceLimits, Told
from actors.machine.pace.rate_headers import Quota

RESET_MIN_S = 0.01
"""A reset that is nearer is one that is over."""
CHANGE_MIN = 0.1
"""A change that is smaller than this part is not worth a fact."""


class RateHeaders(Struct, frozen=True):
    """Obeys the tightest of the quotas of which little is left.

    It sets no limit if the configured one, `limit` with `burst`, allows less until the reset anyway.
    """

    limit: float = inf
    burst: int = 0

    def learn(self, pace: Pace, observed: Observed, now: float) -> Pace:
        """The pace after the headers of an answer."""
        if not observed.quotas:
            return pace
        in_force = pace.told if pace.told and now < pace.told.until else None
        little = [
            quota for quota in observed.quotas if quota.is_nearly_used_up and quota.reset_s >= RESET_MIN_S
        ]
        if not little:
            return replace(pace, told=None) if in_force else pace
        tightest = min(little, key=lambda quota: (_spread(quota), -quota.reset_s))
        told = Told(_spread(tightest), now + tightest.reset_s)
        if in_force and bool(in_force.per_second) == bool(told.per_second):
            rate_change = abs(told.per_second - in_force.per_second)
            if rate_change <= CHANGE_MIN * in_force.per_second and abs(told.until - in_force.until) < 2:
                return pace
        return replace(pace, told=told)

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The limit that was named, until its reset."""
        told = pace.told
        if told is None or now >= told.until:
            return PaceLimits()
        if told.per_second == 0:
            return PaceLimits(resumes_at=told.until, limited_by="headers")
        if told.per_second >= self.limit + self.burst / max(told.until - now, RESET_MIN_S):
            return PaceLimits()
        return PaceLimits(per_second=told.per_second, limited_by="headers")


def _spread(quota: Quota) -> float:
    """The attempts a second by which the quota lasts until its reset; a part of an attempt is none."""
    return quota.left / quota.reset_s if quota.left >= 1 else 0.0
