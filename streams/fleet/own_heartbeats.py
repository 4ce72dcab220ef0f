"""Our own stored heartbeats: they date the heartbeats of other nodes, by our clock alone.

All are in one bucket, whose revisions grow. So a heartbeat with a lower revision than one of ours is older
than the moment at which we knew that ours was stored.
"""

import math
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from streams.installation.topology import Names
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses

ALL_NODES = "*"
KEPT_MAX = 512
APART_MIN_S = 0.5
"""A node sends many heartbeats while shards change hands: of those in such a time one or two are remembered.
So all together are those of two minutes at least, longer than any TTL."""


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
        elif len(self._stored) > 1 and heartbeat.stored_at < self._stored[-2].stored_at + APART_MIN_S:
            self._stored.pop()
        self._stored.append(heartbeat)

    def is_older(self, revision: int, before: float) -> bool:
        """True if the message with this revision was certainly stored before that time."""
        for own in reversed(self._stored):
            if own.revision <= revision:
                return False
            if own.stored_at <= before:
                return True
        return False


async def read_heartbeats(
    js: JetStream, names: Names, own: Callable[[], StoredHeartbeat]
) -> tuple[Page, float]:
    """The last message of each node, from a replica that has our own; and the time as of which that is.

    Raises `Unavailable`.
    """
    pauses = Pauses(js)
    while True:
        mine = own()
        page = await js.last_of(names.nodes, [names.node(ALL_NODES)])
        if page.up_to >= mine.revision:
            return page, mine.sent_at
        await pauses.wait()
