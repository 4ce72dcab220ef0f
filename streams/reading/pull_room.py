"""The room in a connection for messages that are requested; all pullers of the connection share it.

nats-server ends a connection for which it has to keep more than 64 MiB (its max_pending), and with it all
leases of the node. So a request also has a limit in bytes, a share of `ROOM_BYTES`. A message that is larger
than the share is requested alone, and only a few of them at a time.
"""

import asyncio

ROOM_BYTES = 12 << 20
"""For all pullers. Each may have requested twice its share for a moment, and backlogs are read besides."""
REQUEST_BYTES_MAX = 256 << 10
"""The largest share: the first pullers of a node ask before the others are there."""

LARGE_AT_ONCE = 4
"""Messages that are requested alone at a time; each has at most what the server accepts, usually 1 MiB."""


class PullRoom:
    """The room of one connection. `large` is held for a request for one large message."""

    def __init__(self) -> None:
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._pullers = 0

    def enter(self) -> None:
        """Give a puller a share from now on."""
        self._pullers += 1

    def leave(self) -> None:
        """Take the share of a puller back."""
        self._pullers -= 1

    @property
    def share(self) -> int:
        """Bytes that one puller may request."""
        return min(REQUEST_BYTES_MAX, ROOM_BYTES // self._pullers)
