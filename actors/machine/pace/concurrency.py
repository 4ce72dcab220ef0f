"""The number of attempts in flight: halved by refusals, one more after each clean span that used it up."""

from msgspec import Struct
from msgspec.structs import replace

from actors.machine.pace.pace import InFlightLimit, Observation, Pace, PaceLimits


class ConcurrencyRule(Struct, frozen=True):
    """Refusals halve the number, once for all under way; a clean span in which it was used up adds one."""

    concurrency: int

    def learn(self, pace: Pace, observed: Observation, now: float) -> Pace:
        """The pace after what was observed."""
        known = pace.in_flight or InFlightLimit(float(self.concurrency))
        if observed.refused:
            if observed.refused_began_at <= known.at:
                return pace
            return replace(
                pace, in_flight=InFlightLimit(max(1.0, min(known.limit, self.concurrency) / 2), now)
            )
        if not observed.limit_was_reached or known.limit >= self.concurrency:
            return pace
        return replace(pace, in_flight=InFlightLimit(min(float(self.concurrency), known.limit + 1), known.at))

    def limits(self, pace: Pace, now: float) -> PaceLimits:
        """The number that may be in flight."""
        known = pace.in_flight
        if known is None or known.limit >= self.concurrency:
            return PaceLimits()
        return PaceLimits(in_flight=max(1, int(known.limit)), in_flight_by="concurrency")
