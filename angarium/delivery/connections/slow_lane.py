"""The slow lane: receivers that took long share half of the connections; the rest is for quick ones.

A receiver that hangs holds a connection, and so a descriptor, for its whole timeout. Without the lane, enough
of them would hold all connections, and receivers that answer in milliseconds would queue behind them. The
last attempt shows whether a receiver is slow; a new receiver, or one with a new URL, counts as quick. Another
receiver may have the same URL, and a timeout that makes it slow.
"""

from angarium.delivery.connections.fair_slots import FairSlots, SlotTurn
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.http_exchange.target import Target

SLOW_EXCHANGE_S = 1.0
"""An exchange that takes this long, or times out, makes its receiver slow; any other one makes it quick
again."""

SLOW_RECEIVERS_MAX = 65_536
"""Slow receivers that are remembered, some 400 bytes each; those that became slow first are forgotten
first."""


class SlowLane:
    """Knows the slow receivers, and allows them half of the connections."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._known: dict[tuple[str, Target], None] = {}
        self._turns = FairSlots(_half(limits.connections_max), _half(limits.per_host_max))

    def has(self, receiver: str, target: Target) -> bool:
        """True if the receiver was slow there."""
        return bool(self._known) and (receiver, target) in self._known

    def learn(self, receiver: str, target: Target, *, slow: bool) -> None:
        """Remember whether an exchange was slow; the time that it waited for a connection does not count."""
        if not slow:
            if self._known:
                self._known.pop((receiver, target), None)
        elif (receiver, target) not in self._known:
            if len(self._known) == SLOW_RECEIVERS_MAX:
                del self._known[next(iter(self._known))]
            self._known[receiver, target] = None

    def turn(self, target: Target, receiver: str) -> SlotTurn:
        """The turn of an attempt in the lane."""
        return self._turns.turn((target.host, target.port), receiver)


def _half(count: int) -> int:
    return max(1, count // 2)
