"""Retention: the lowest position that a shard still needs, so that only settled messages are purged.

An actor whose events are only in the stream knows that they are beyond its frontier, but not where. A
receiver that got nothing for a week and is down today would seem to need all of that week. So the purge of
the stream looks up the position of its oldest event, and this module remembers it.
"""

from heapq import heapify, heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.state import State

OUTDATED_MAX = 1024
"""Outdated entries are dropped once there are this many more of them than valid ones."""


class NeededPosition(Struct, frozen=True):
    """The lowest position that is needed, and its receiver (empty if messages are just not released yet).

    If it is not `exact`, the receiver's oldest event is there or anywhere beyond.
    """

    position: int
    receiver: str = ""
    exact: bool = True

    def raised(self, lowest: "NeededPosition") -> "NeededPosition":
        """The `lowest` that is found now, but at no lower position than this."""
        return replace(lowest, position=max(self.position, lowest.position))


class Retention:
    """The positions that the actors of one shard need according to their confirmed states.

    They are kept in order as states change, so that the lowest is found without looking at all actors.
    """

    def __init__(self) -> None:
        self._oldest: dict[str, int] = {}
        self._needed: dict[str, NeededPosition] = {}
        self._lowest: list[tuple[int, str]] = []

    def update(self, state: State) -> None:
        """Take the state of an actor that was loaded, or has changed."""
        needed, receiver = self._needed_by(state), state.receiver
        if needed is None:
            self._needed.pop(receiver, None)
        elif self._needed.get(receiver) != needed:
            self._keep(needed)

    def note_oldest(self, receiver: str, position: int) -> None:
        """Remember the position of the receiver's first event beyond its frontier.

        It stays true, since only newer events are stored.
        """
        self._oldest[receiver] = position
        needed = self._needed.get(receiver)
        if needed is not None and not needed.exact and position >= needed.position:
            self._keep(NeededPosition(position, receiver))

    def lowest(self, floor: int) -> NeededPosition:
        """The lowest position that an actor, or a message above `floor`, still needs."""
        lowest = self._lowest
        while lowest:
            position, receiver = lowest[0]
            needed = self._needed.get(receiver)
            if needed is not None and needed.position == position:
                return needed if position <= floor else NeededPosition(floor + 1)
            heappop(lowest)
        return NeededPosition(floor + 1)

    def below(self, position: int) -> list[str]:
        """The receivers that need a message below that position."""
        return [each.receiver for each in self._needed.values() if each.position < position]

    def _keep(self, needed: NeededPosition) -> None:
        self._needed[needed.receiver] = needed
        heappush(self._lowest, (needed.position, needed.receiver))
        if len(self._lowest) > 2 * len(self._needed) + OUTDATED_MAX:
            self._lowest = [(each.position, each.receiver) for each in self._needed.values()]
            heapify(self._lowest)

    def _needed_by(self, state: State) -> NeededPosition | None:
        position = state.needed_position
        if position is None:
            self._oldest.pop(state.receiver, None)
            return None
        # Unknown receivers share no subject in which the first event could be looked up.
        if not state.parked or position <= state.frontier.position or state.receiver == UNKNOWN_RECEIVERS:
            return NeededPosition(position, state.receiver)
        oldest = self._oldest.get(state.receiver, 0)
        return NeededPosition(max(position, oldest), state.receiver, oldest >= position)
