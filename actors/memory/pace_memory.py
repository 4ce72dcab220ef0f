"""The memory of a receiver whose pace is learnt: what is measured, and when the last attempt was due.

It begins with the first answer that teaches something, or with the first attempt if the configuration asks
for a measurement. Most receivers never have it.
"""

from actors.configuration.policy import Adaptive
from actors.machine.outcome import Answered, Failed
from actors.machine.pace.pace import Observation
from actors.memory.pace_measurement import SPAN_MIN_S, PaceMeasurement

LATE_MAX_S = 0.01
"""Lateness of an attempt under a learnt rate that the next one makes up for."""


class PaceMemory:
    """Measures one receiver, and observes it so seldom that at most one fact a second follows.

    - `paced_at`: when the last attempt was due under a learnt rate.
    - `is_paced`: there was a learnt rate when the last attempt started.
    """

    __slots__ = ("_fact_due_at", "_measurement", "is_paced", "paced_at")

    def __init__(self, paced_at: float = 0.0) -> None:
        self.paced_at = paced_at
        self.is_paced = False
        self._measurement = PaceMeasurement()
        self._fact_due_at = float("-inf")

    def start(self, now: float, in_flight: int, per_second: float | None) -> None:
        """Count an attempt that starts, the last of so many in flight; `per_second` is the learnt rate."""
        self._measurement.start(now, in_flight)
        self.is_paced = per_second is not None
        if per_second is None:
            self.paced_at = now
        else:
            spacing_s = 1 / per_second
            # A wake-up that is a little late does not lower the rate.
            self.paced_at = max(self.paced_at + spacing_s, now - min(LATE_MAX_S, spacing_s))

    def reach_limit(self) -> None:
        """Note that a learnt limit holds attempts back."""
        self._measurement.reach_limit()

    def end(
        self, adaptive: Adaptive, outcome: Answered | Failed, now: float, resumes_at: float
    ) -> tuple[Observation, ...]:
        """Count the outcome of an attempt. The observations that are due now, if any.

        What lowers a limit counts at once, even if the next fact is not due for up to a second; then the fact
        after it waits for longer.
        """
        due_in_s, observed = self._fact_due_at - now, tuple[Observation, ...]()
        if adaptive.headers and (quotas := self._measurement.quotas_to_observe(outcome, now)):
            is_empty = not all(quota.left >= 1 for quota in quotas)
            if due_in_s <= (SPAN_MIN_S if is_empty else 0):
                observed = (Observation(quotas=quotas, resumes_at=resumes_at),)
        if self._measurement.end(outcome, now) and (
            observed or due_in_s <= (SPAN_MIN_S if self._measurement.is_refused else 0)
        ):
            observed += (self._measurement.observe(now, resumes_at),)
        return observed

    def recorded(self, now: float) -> None:
        """Note that a fact about the pace was recorded."""
        self._fact_due_at = max(now, self._fact_due_at) + SPAN_MIN_S
