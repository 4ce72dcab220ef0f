"""A sender for nodes that have nothing to deliver."""

from actors.machine.outcome import Outcome
from actors.ports import Attempt, BatchAttempt


class NobodySends:
    """Fails the test at the first attempt."""

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        raise AssertionError(f"nothing was to be sent: {attempt}")
