"""Remembers the last heartbeat of each live node; messages may be lost, so only the bucket proves anything.

They show which shards a node runs, and when a heartbeat came. Only the bucket shows that it is stored, and
that none followed it.
"""

from collections.abc import Container

from msgspec import Struct


class _LastMessage(Struct, frozen=True):
    """The last message of a node: its process, the number of the heartbeat, when it came, and the shards."""

    run: str
    number: int
    at: float
    owned: tuple[int, ...]


class LastMessages:
    """The last message of each other live node."""

    def __init__(self) -> None:
        self._last: dict[str, _LastMessage] = {}

    def add(self, node: str, run: str, number: int, at: float, owned: tuple[int, ...]) -> None:
        self._last[node] = _LastMessage(run, number, at, owned)

    def drop(self, node: str) -> None:
        """Forget a node that left."""
        self._last.pop(node, None)

    def keep(self, live: Container[str]) -> None:
        """Forget the nodes that are not live: what they said is no longer true."""
        self._last = {node: message for node, message in self._last.items() if node in live}

    def came_at(self, node: str, run: str, number: int, now: float) -> float:
        """When the message of this heartbeat came; `now` if it is not the last one, or did not come.

        Heartbeats of a version without runs are not known apart from those of an earlier process.
        """
        last = self._last.get(node)
        return last.at if last is not None and run and (last.run, last.number) == (run, number) else now

    def owned(self) -> frozenset[int]:
        """The shards that other nodes run, as they said last."""
        return frozenset(shard for message in self._last.values() for shard in message.owned)
