"""The bounds of one receiver: whether an attempt may start, and which events may have been posted."""

from actors.machine.state import UNCONFIRMED_MAX, UNRECORDED_MAX
from actors.memory.cursor import Cursor
from actors.memory.unacked import Unacked
from actors.runtime.live_state import LiveState


class PostingBounds:
    """The bounds that the shard, and the owners before this one, set to one receiver."""

    __slots__ = ("_cursor", "_live", "_unacked")

    def __init__(self, live: LiveState, cursor: Cursor, unacked: Unacked) -> None:
        self._live = live
        self._cursor = cursor
        self._unacked = unacked

    @property
    def may_start(self) -> bool:
        """True if nothing in the shard forbids an attempt."""
        live = self._live
        return live.unconfirmed < UNCONFIRMED_MAX and live.host.may_start()

    @property
    def epoch(self) -> int:
        """The epoch of the shard's present owner."""
        return self._live.host.epoch

    @property
    def released_to(self) -> int:
        """The position up to which no event belongs to a new receiver."""
        return self._live.host.released_to

    @property
    def posted_to_max(self) -> int:
        """The highest position that an owner can have posted: none can have posted beyond it."""
        host, cursor = self._live.host, self._cursor
        return max(host.claim_position, host.bindings.received, cursor.read_to, cursor.seen)

    @property
    def posted_to(self) -> int:
        """The last position that an owner that vanished may have posted unrecorded; 0 if there is none."""
        host, unclean = self._live.host, self._live.host.unclean
        may_have = host.may_have_posted(self._live.state, self._unacked.first)
        return unclean.position if unclean and may_have else 0

    @property
    def unrecorded(self) -> int:
        """The count of numbers beyond the frontier that an owner that vanished may have given."""
        beyond = self.posted_to - self._live.state.frontier.position
        return max(0, min(beyond, UNRECORDED_MAX))
