"""Several rules together: each learns its part, and the lowest limit counts."""

from msgspec import Struct

from tests.plants.pace.pace import Limits, Observed, Pace, Rule


class Together(Struct, frozen=True):
    """These rules, of which none knows another; without any, nothing is learnt."""

    rules: tuple[Rule, ...] = ()

    def learn(self, pace: Pace, observed: Observed, now: float) -> Pace:
        """The pace after each rule has learnt."""
        for rule in self.rules:
            pace = rule.learn(pace, observed, now)
        return pace

    def limits(self, pace: Pace, now: float) -> Limits:
        """The lowest of all limits."""
        per_second: float | None = None
        in_flight: int | None = None
        resumes_at, why, why_in_flight = 0.0, "", ""
        for rule in self.rules:
            found = rule.limits(pace, now)
            resumes_at = max(resumes_at, found.resumes_at)
            if found.per_second is not None and (per_second is None or found.per_second < per_second):
                per_second, why = found.per_second, found.why
            if found.in_flight is not None and (in_flight is None or found.in_flight < in_flight):
                in_flight, why_in_flight = found.in_flight, found.why
        return Limits(
            per_second=per_second, in_flight=in_flight, resumes_at=resumes_at, why=why or why_in_flight
        )
