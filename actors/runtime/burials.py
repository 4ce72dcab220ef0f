"""The burials of one receiver: recorded dead letters, which are published until they are stored."""

from actors.machine import commands as c
from actors.machine.facts import Burial
from actors.memory.last_answers import LastAnswers
from actors.runtime.live_state import LiveState


class Burials:
    """Buries some dead letters at a time, with the answers to their last attempts; `under_way` meanwhile."""

    __slots__ = ("answers", "under_way")

    def __init__(self) -> None:
        self.answers = LastAnswers()
        self.under_way = False

    async def bury(self, live: LiveState, burials: tuple[Burial, ...]) -> None:
        """Publish these dead letters, and record that they are stored."""
        positions = [each.position for each in burials]
        answers = self.answers.texts_of(positions)
        await live.environment.dead_letters.bury(live.receiver, burials, answers)
        self.under_way = False
        self.answers.forget(positions)
        if not live.environment.stopped:
            live.record(c.RecordBuried(tuple(positions)), live.environment.clock.now())
