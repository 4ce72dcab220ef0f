"""Shares of the shards among the processes that write one ledger. Pure."""

from collections.abc import Collection

from msgspec import Struct


class Exchange(Struct, frozen=True):
    """The shares that a writer gives up, and those that it takes over."""

    given_up: tuple[int, ...]
    taken: tuple[int, ...]


def exchange(held: Collection[int], free: Collection[int], writers: int, shares: int) -> Exchange:
    """The shares that one writer gives up or takes, so that all writers hold about the same number.

    No writer takes more than its part, so a later one finds some that are free or given up.
    """
    part = -(-shares // max(1, writers))
    wanted = max(0, part - len(held))
    return Exchange(tuple(sorted(held, key=_spread)[part:]), tuple(sorted(free, key=_spread)[:wanted]))


def _spread(share: int) -> int:
    """An order in which neighbours are far apart, since a small installation uses only the first shares."""
    return int(f"{share:016b}"[::-1], 2)
