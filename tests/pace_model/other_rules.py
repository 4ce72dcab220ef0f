"""Two more ways to learn the number of attempts in flight, to compare the product's with."""

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.pace import InFlightLimit, Observation, Pace, PaceLimits

START = 4.0
"""Attempts in flight before a latency is known."""
WAITING_MIN, WAITING_MAX = 3.0, 6.0
"""TCP Vegas: it grows while fewer seem to wait, and shrinks while more do."""


class LatencyGradient(Struct, frozen=True):
    """The number follows the ratio of the long-term latency to the present one (Gradient2 of Netflix)."""

    concurrency: int
    tolerance: float = 1.5

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed."""
        known = pace.in_flight or InFlightLimit(START)
        if observed.refused and observed.refused_began_at > known.at:
            return replace(pace, in_flight=InFlightLimit(max(1.0, known.limit * 0.9), now, known.base_ms))
        latency = observed.latency_ms
        if latency is None or observed.refused:
            return pace
        base = known.base_ms * 0.95 + latency * 0.05 if known.base_ms else latency
        base = base * 0.95 if base > 2 * latency else base
        gradient = max(0.5, min(1.0, self.tolerance * base / latency))
        limit = known.limit
        if observed.in_flight_max >= limit / 2:
            limit = 0.8 * limit + 0.2 * (limit * gradient + START)
        limit = min(float(self.concurrency), max(1.0, limit))
        return replace(pace, in_flight=InFlightLimit(limit, known.at, base))

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The number that may be in flight."""
        return _limits(pace.in_flight or InFlightLimit(START), self.concurrency)


class FewWaiting(Struct, frozen=True):
    """The number grows by one until a few attempts seem to wait, by the lowest latency so far (TCP Vegas)."""

    concurrency: int

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed."""
        known = pace.in_flight or InFlightLimit(START)
        if observed.refused and observed.refused_began_at > known.at:
            return replace(pace, in_flight=InFlightLimit(max(1.0, known.limit * 0.75), now, known.base_ms))
        latency = observed.latency_ms
        if latency is None or observed.refused:
            return pace
        base = min(known.base_ms or latency, latency)
        waiting, limit = known.limit * (1 - base / latency), known.limit
        if waiting < WAITING_MIN and observed.in_flight_max >= limit / 2:
            limit = min(float(self.concurrency), limit + 1)
        elif waiting > WAITING_MAX:
            limit = max(1.0, limit - 1)
        if (limit, base) == (known.limit, known.base_ms):
            return pace
        return replace(pace, in_flight=InFlightLimit(limit, known.at, base))

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The number that may be in flight."""
        return _limits(pace.in_flight or InFlightLimit(START), self.concurrency)


def _limits(known: InFlightLimit, concurrency: int) -> PaceLimits:
    if known.limit >= concurrency:
        return PaceLimits()
    return PaceLimits(in_flight=max(1, int(known.limit)), in_flight_by="concurrency")
