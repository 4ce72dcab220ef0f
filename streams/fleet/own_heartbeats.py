"""Our own stored heartbeats: they date the heartbeats of other nodes, by our clock alone.

All are in one bucket, whose revisions grow. So a heartbeat with a lower revision than one of ours is older
than the moment at which we knew that ours was stored.
"""

import math
from collections import deque

from msgspec import Struct

KEPT_MAX = 512
"""Heartbeats that are remembered: those of some minutes, longer than any TTL."""


class StoredHeartbeat(Struct, frozen=True):
    """One of our heartbeats: its revision, when it was sent, and when it was known to be stored."""

    revision: int
    sent_at: float
    stored_at: float


class OwnHeartbeats:
    """The heartbeats of this node that are stored, oldest first."""

    def __init__(self) -> None:
        self._stored: deque[StoredHeartbeat] = deque(maxlen=KEPT_MAX)

    @property
    def last(self) -> StoredHeartbeat:
        """The last one; one with revision 0 if there is none."""
        return self._stored[-1] if self._stored else StoredHeartbeat(0, -math.inf, -math.inf)

    def add(self, heartbeat: StoredHeartbeat) -> None:
        """Add the last one. If revisions begin again, in a recreated bucket, earlier ones date nothing."""
        if heartbeat.revision <= self.last.revision:
            self._stored.clear()
        self._stored.append(heartbeat)

    def is_older(self, revision: int, before: float) -> bool:
        """True if the message with this revision was certainly stored before that time."""
        for own in reversed(self._stored):
            if own.revision <= revision:
                return False
            if own.stored_at <= before:
                return True
        return False
