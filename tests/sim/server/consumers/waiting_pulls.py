"""The pull requests that wait at a consumer: which is served next, and how the others end."""

import math
from collections import deque
from typing import Any, Protocol

from tests.sim.server.consumers.pulls import Pull, status
from tests.sim.server.streams.store import Headers
from tests.sim.server.timing import Timing


class Outlet(Protocol):
    """The place where a consumer's messages go."""

    def send(
        self, to: str, data: bytes = b"", headers: Headers | None = None, subject: str = "", reply: str = ""
    ) -> None:
        """Deliver to the clients that listen on `to`; the message carries `subject` where that is given."""

    def listens(self, subject: str) -> bool: ...


class WaitingPulls:
    """The pull requests of a consumer, in the order in which they are served."""

    def __init__(self, timing: Timing, outlet: Outlet, config: dict[str, Any]) -> None:
        self._timing = timing
        self._outlet = outlet
        self._waiting: deque[Pull] = deque()
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        self._longest: int = config["max_waiting"]

    def __len__(self) -> int:
        return len(self._waiting)

    # Coming.

    def wanted(self) -> int:
        """Counts the messages that all waiting requests want."""
        return sum(pull.left for pull in self._waiting)

    def is_full(self) -> bool:
        return len(self._waiting) >= self._longest

    def join(self, pull: Pull) -> None:
        self._waiting.append(pull)

    # Being served.

    def next(self, size: int) -> Pull | None:
        """Picks the request that gets the next message of that size; those without a claim to it end."""
        waiting = self._waiting
        while waiting:
            pull = waiting[0]
            if pull.expires_at is not None and pull.expires_at <= self._timing.now():
                self._end_first(408, "Request Timeout")
            elif 0 < pull.bytes_left < size:
                self._end_first(409, "Message Size Exceeds MaxBytes")
            elif self._outlet.listens(pull.reply):
                return self._serve(size)
            else:
                waiting.popleft()
        return None

    def _serve(self, size: int) -> Pull:
        """Count one message for the first request; if it wants more, it goes to the end."""
        pull = self._waiting[0]
        if pull.bytes_left:
            pull.bytes_left -= size
            if not pull.bytes_left:
                pull.left = 1
        pull.left -= 1
        pull.delivered += 1
        if pull.left <= 0:
            self._waiting.popleft()
        else:
            self._waiting.rotate(-1)
        return pull

    def _end_first(self, code: int, description: str) -> None:
        pull = self._waiting.popleft()
        self._outlet.send(pull.reply, headers=pull.ended(code, description))

    # Waiting.

    def tend(self, last: Headers, *, end_of_stream: bool) -> None:
        """End what has expired or lost its listener; send the heartbeats that are due, saying `last`."""
        now, kept = self._timing.now(), []
        for pull in self._waiting:
            if pull.expires_at is not None and pull.expires_at <= now:
                self._outlet.send(pull.reply, headers=pull.ended(408, "Request Timeout"))
            elif end_of_stream and pull.no_wait and (pull.expires_at is None or pull.delivered):
                self._outlet.send(pull.reply, headers=status(404, "No Messages"))
            elif self._outlet.listens(pull.reply):
                kept.append(pull)
                if pull.heartbeat_at is not None and pull.heartbeat_at <= now:
                    pull.heartbeat_at = now + pull.heartbeat_s
                    self._outlet.send(pull.reply, headers=status(100, "Idle Heartbeat") | last)
        self._waiting = deque(kept)

    def next_at(self) -> float:
        """When `tend` has something to do, by `Timing.now`."""
        times = [math.inf]
        for pull in self._waiting:
            times += [at for at in (pull.expires_at, pull.heartbeat_at) if at is not None]
        return min(times)

    def end_all(self, why: str) -> None:
        for pull in self._waiting:
            self._outlet.send(pull.reply, headers=status(409, why))
        self.clear()

    def clear(self) -> None:
        """Forget the requests, as a server does that is started again."""
        self._waiting.clear()
