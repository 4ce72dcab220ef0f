"""Flow control: a shard requests as many messages as it can work on, and looks beyond slow receivers.

A message that finds its mailbox full costs twice: it was handed out for nothing, and is read from the stream
when its turn comes. If the node itself is slow, that would happen to nearly every message. So a shard that
holds `UNSETTLED_PAUSE_AT` messages asks for no more until half of them are done. But these may be for slow
receivers, and others must not wait for them: after `ASK_PAUSE_S` the shard asks for another batch. A node
whose event loop is late even for that has no time to spare; then the pause is `SATURATED_ASK_PAUSE_S`, during
which the mailboxes of slow receivers fill up and these receivers are parked.

Measured with `angarium bench deliver`: docs/decisions/ask-for-what-can-be-done.md.
"""

import asyncio
from collections.abc import Callable

UNSETTLED_PAUSE_AT = 64
"""Number of messages that a shard holds when it stops asking for more."""
ASK_PAUSE_S = 0.01
"""Pause before it asks for another batch although it still holds as many."""
SATURATED_ASK_PAUSE_S = 1.0
"""The same pause if the node has no time to spare."""


class FlowControl:
    """Flow control of one shard: `hold` stops or restarts requests; `saturated` asks whether the node is."""

    __slots__ = ("_handle", "_hold", "_saturated", "_until")

    def __init__(self, hold: Callable[[bool], None], saturated: Callable[[], bool]) -> None:
        self._hold = hold
        self._saturated = saturated
        self._handle: asyncio.TimerHandle | None = None
        self._until = 0.0

    def came(self, waiting: int) -> None:
        """A message came; `waiting` is how many wait now."""
        if waiting >= UNSETTLED_PAUSE_AT and self._handle is None:
            loop = asyncio.get_running_loop()
            self._until = loop.time() + SATURATED_ASK_PAUSE_S
            self._hold(True)
            self._wait(loop)

    def done(self, waiting: int) -> None:
        """Ask for more if enough was done; `waiting` is how many still wait."""
        if self._handle is not None and waiting * 2 <= UNSETTLED_PAUSE_AT:
            self.stop()
            self._hold(False)

    def stop(self) -> None:
        """Wait for nothing more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + ASK_PAUSE_S
        self._handle = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        if self._saturated() and now < self._until:
            self._wait(loop)
        else:
            self._handle = None
            self._hold(False)
