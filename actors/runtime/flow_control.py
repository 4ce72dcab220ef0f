"""Flow control: a shard requests as many messages as it can work on, and looks beyond slow receivers.

A message that finds its mailbox full costs twice: it was handed out for nothing, and is read from the stream
when its turn comes. If the node itself is slow, that would happen to nearly every message. So a shard that
holds `UNSETTLED_PAUSE_AT` messages asks for no more until half of them are done. But these may be for slow
receivers, and others must not wait for them: after `ASK_PAUSE_S` the shard requests more messages. A
node whose event loop is late even for that has no time to spare; then the pause is `SATURATED_ASK_PAUSE_S`,
during which the mailboxes of slow receivers fill up and these receivers are parked.

The first message of each receiver does not count, since it waits for no other one: thousands of receivers may
begin to hang at once, and others of their shard must not wait until all of these have been sent a request.
Messages that are sent in one POST count as one. If a node holds messages for more than `HOLDERS_MAX`
receivers, the first ones count as well.

Measured with `angarium bench deliver`: docs/decisions/flow-control.md.
"""

import asyncio
from collections.abc import Callable

from actors.memory.unacked import NodeHolders

UNSETTLED_PAUSE_AT = 64
"""Number of messages that a shard holds when it stops asking for more."""
ASK_PAUSE_S = 0.01
"""Pause before it requests more messages although it still holds as many."""
SATURATED_ASK_PAUSE_S = 1.0
"""Pause between requests if the node has no time to spare."""
HOLDERS_MAX = 2500
"""Number of receivers of a node whose first messages do not count; each takes a connection."""


class FlowControl:
    """Flow control of one shard.

    `set_pulling_paused` stops or restarts the requests for messages; `saturated` asks whether the node is.

    Its methods take how many messages the shard holds, and for how many receivers.
    """

    __slots__ = ("_handle", "_holder_count", "_node", "_saturated", "_set_pulling_paused", "_until")

    def __init__(
        self, set_pulling_paused: Callable[[bool], None], saturated: Callable[[], bool], node: NodeHolders
    ) -> None:
        self._set_pulling_paused = set_pulling_paused
        self._node = node
        self._holder_count = 0
        self._saturated = saturated
        self._handle: asyncio.TimerHandle | None = None
        self._until = 0.0

    def message_arrived(self, unacked_count: int, holder_count: int) -> None:
        """Pause requests if this message exceeds the limit."""
        self._count(holder_count)
        if self._handle is None and self._waiting(unacked_count, holder_count) >= UNSETTLED_PAUSE_AT:
            loop = asyncio.get_running_loop()
            self._until = loop.time() + SATURATED_ASK_PAUSE_S
            self._set_pulling_paused(True)
            self._wait(loop)

    def attempt_ended(self, unacked_count: int, holder_count: int) -> None:
        """Ask for more if enough was done."""
        if self._handle is not None:
            self._count(holder_count)
            if self._waiting(unacked_count, holder_count) * 2 <= UNSETTLED_PAUSE_AT:
                self._cancel()
                self._set_pulling_paused(False)

    def stop(self) -> None:
        """Cancel the pause, and hold nothing."""
        self._count(0)
        self._cancel()

    def _count(self, holder_count: int) -> None:
        self._node.receiver_count += holder_count - self._holder_count
        self._holder_count = holder_count

    def _waiting(self, unacked_count: int, holder_count: int) -> int:
        """The number of messages that wait behind another one of their receiver.

        All messages count if the node holds some for more than `HOLDERS_MAX` receivers.
        """
        return unacked_count - holder_count if self._node.receiver_count <= HOLDERS_MAX else unacked_count

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + ASK_PAUSE_S
        self._handle = loop.call_at(due, self._release_or_wait, loop, due)

    def _release_or_wait(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        if self._saturated() and now < self._until:
            self._wait(loop)
        else:
            self._handle = None
            self._set_pulling_paused(False)
