"""Subscriptions indexed by subject."""

from typing import Generic, TypeVar

from tests.sim.server.subjects import covers, is_literal

T = TypeVar("T")


class Interest(Generic[T]):
    """Patterns are kept by what finds them fastest: as they are, by all but a last `*`, or in a list."""

    def __init__(self) -> None:
        self._literal: dict[str, dict[T, None]] = {}
        self._below: dict[str, dict[T, None]] = {}
        self._others: dict[tuple[str, T], None] = {}
        self._others_of: dict[str, list[T]] = {}

    def add(self, pattern: str, who: T) -> None:
        if (index := self._index(pattern)) is None:
            self._others[pattern, who] = None
            self._others_of.clear()
        else:
            index.setdefault(_key(pattern), {})[who] = None

    def remove(self, pattern: str, who: T) -> None:
        if (index := self._index(pattern)) is None:
            del self._others[pattern, who]
            self._others_of.clear()
            return
        listeners = index[_key(pattern)]
        del listeners[who]
        if not listeners:
            del index[_key(pattern)]

    def listeners(self, subject: str) -> list[T]:
        if (others := self._others_of.get(subject)) is None:
            others = [who for pattern, who in self._others if covers(pattern, subject)]
            self._others_of[subject] = others
        return [*self._literal.get(subject, ()), *self._below.get(subject.rpartition(".")[0], ()), *others]

    def _index(self, pattern: str) -> dict[str, dict[T, None]] | None:
        if is_literal(pattern):
            return self._literal
        return self._below if pattern.endswith(".*") and is_literal(pattern[:-2]) else None


def _key(pattern: str) -> str:
    return pattern.removesuffix(".*")
