"""A sender in memory, which checks that no receiver has more attempts in flight than its order allows."""

import asyncio
from collections.abc import Callable

from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.ports import Attempt, BatchAttempt
from tests.unit.worlds.values import answer


class Sender:
    """Answers after `latency_s` with what `reply` says; the default is 200."""

    def __init__(self) -> None:
        self.latency_s = 0.001
        self.reply: Callable[[Attempt], Outcome] = lambda _: answer(200)
        self.reply_to_batch: Callable[[BatchAttempt], Outcome] = lambda _: answer(200)
        self.made: list[Attempt] = []
        self.batches: list[BatchAttempt] = []
        self.times: list[float] = []
        self.in_flight: dict[str, set[int]] = {}
        self.posts_in_flight: dict[str, set[tuple[int, ...]]] = {}
        self.widest = 0

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        if not attempt.may_start():
            return NotSent(why="the lease is over")
        if isinstance(attempt, BatchAttempt):
            return await self._send_batch(attempt)
        position, in_flight = attempt.event.position, self.in_flight.setdefault(attempt.receiver, set())
        if attempt.sequence is not None:
            width = 1 if attempt.policy.order == "strict" else attempt.policy.concurrency
            assert len(in_flight) < width
            assert position not in in_flight
            in_flight.add(position)
            self.widest = max(self.widest, len(in_flight))
        self.made.append(attempt)
        self.times.append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            in_flight.discard(position)
        return self.reply(attempt)

    async def _send_batch(self, attempt: BatchAttempt) -> Outcome:
        positions = {each.position for each in attempt.events}
        posts = self.posts_in_flight.setdefault(attempt.receiver, set())
        in_flight = self.in_flight.setdefault(attempt.receiver, set())
        assert len(posts) < (1 if attempt.policy.order == "strict" else attempt.policy.concurrency)
        assert not positions & in_flight
        in_flight |= positions
        posts.add(attempt.sequences)
        self.batches.append(attempt)
        self.times.append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            in_flight -= positions
            posts.discard(attempt.sequences)
        return self.reply_to_batch(attempt)

    def answers(self, *statuses: int | Answered | Failed) -> None:
        """Answer with these, one by one; then with 200 forever."""
        left = list(statuses)

        def reply(_: Attempt | BatchAttempt) -> Outcome:
            status = left.pop(0) if left else 200
            return answer(status) if isinstance(status, int) else status

        self.reply = self.reply_to_batch = reply

    @property
    def numbers(self) -> list[int | None]:
        return [each.sequence for each in self.made]

    @property
    def positions(self) -> list[int]:
        return [each.event.position for each in self.made]
