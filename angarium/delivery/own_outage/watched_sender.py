"""A sender before that of a node: it tells the watch what comes of each attempt."""

from typing import assert_never

from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.ports import Attempt, BatchAttempt, Sender
from angarium.delivery.own_outage.watch import OutageWatch


class WatchedSender:
    """A `Sender` whose failures count as this node's while it reaches no host."""

    def __init__(self, sender: Sender, watch: OutageWatch) -> None:
        self._sender = sender
        self._watch = watch

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        """See `Sender`."""
        outcome = await self._sender.send(attempt)
        match outcome:
            case Answered():
                if self._watch.doubts:
                    self._watch.answered(attempt.receiver, attempt.policy)
                return outcome
            case Failed():
                return await self._watch.judged(attempt.receiver, attempt.policy, outcome)
            case NotSent():
                return outcome
            case _:
                assert_never(outcome)
