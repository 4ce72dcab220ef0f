"""Bounded queues: the receiver answers 202 as soon as a delivery is in, and the work is done afterwards.

`MemoryQueue` loses what is in it when the process ends, and Angarium does not send that again: it was
answered. `SqliteQueue` keeps it, and gives it to the next process.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Callable, Literal

from angarium_receiver.verification import Delivery

LOOK_EACH_S = 0.5
"""Interval at which a worker looks for deliveries that another process has put."""


@contextmanager
def _turn(lock: threading.Lock, timeout_s: float | None) -> Iterator[float | None]:
    """Take the lock, and yield how much of the time is left; below 0: it was not taken."""
    start = time.monotonic()
    if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
        yield -1.0
        return
    try:
        yield None if timeout_s is None else max(timeout_s - (time.monotonic() - start), 0.0)
    finally:
        lock.release()


class Queue(ABC):
    """Deliveries that were answered and wait for their work."""

    @abstractmethod
    def put(self, delivery: Delivery) -> bool:
        """Take a delivery; False if the queue is full. If it is there already, that is True as well."""

    @abstractmethod
    def work_one(self, work: Callable[[Delivery], object], timeout_s: float | None = None) -> bool:
        """Do the work of the oldest delivery, which leaves the queue unless that raises.

        Waits for one, at most `timeout_s`; False if there was none.
        """


class MemoryQueue(Queue):
    """A queue in memory, of at most `length` deliveries."""

    def __init__(self, length: int) -> None:
        if length < 1:
            raise ValueError("a queue must have room for one")
        self._queue: queue.Queue[Delivery] = queue.Queue(length)
        self._again: queue.Queue[Delivery] = queue.Queue()
        self._turn = threading.Lock()

    def put(self, delivery: Delivery) -> bool:
        """See `Queue`."""
        try:
            self._queue.put_nowait(delivery)
        except queue.Full:
            return False
        return True

    def work_one(self, work: Callable[[Delivery], object], timeout_s: float | None = None) -> bool:
        """See `Queue`. One thread works at a time, so the order stays."""
        with _turn(self._turn, timeout_s) as left_s:
            if left_s is not None and left_s < 0:
                return False
            try:
                delivery = self._again.get_nowait()
            except queue.Empty:
                try:
                    delivery = self._queue.get(timeout=left_s)
                except queue.Empty:
                    return False
            try:
                work(delivery)
            except BaseException:
                self._again.put(delivery)
                raise
            return True


class SqliteQueue(Queue):
    """A queue in a SQLite file, of at most `length` deliveries; it outlives the process.

    A delivery that is in the queue is not taken a second time. One that has left it is: let the work use
    `SqliteNumbers`. Several processes may put and work; one works at a time, so the order stays.
    """

    def __init__(self, path: str, length: int) -> None:
        if length < 1:
            raise ValueError("a queue must have room for one")
        self._length = length
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # While it works, a process locks a second file; the lock ends with the process.
        self._work_lock = sqlite3.connect(
            f"{path}.lock", check_same_thread=False, isolation_level=None, timeout=0
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # Some builds of SQLite have another default.
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS angarium_queue"
            " (place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, delivery TEXT, body BLOB)"
        )

    def close(self) -> None:
        """Close the files."""
        self._connection.close()
        self._work_lock.close()

    def put(self, delivery: Delivery) -> bool:
        """See `Queue`. It is on disk when this returns True."""
        members = asdict(delivery)
        body = members.pop("body")
        key = f"{delivery.id} {delivery.numbers}"  # One id may come under several numbers.
        with self._changed:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                (count,) = self._connection.execute("SELECT count(*) FROM angarium_queue").fetchone()
                found = self._connection.execute(
                    "SELECT 1 FROM angarium_queue WHERE id = ?", (key,)
                ).fetchone()
                if found is None and count < self._length:
                    self._connection.execute(
                        "INSERT INTO angarium_queue (id, delivery, body) VALUES (?, ?, ?)",
                        (key, json.dumps(members), body),
                    )
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
            if found is None and count >= self._length:
                return False
            self._changed.notify()
            return True

    def work_one(self, work: Callable[[Delivery], object], timeout_s: float | None = None) -> bool:
        """See `Queue`. One thread works at a time. If the process dies meanwhile, the work is done again."""
        with _turn(self._turn, timeout_s) as left_s:
            if left_s is not None and left_s < 0:
                return False
            end = None if left_s is None else time.monotonic() + left_s
            while (found := self._try_one(work)) != "done":
                left_s = LOOK_EACH_S if end is None else min(end - time.monotonic(), LOOK_EACH_S)
                if left_s <= 0:
                    return False
                with self._changed:
                    if found == "busy" or self._oldest() is None:
                        self._changed.wait(left_s)  # No other process can notify this one.
            return True

    def _try_one(self, work: Callable[[Delivery], object]) -> Literal["done", "empty", "busy"]:
        """Do the work of the oldest, unless there is none or another process works."""
        try:
            self._work_lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return "busy"
        try:
            with self._changed:
                row = self._oldest()
            if row is None:
                return "empty"
            place, members, body = row
            work(_delivery(members, body))
            with self._changed:
                self._connection.execute("DELETE FROM angarium_queue WHERE place = ?", (place,))
            return "done"
        finally:
            self._work_lock.rollback()

    def _oldest(self) -> tuple[int, str, bytes] | None:
        found: tuple[int, str, bytes] | None = self._connection.execute(
            "SELECT place, delivery, body FROM angarium_queue ORDER BY place LIMIT 1"
        ).fetchone()
        return found


def _delivery(members: str, body: bytes) -> Delivery:
    known = json.loads(members)
    return Delivery(**{**known, "numbers": tuple(known["numbers"]), "new": tuple(known["new"]), "body": body})
