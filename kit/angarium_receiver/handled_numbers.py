"""The numbers of the events that were handled: tells repeats and gaps, in strict and in relaxed order.

Angarium numbers a receiver's events 1, 2, 3 … It sends one again under the same number if an answer was lost,
perhaps hours later. A number that never comes is that of an event that was given up, or that an operator
skipped. What was handled is kept as ranges, so it takes little room: one range, and one more for each gap.

Numbers are given as `Delivery.numbers` has them: one or more, in order, each once. Use one object for each
receiver, with a name of its own if several share a database.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

RANGES_MAX = 100_000
"""Ranges that are kept in memory; beyond, the numbers of the lowest gap count as handled."""

Range = tuple[int, int]
"""The first and the last number."""


class InProgress(Exception):
    """The event is being handled by another request, for which Angarium no longer waits. Answer 503."""


@dataclass(frozen=True)
class Arrival:
    """The events of a request when it arrives: which are new.

    - `new`: the numbers that were not handled yet, in order; none if the request is a repeat.
    - `missing`: how many numbers between the greatest so far and these did not come; in relaxed order some
      may still come. 0 for the first request of all: the program may be younger than its receiver.
    """

    new: tuple[int, ...]
    missing: int

    @property
    def is_repeat(self) -> bool:
        """True if all of it was handled before."""
        return not self.new


class Numbers(ABC):
    """The numbers of one receiver that were handled."""

    @abstractmethod
    def look(self, numbers: Sequence[int]) -> Arrival:
        """Tell which of these numbers are new; changes nothing."""

    @abstractmethod
    def handling(self, numbers: Sequence[int]) -> AbstractContextManager[Arrival]:
        """Tell which are new while the work is done; then they are handled, unless it raises."""


class MemoryNumbers(Numbers):
    """Numbers in memory: after a restart, repeats look new. Threads may share it.

    `handling` raises InProgress if one of the numbers is being handled.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._in_progress: set[int] = set()
        self._lock = threading.Lock()

    def look(self, numbers: Sequence[int]) -> Arrival:
        """See `Numbers`."""
        with self._lock:
            return self._look(numbers)

    @contextmanager
    def handling(self, numbers: Sequence[int]) -> Iterator[Arrival]:
        """See `Numbers`."""
        with self._lock:
            if not self._in_progress.isdisjoint(numbers):
                raise InProgress(f"{numbers[0]} to {numbers[-1]}")
            arrival = self._look(numbers)
            self._in_progress.update(numbers)
        try:
            yield arrival
            with self._lock:
                for first, last in _ranges(numbers):
                    self._add(first, last)
        finally:
            with self._lock:
                self._in_progress.difference_update(numbers)

    def _look(self, numbers: Sequence[int]) -> Arrival:
        low, high = self._around(numbers[0], numbers[-1])
        ranges = list(zip(self._firsts[low:high], self._lasts[low:high]))
        return _arrival(numbers, ranges, self._lasts[-1] if self._lasts else 0)

    def _add(self, first: int, last: int) -> None:
        low, high = self._around(first, last)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]
        if len(self._firsts) > RANGES_MAX:
            del self._firsts[1], self._lasts[0]

    def _around(self, first: int, last: int) -> Range:
        """The slice of the ranges that touch these numbers."""
        return bisect_left(self._lasts, first - 1), bisect_right(self._firsts, last + 1)


class SqliteNumbers(Numbers):
    """Numbers in a table `angarium_numbers` of a SQLite database.

    With `handling`, work that writes through the same connection is in one transaction with the numbers: each
    event is handled exactly once, despite any crash. Another connection waits meanwhile. The connection
    is the caller's, and so are its threads; no transaction may be open on it.
    """

    def __init__(self, connection: sqlite3.Connection, name: str = "") -> None:
        self._connection = connection
        self._name = name
        connection.execute(
            "CREATE TABLE IF NOT EXISTS angarium_numbers (receiver TEXT NOT NULL, first INTEGER NOT NULL,"
            " last INTEGER NOT NULL, PRIMARY KEY (receiver, first)) WITHOUT ROWID"
        )
        connection.commit()

    def look(self, numbers: Sequence[int]) -> Arrival:
        """See `Numbers`."""
        newest = self._connection.execute(
            "SELECT last FROM angarium_numbers WHERE receiver = ? ORDER BY first DESC LIMIT 1", (self._name,)
        ).fetchone()
        around = self._around(numbers[0], numbers[-1])
        return _arrival(numbers, around, newest[0] if newest else 0)

    @contextmanager
    def handling(self, numbers: Sequence[int]) -> Iterator[Arrival]:
        """See `Numbers`: a transaction, which is rolled back if the work raises."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.look(numbers)
            if not self._connection.in_transaction:
                raise RuntimeError("the work ended the transaction: it must not commit")
            for first, last in _ranges(numbers):
                self._add(first, last)
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def _add(self, first: int, last: int) -> None:
        ranges = self._around(first, last)
        self._connection.executemany(
            "DELETE FROM angarium_numbers WHERE receiver = ? AND first = ?",
            [(self._name, each[0]) for each in ranges],
        )
        lowest = min([first, *(each[0] for each in ranges)])
        highest = max([last, *(each[1] for each in ranges)])
        self._connection.execute(
            "INSERT INTO angarium_numbers VALUES (?, ?, ?)", (self._name, lowest, highest)
        )

    def _around(self, first: int, last: int) -> list[Range]:
        """The ranges that touch these numbers: the one that begins before them, and those within."""
        before = self._connection.execute(
            "SELECT first, last FROM angarium_numbers WHERE receiver = ? AND first < ?"
            " ORDER BY first DESC LIMIT 1",
            (self._name, first),
        ).fetchall()
        within = self._connection.execute(
            "SELECT first, last FROM angarium_numbers WHERE receiver = ? AND first BETWEEN ? AND ?",
            (self._name, first, last + 1),
        ).fetchall()
        return [each for each in before if each[1] >= first - 1] + within


def _ranges(numbers: Sequence[int]) -> Iterator[Range]:
    """Yield the ranges that sorted numbers consist of."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _arrival(numbers: Sequence[int], ranges: list[Range], greatest: int) -> Arrival:
    new = tuple(number for number in numbers if not any(low <= number <= high for low, high in ranges))
    return Arrival(new, max(numbers[0] - greatest - 1, 0) if greatest else 0)
