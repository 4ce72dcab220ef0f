"""How far back a shard still needs its stream: what is settled may be purged, and nothing that is not.

An actor whose events lie in the stream alone knows that they lie beyond its frontier, and not where. A
receiver that had nothing for a week and is down today would seem to need all of that week. So whoever looks
after the stream finds out where the oldest really lies, and it is remembered here.
"""

from collections.abc import Iterable

from msgspec import Struct

from actors.state import State


class Needed(Struct, frozen=True):
    """The lowest position that is needed, and whose it is: nobody's where messages are only not released yet.

    Where it is not `exact`, the oldest event of the receiver lies there or anywhere beyond.
    """

    position: int
    receiver: str = ""
    exact: bool = True


class Needs:
    """Of the actors of one shard. What was found out stays true, since only newer events are stored."""

    def __init__(self) -> None:
        self._oldest: dict[str, int] = {}

    def found(self, receiver: str, position: int) -> None:
        """The first event of the receiver beyond its frontier lies there."""
        self._oldest[receiver] = position

    def lowest(self, floor: int, states: Iterable[State]) -> Needed:
        """Of these actors, and of the messages above `floor`."""
        found = [needed for state in states if (needed := self._of(state)) is not None]
        return min((Needed(floor + 1), *found), key=lambda needed: needed.position)

    def _of(self, state: State) -> Needed | None:
        position = state.needed_position
        if position is None:
            self._oldest.pop(state.receiver, None)
            return None
        if not state.parked or position <= state.frontier.position:
            return Needed(position, state.receiver)
        oldest = self._oldest.get(state.receiver, 0)
        return Needed(max(position, oldest), state.receiver, oldest >= position)
