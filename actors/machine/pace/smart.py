"""The rate that follows latency and refusals: up while what is sent is accepted, down where trouble begins.

- Before any trouble it is twice the proven rate, so it doubles with each observation.
- Trouble lowers it below the rate that was accepted, and it grows back along a cubic curve: quickly at
  first, flat around the rate at which the trouble began, then faster and faster (CUBIC, RFC 9438). So a
  limit that stays is seldom touched, and one that has risen is found soon. Growth is a function of time and
  needs no fact.
- The attempts in flight are bounded to a multiple of what the rate needs without load (Little's law), so
  that a receiver which becomes slow is left alone before any observation.
- If much lower rates do not make a slow receiver faster, load is not the reason: its latency is taken for
  its own, and the rate returns.
"""

from math import ceil, inf, sqrt

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.pace import Observation, Pace, PaceLimits, ProbedRate

START_RATE = 5.0
"""Attempts a second before anything is known."""
CUT_FACTOR = 0.9
"""Part of the accepted rate that is left after trouble."""
YIELD_FACTOR = 0.92
"""Part of a ceiling that is left if it is lower than the one before: another sender may have come."""
STILL_SLOW_FACTOR = 0.7
"""Part that is left if the receiver is still slow after a cut."""
BLIND_FACTOR = 0.85
"""Part that is left if a 429 is all that came since: then the limit may be one of a long time."""
RETURN_S, RETURN_ATTEMPTS = 20.0, 120.0
"""Time, and number of attempts, after which the rate is back where the trouble began; the later counts."""
GROWTH_PART = 0.3
"""Part by which the rate is above that another `RETURN_S` later."""
SLOW_FACTOR, SLOW_MS = 2.5, 10.0
"""A receiver is slow if its latency is that many times the one without load, and that much more."""
BASE_LOWER, BASE_HIGHER = 0.75, 1.33
"""A latency outside of these parts of the one without load corrects it."""
PROVEN_STEP = 1.1
"""A rate is recorded as proven if it is that many times the one before."""
SETTLE_TIME_S = 1.0
"""Refusals of attempts that began so soon after a cut say nothing new: earlier ones still wait there."""
EFFECT_TIME_S = 3.0
"""Time after which a lower rate shows in latencies."""
IN_FLIGHT_FACTOR, IN_FLIGHT_MIN = 2.5, 4
"""Attempts in flight are at most that many times those that the rate needs without load."""
FRUITLESS_PART = 0.25
"""If a receiver is still slow at this part of the former rate, load is not the reason."""


class SmartRule(Struct, frozen=True):
    """Follows the gradient of latency and refusals between `rate_min` and `rate_max`, at most `limit`."""

    limit: float
    rate_min: float = 0.1
    rate_max: float = inf

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed."""
        known = pace.probed or ProbedRate()
        if observed.refused:
            if known.ceiling and observed.refused_began_at <= known.lowered_at + SETTLE_TIME_S:
                return pace
            return replace(pace, probed=self._lowered(known, observed, now))
        if observed.latency_ms is None:
            return pace
        if known.base_ms and observed.latency_ms > SLOW_FACTOR * known.base_ms + SLOW_MS:
            learnt = self._slow(known, observed, now, observed.latency_ms)
        else:
            learnt = _undisturbed(known, observed, now, observed.latency_ms)
        return pace if learnt is known else replace(pace, probed=learnt)

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The rate in force now, and the attempts in flight that it needs."""
        known = pace.probed or ProbedRate()
        rate = self._rate(known, now)
        in_flight: int | None = None
        if known.base_ms:
            in_flight = max(IN_FLIGHT_MIN, ceil(IN_FLIGHT_FACTOR * rate * known.base_ms / 1000))
        per_second = rate if rate < self.limit else None
        return PaceLimits(
            per_second=per_second, in_flight=in_flight, limited_by="" if per_second is None else "smart",
            in_flight_by="" if in_flight is None else "smart",
        )  # fmt: skip

    def _slow(self, known: ProbedRate, observed: Observation, now: float, latency_ms: float) -> ProbedRate:
        since = now - known.at
        if since < EFFECT_TIME_S:
            return known
        if known.slow and since < RETURN_S and known.low < FRUITLESS_PART * known.before:
            return ProbedRate(
                proven=known.before, ceiling=known.before, low=CUT_FACTOR * known.before, at=now,
                lowered_at=now, before=known.before, base_ms=latency_ms,
            )  # fmt: skip
        return replace(self._lowered(known, observed, now), slow=True)

    def _lowered(self, known: ProbedRate, observed: Observation, now: float) -> ProbedRate:
        # A rate that was accepted before is not too high just because little was sent since, nor is the one
        # to begin with, as long as there was no trouble.
        proven = known.proven if known.ceiling else max(known.proven, START_RATE)
        in_force = min(self._rate(known, now), max(observed.started_per_s, proven))
        accepted = observed.accepted_per_s or CUT_FACTOR * in_force
        again = known.ceiling > 0 and now - known.at < RETURN_S
        if again and observed.throttled == observed.answers:
            ceiling = BLIND_FACTOR * known.ceiling
        elif again:
            ceiling = max(CUT_FACTOR * known.ceiling, min(accepted, known.ceiling))
        else:
            ceiling = min(in_force, max(CUT_FACTOR * proven, accepted))
            if observed.refused and ceiling < known.ceiling:
                ceiling *= YIELD_FACTOR
        ceiling = max(self.rate_min, ceiling)
        cut = CUT_FACTOR if observed.refused or not again else STILL_SLOW_FACTOR
        return ProbedRate(
            proven=ceiling, ceiling=ceiling, low=max(self.rate_min, cut * min(in_force, accepted, ceiling)),
            at=max(now, observed.resumes_at), lowered_at=now, before=known.before if again else ceiling,
            base_ms=known.base_ms,
        )  # fmt: skip

    def _rate(self, known: ProbedRate, now: float) -> float:
        if not known.ceiling:
            rate = max(START_RATE, 2 * known.proven)
        else:
            return_s = max(RETURN_S, RETURN_ATTEMPTS / known.ceiling)
            since = max(0.0, now - known.at) - return_s
            if since < 0:
                rate = known.ceiling + (known.ceiling - known.low) * (since / return_s) ** 3
            else:
                rate = min(2 * known.proven, known.ceiling * (1 + GROWTH_PART * (since / RETURN_S) ** 3))
        return min(self.limit, self.rate_max, max(self.rate_min, rate))


def _undisturbed(known: ProbedRate, observed: Observation, now: float, latency_ms: float) -> ProbedRate:
    """Learns whether a higher rate is proven, and whether the latency without load is another one."""
    proven, base_ms = known.proven, known.base_ms or latency_ms
    # Only soon after a cut is the load known to be low, so only then may the latency without load rise.
    low = known.ceiling > 0 and EFFECT_TIME_S < now - known.at < RETURN_S / 2
    if latency_ms < BASE_LOWER * base_ms or (low and latency_ms > BASE_HIGHER * base_ms):
        base_ms = sqrt(base_ms * latency_ms)
    accepted = min(observed.accepted_per_s, observed.started_per_s)
    if accepted > PROVEN_STEP * proven:
        proven = accepted
    if (proven, base_ms) == (known.proven, known.base_ms):
        return known
    return replace(known, proven=proven, base_ms=base_ms)
