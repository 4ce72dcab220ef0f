"""Batches as their receiver sees them: it may drop a POST whose first and last number it has seen."""

from collections.abc import Callable, Sequence

from actors.machine.state import State
from actors.ports import BatchAttempt


class Batches:
    """The POSTs of several events, by receiver and numbers, each with the events that it had at first."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._events: dict[tuple[str, int, int], set[int]] = {}
        self._fail = fail

    def started(self, attempt: BatchAttempt, positions: Sequence[int], state: State) -> None:
        """Judge a POST that starts now; its owner knows that state of the receiver."""
        receiver, numbers, limits = attempt.receiver, attempt.sequences, attempt.policy.batch
        if list(numbers) != sorted(set(numbers)) or list(positions) != sorted(set(positions)):
            self._fail(f"{receiver}: a batch has the numbers {numbers} in disorder")
        size = sum(len(each.body) for each in attempt.events)
        fits = limits is not None and len(numbers) <= limits.max_events and size <= limits.max_bytes
        if not fits and len(numbers) > 1:
            self._fail(f"{receiver}: a batch of {len(numbers)} events, {size} bytes, is larger than allowed")
        before = self._events.setdefault((receiver, numbers[0], numbers[-1]), set(positions))
        if more := set(positions) - before:
            self._fail(f"{receiver}: the POST {numbers[0]}-{numbers[-1]} comes again with {more} in addition")
        self._check_company(attempt, positions, state)

    def _check_company(self, attempt: BatchAttempt, positions: Sequence[int], state: State) -> None:
        """Check that events whose last recorded POST was the same go together, and with no others."""
        failed_in = {
            each.position: each.post or ((each.sequence, each.sequence) if each.attempts else None)
            for each in state.open
        }
        settled = {each for each in positions if each <= state.frontier.position and each not in failed_in}
        posts = {failed_in.get(each) for each in positions if each not in settled}
        what = f"{attempt.receiver}: the POST {attempt.sequences}"
        if len(posts) > 1:
            self._fail(f"{what} has events that failed in {posts}")
        for post in posts - {None}:
            together = {each for each, failed in failed_in.items() if failed == post}
            if left := {each for each in together if each < positions[-1]} - set(positions):
                self._fail(
                    f"{what} leaves out the events at {left}, which failed with others of it in {post}"
                )
