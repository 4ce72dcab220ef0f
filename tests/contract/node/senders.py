"""Senders for nodes whose deliveries are not what a test is about."""

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt


class NobodySends:
    """Fails the test at the first attempt."""

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        raise AssertionError(f"nothing was to be sent: {attempt}")


class AnswersAll:
    """Answers each attempt with 204, and remembers to which URL it went."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self.urls.append(attempt.policy.url)
        return Answered(status=204, latency_ms=1.0)
