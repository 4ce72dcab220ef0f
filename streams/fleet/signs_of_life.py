"""The last signs of life of nodes and of their processes, and which of them are silent.

All times are by the clock of this node that also runs during sleep; the caller says what time it is.
"""

import math
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from streams.fleet.lease import LEASE_MARGIN_S
from streams.journal.claim import Owner

FORGET_DEAD_AFTER_S = 3600.0
"""Time after which a dead node whose key is gone is forgotten."""


class SignOfLife(Struct, frozen=True):
    """The last sign of life of a process: a heartbeat or a claim, or the moment from which it is watched.

    - `revision`: that of the heartbeat in the bucket; None if nothing was read from there.
    - `since`: when it first reached us.
    - `ttl_s`, `placement`, `draining` and `facts`: what the heartbeat says; `number`: that of the heartbeat.
    """

    revision: int | None
    since: float
    ttl_s: float = 0.0
    number: int = 0
    placement: int = 0
    draining: bool = False
    facts: int = 0


class SignsOfLife:
    """The last sign of life of each node, and of each process, as seen by one process.

    A node's name belongs to one process after another, so the two may differ.
    """

    def __init__(self, node: str, run: str, ttl_s: float) -> None:
        self._own_node = node
        self._own_process = (node, run)
        self._ttl_s = ttl_s
        self._nodes: dict[str, SignOfLife] = {}
        self._processes: dict[tuple[str, str], SignOfLife] = {}
        self._seen_as_of = -math.inf
        self._counted_from = -math.inf

    # ---- what was seen

    def is_known(self, node: str, revision: int) -> bool:
        """True if the last heartbeat that was seen of the node has this revision."""
        seen = self._nodes.get(node)
        return seen is not None and seen.revision == revision

    def is_last(self, node: str, run: str) -> bool:
        """True if the last heartbeat that was read of the node is this process's, or none was read."""
        return self._processes.get((node, run)) is self._nodes.get(node)

    def note_heartbeat(self, node: str, run: str, seen: SignOfLife) -> None:
        """Note a heartbeat that was read from the bucket."""
        self._nodes[node] = self._processes[node, run] = seen

    def note_process(self, node: str, run: str, seen: SignOfLife) -> None:
        """Note a heartbeat that came as a message only, since another process overwrites the key."""
        self._processes[node, run] = seen

    def note_claim(self, owner: Owner, now: float) -> SignOfLife:
        """Note a claim, and return its process's last sign: the claim, if it names a heartbeat new to us."""
        process = (owner.node, owner.run)
        seen = self._processes.get(process)
        if seen is None or seen.number < owner.heartbeat:
            ttl_s = seen.ttl_s if seen else 0.0
            seen = self._processes[process] = SignOfLife(None, now, ttl_s, owner.heartbeat)
        return seen

    def note_departure(self, node: str) -> None:
        """Forget a node that has left."""
        self._nodes.pop(node, None)

    def connected(self, now: float) -> None:
        """Let the time of silence begin again, since heartbeats may have been missed without a connection."""
        self._counted_from = now

    def end_read(self, present: Collection[str], as_of: float, now: float) -> None:
        """End a read that found the keys of these nodes, as of an earlier time."""
        self._extend_unseen(present, now)
        self._seen_as_of = as_of
        self._forget(present)

    def _extend_unseen(self, present: Collection[str], now: float) -> None:
        """Give nodes more time after a TTL without a read: a heartbeat may have come and expired unseen."""
        if now - self._seen_as_of >= self._ttl_s:
            for node, seen in self._nodes.items():
                if node not in present:
                    self._nodes[node] = replace(seen, since=now)
            for (node, run), seen in self._processes.items():
                if self._nodes.get(node) is not seen:
                    self._processes[node, run] = replace(seen, since=now)

    def _forget(self, present: Collection[str]) -> None:
        """Forget what has been silent for very long."""
        before = self._seen_as_of - FORGET_DEAD_AFTER_S
        gone = [node for node, seen in self._nodes.items() if node not in present and seen.since < before]
        for node in gone:
            del self._nodes[node]
        for key in [key for key, seen in self._processes.items() if seen.since < before]:
            if self._nodes.get(key[0]) is not self._processes[key]:
                del self._processes[key]

    # ---- who is silent

    @property
    def others(self) -> Iterable[tuple[str, SignOfLife]]:
        """The last sign of life of each other node."""
        return [(node, seen) for node, seen in self._nodes.items() if node != self._own_node]

    def is_node_silent(self, node: str, now: float) -> bool:
        """True if its heartbeat had not changed for the TTL plus half a second when we last read it.

        The longer of the two TTLs counts: nodes should have the same one, but its lease is as long as its
        own.

        The time counts from the first read of it or the last reconnect; if its key is gone, also from the
        first read after a TTL without one. An unknown node is watched from now on, since it may have come
        after our last read.
        """
        seen = self._nodes.get(node)
        if seen is None:
            seen = self._nodes[node] = SignOfLife(None, now)
        return self.is_silent(seen)

    def is_silent(self, seen: SignOfLife) -> bool:
        """True if our last read was late enough to find a later sign of life, and found none."""
        return self._seen_as_of >= self._silent_from(seen)

    def next_silent_from(self) -> float:
        """The next time at which another node would count as dead."""
        others = [seen for _, seen in self.others]
        others += [seen for process, seen in self._processes.items() if process != self._own_process]
        silent_from = (self._silent_from(seen) for seen in others)
        return min((at for at in silent_from if at > self._seen_as_of), default=math.inf)

    def _silent_from(self, seen: SignOfLife) -> float:
        """The time from which on the node counts as dead, unless it shows a new heartbeat."""
        return max(seen.since, self._counted_from) + max(self._ttl_s, seen.ttl_s) + LEASE_MARGIN_S
