"""Remembers the last heartbeat of each live node; messages may be lost, so only the bucket proves anything.

They show which shards a node runs, and when we first heard of a heartbeat. That it is stored, and that none
followed it, only a look shows.
"""

from collections.abc import Container

from msgspec import Struct


class _Said(Struct, frozen=True):
    """The last message of a node: its process, the number of the heartbeat, when it came, and the shards."""

    run: str
    number: int
    at: float
    owned: tuple[int, ...]


class Heard:
    """The last message of each other live node."""

    def __init__(self) -> None:
        self._last: dict[str, _Said] = {}

    def add(self, node: str, run: str, number: int, at: float, owned: tuple[int, ...]) -> None:
        self._last[node] = _Said(run, number, at, owned)

    def drop(self, node: str) -> None:
        """Forget a node that left."""
        self._last.pop(node, None)

    def keep(self, live: Container[str]) -> None:
        """Forget the nodes that are not live: what they said is no longer true."""
        self._last = {node: said for node, said in self._last.items() if node in live}

    def came_at(self, node: str, run: str, number: int, now: float) -> float:
        """When the message of this heartbeat came; `now` if it is not the last one, or did not come.

        Heartbeats of a version without runs are not known apart from those of an earlier process.
        """
        said = self._last.get(node)
        return said.at if said is not None and run and (said.run, said.number) == (run, number) else now

    def owned(self) -> frozenset[int]:
        """The shards that other nodes run, as they said last."""
        return frozenset(shard for said in self._last.values() for shard in said.owned)
