"""The pauses before a worker is started again: longer each time, until it has run for a while."""

RESTART_PAUSE_MIN_S = 0.5
RESTART_PAUSE_MAX_S = 30.0
STEADY_AFTER_S = 60.0
"""Run time after which the pauses are short again."""


class RestartPauses:
    """The pauses of one worker."""

    def __init__(self) -> None:
        self._next_s = RESTART_PAUSE_MIN_S

    def after(self, ran_s: float) -> float:
        """The pause after a process that ran so long."""
        if ran_s >= STEADY_AFTER_S:
            self._next_s = RESTART_PAUSE_MIN_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, RESTART_PAUSE_MAX_S)
        return pause_s
