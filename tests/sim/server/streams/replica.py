"""Replicas of a stream that lag behind its leader, as those that answer direct gets may (ADR-31)."""

from collections import deque
from copy import copy
from random import Random

from msgspec import Struct

from tests.sim.server.streams.store import Store, Stored

REPLICAS = 2


class PurgedMessage(Struct, frozen=True):
    """A message that a purge of its subject took."""

    sequence: int


Change = Stored | PurgedMessage | int | tuple[int]
"""A message that was added, or purged by subject; the sequence of one that was removed; (the first that is
left,) of a purge by position."""


class Replica:
    def __init__(self, store: Store) -> None:
        self.store = _copy(store)
        self.behind: deque[Change] = deque()

    def catch_up(self, leave: int) -> None:
        """Follow the leader until only `leave` changes are missing. It never goes back."""
        while len(self.behind) > leave:
            match self.behind.popleft():
                case Stored() as message:
                    self.store.add(message)
                case (first,):
                    self.store.compact(first)
                case PurgedMessage(sequence=sequence) | int(sequence):
                    self.store.remove(sequence)


class Replicas:
    """Made when the first read goes to one of them; nothing is recorded before."""

    def __init__(self, leader: Store) -> None:
        self._leader = leader
        self._replicas: list[Replica] = []

    def one(self, chance: Random, behind_max: int) -> Store:
        """The store of some replica, a limited number of changes behind."""
        if not self._replicas:
            self._replicas = [Replica(self._leader) for _ in range(REPLICAS)]
        replica = chance.choice(self._replicas)
        replica.catch_up(chance.randint(0, behind_max))
        return replica.store

    def changed(self, change: Change) -> None:
        for replica in self._replicas:
            replica.behind.append(change)


def _copy(store: Store) -> Store:
    twin = copy(store)
    twin.messages = dict(store.messages)
    twin.subjects = {subject: list(sequences) for subject, sequences in store.subjects.items()}
    return twin
