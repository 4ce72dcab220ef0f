"""Successes that are repeated: only after a crash, and not often."""

from collections.abc import Callable

from actors.machine.facts import Claimed

REPEATS_MAX = 256
"""Attempts that a receiver may see again after a crash."""


class Repeats:
    """Which events a receiver has taken, each under the epoch of the owner that got the answer."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._taken: dict[tuple[str, int], int] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._fail = fail

    def taken(self, receiver: str, position: int, epoch: int) -> None:
        """The owner has got a 2xx for the event."""
        self._taken[receiver, position] = epoch

    def is_taken(self, receiver: str, position: int) -> bool:
        """True if an owner has got a 2xx for the event."""
        return (receiver, position) in self._taken

    def started(self, receiver: str, position: int, claimed: Claimed) -> None:
        """Judge an event whose attempt starts now, under this claim."""
        taken_under = self._taken.get((receiver, position))
        if taken_under is None:
            return
        count = self._counts.get((receiver, claimed.unclean_epoch), 0) + 1
        self._counts[receiver, claimed.unclean_epoch] = count
        what = f"{receiver}: the event at {position}, taken under epoch {taken_under}, is repeated"
        if claimed.unclean_epoch <= taken_under:
            self._fail(f"{what}, and no owner has vanished since")
        if count > REPEATS_MAX:
            self._fail(f"{what}, as {count - 1} others after the same crash")
