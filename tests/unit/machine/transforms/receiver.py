"""A receiver whose transform changes between the attempts of its events."""

from actors.configuration.transform import Transform
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.event import Event
from tests.unit.worlds.values import Actor, answer, policy

KEY, OTHER_KEY = "psk_" + "b2xk" * 8, "psk_" + "bmV3" * 8
DROP, PSEUDONYMS = Transform(drop=("/a",)), Transform(pseudonymize=("/b",))


class Receiver(Actor):
    """A relaxed receiver, so that several events may be open."""

    def __init__(self) -> None:
        super().__init__(policy(order="relaxed"))
        self.revision = 10

    def has(self, transform: Transform | None, key: str | None = KEY) -> list[f.Fact]:
        """Another transform is put, under the next revision."""
        self.revision += 1
        self.policy = policy(order="relaxed", transform=transform, pseudonym_key=key)
        return self.do(c.Adopt(0, 1, self.revision))

    def fails(self, given: Event) -> f.AttemptFailed:
        fact = self.ends(given, answer(500))[0]
        assert isinstance(fact, f.AttemptFailed)
        return fact

    def transform_of(self, given: Event) -> int:
        (entry,) = [each for each in self.state.open if each.position == given.position]
        return entry.transform
