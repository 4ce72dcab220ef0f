"""The confirmed states that no snapshot holds: those that changed, and those that are being written.

A write may fail after newer facts were confirmed. Then its states are unsaved again, unless they have changed
meanwhile.
"""

from collections.abc import Set

from actors.machine.state import State


class UnsavedStates:
    """The confirmed states that no snapshot holds.

    - `changed`: those that are not being written, by receiver.
    """

    __slots__ = ("_writing", "changed")

    def __init__(self) -> None:
        self.changed: dict[str, State] = {}
        self._writing: dict[str, State] = {}

    @property
    def receivers(self) -> Set[str]:
        """The receivers that have such a state."""
        return self.changed.keys() | self._writing.keys()

    def get(self, receiver: str) -> State | None:
        """The receiver's confirmed state, if no snapshot holds it yet."""
        return self.changed.get(receiver) or self._writing.get(receiver)

    def take(self) -> dict[str, State]:
        """The states to be written now; `written` or `failed` follows."""
        self.changed, self._writing = {}, self.changed
        return self._writing

    def written(self) -> dict[str, State]:
        """Forget the states that were taken, since the snapshots hold them, and return them."""
        written, self._writing = self._writing, {}
        return written

    def take_back(self) -> None:
        """Take the states back, since the snapshots may not hold them."""
        self.changed, self._writing = self._writing | self.changed, {}
