"""The last answers to attempts that failed, for the dead letters that their events may become.

It is kept beside the state and is on no record: an answer may repeat an event's body, and not
everybody who may read the journal may see that. So it is lost with the memory of its owner.
"""

from collections.abc import Collection

from actors.machine.outcome import Answered, Failed

BODY_MAX = 1024
"""Bytes of an answer's body that a dead letter shows."""
ANSWERS_MAX = 16
"""Answers that are kept of one receiver, the newest; strict order needs one, and those owed a burial."""


class Answers:
    """The beginnings of the bodies, by the positions of their events, the newest last."""

    __slots__ = ("bodies",)

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}

    def note(self, position: int, outcome: Answered | Failed) -> None:
        """Keep the beginning of the answer to an event's last attempt, where it failed."""
        self.bodies.pop(position, None)
        if isinstance(outcome, Answered) and outcome.body and not 200 <= outcome.status < 300:
            self.bodies[position] = outcome.body[:BODY_MAX]
            if len(self.bodies) > ANSWERS_MAX:
                del self.bodies[next(iter(self.bodies))]

    def of(self, positions: Collection[int]) -> dict[int, bytes]:
        """The bodies for these events, as far as they are kept."""
        return {position: self.bodies[position] for position in positions if position in self.bodies}

    def forget(self, positions: Collection[int]) -> None:
        """Drop the bodies for events that are buried."""
        for position in positions:
            self.bodies.pop(position, None)
