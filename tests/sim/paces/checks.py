"""The facts about paces that are in the journals."""

from actors.machine import facts as f


class Paces:
    """The times of these facts, for all receivers."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def record(self, fact: f.AnyFact) -> None:
        """A fact that is in the journal."""
        if isinstance(fact, f.PaceSet):
            self.times.append(fact.at)
