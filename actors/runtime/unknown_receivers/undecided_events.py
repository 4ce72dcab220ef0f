"""The events of unknown receivers that are to be decided, by position: which name each is for."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from actors.machine.event import Event

WAITING_MAX = 1024
"""Events whose position and name are held; of further ones only the last position is known."""


class UndecidedEvent(Struct, frozen=True, gc=False):
    """An event to be decided, without its body."""

    position: int
    receiver: str
    source: int
    malformed: bool


class UndecidedEvents:
    """The events of one shard that wait. `receivers` counts those of each receiver."""

    __slots__ = ("_by_position", "receivers")

    def __init__(self) -> None:
        self._by_position: dict[int, UndecidedEvent] = {}
        self.receivers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_position)

    def has_room(self, count: int) -> bool:
        """True if `count` further events may wait."""
        return len(self._by_position) + count <= WAITING_MAX

    @property
    def positions(self) -> list[int]:
        """The positions in ascending order."""
        return sorted(self._by_position)

    @property
    def lowest(self) -> int:
        """The lowest position; 0 where none waits."""
        return min(self._by_position, default=0)

    @property
    def highest(self) -> int:
        """The highest position; 0 where none waits."""
        return max(self._by_position, default=0)

    def add(self, receiver: str, event: Event) -> None:
        """Let an event wait, once."""
        if event.position not in self._by_position:
            undecided = UndecidedEvent(event.position, receiver, event.source, bool(event.malformed))
            self._by_position[event.position] = undecided
            self.receivers[receiver] += 1

    def drop(self, position: int) -> UndecidedEvent:
        """Let an event wait no longer."""
        dropped = self._by_position.pop(position)
        self.receivers[dropped.receiver] -= 1
        if not self.receivers[dropped.receiver]:
            del self.receivers[dropped.receiver]
        return dropped

    def clear(self) -> None:
        """Let none wait any longer."""
        self._by_position.clear()
        self.receivers.clear()

    def up_to(self, position: int) -> list[int]:
        """The positions of those that are not above `position`."""
        return [each for each in self._by_position if each <= position]

    def for_receivers(self, receivers: Sequence[str]) -> list[UndecidedEvent]:
        """The events of these receivers, in order."""
        found = [each for each in self._by_position.values() if each.receiver in receivers]
        return sorted(found, key=lambda each: each.position)

    def next(
        self, covered: Sequence[int], *, lowest_held: float, count_max: int, length_max: int
    ) -> Iterator[UndecidedEvent]:
        """Yield the first of `covered` that still wait: none above `lowest_held`."""
        length = 0
        for count, event in enumerate(filter(None, map(self._by_position.get, covered))):
            length += len(event.receiver)
            if count >= count_max or length > length_max or event.position > lowest_held:
                return
            yield event
