"""The pull requests that wait at a consumer: who is served next, and how the others end.

Where the consumer has a priority group with a pinned client (ADR-42), one request after another gets or
shows the pin; the rest waits. A pin that was given to a request whose listener had gone stays with nobody
until its time is over.
"""

import math
from collections import deque
from typing import Any, Protocol

from tests.sim.server.pulls import Pull, status
from tests.sim.server.store import Headers
from tests.sim.server.timing import Timing

SECOND = 1_000_000_000


class Outlet(Protocol):
    """Where a consumer's messages go."""

    def send(
        self, to: str, data: bytes = b"", headers: Headers | None = None, subject: str = "", reply: str = ""
    ) -> None:
        """Deliver to who listens on `to`; the message carries `subject` where that is given."""

    def listens(self, subject: str) -> bool: ...


class Line:
    """`pin` is "" while no client is pinned. `pinned_until` is by `Timing.now`."""

    def __init__(self, timing: Timing, outlet: Outlet, config: dict[str, Any]) -> None:
        self._timing = timing
        self._outlet = outlet
        self._line: deque[Pull] = deque()
        self._pins = 0
        self.unpin()
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        self._longest: int = config["max_waiting"]
        self._pinning = config.get("priority_policy") == "pinned_client"
        self._groups: list[str] = config.get("priority_groups", [])
        self._pin_s: float = config.get("priority_timeout", 120 * SECOND) / SECOND

    def __len__(self) -> int:
        return len(self._line)

    # Coming.

    def objection(self, pull: Pull, is_number: bool) -> Headers | None:
        """Why a request cannot stand in the line. Showing the right pin holds it."""
        if not self._pinning:
            return status(400, "Bad Request - Not a Pinned Client Priority consumer") if pull.pin else None
        if is_number:
            return None
        if not pull.group:
            return status(400, "Bad Request - Priority Group missing")
        if pull.group not in self._groups:
            return status(400, "Bad Request - Invalid Priority Group")
        if self.pin and pull.pin == self.pin:
            self._hold_pin()
        elif self.pin and pull.pin:
            return status(423, "Nats-Pin-Id mismatch")
        return None

    def wanted(self) -> int:
        """How many messages those who wait want in all."""
        return sum(pull.left for pull in self._line)

    def is_full(self) -> bool:
        return len(self._line) >= self._longest

    def join(self, pull: Pull) -> None:
        self._line.append(pull)

    # Being served.

    def next(self, size: int) -> Pull | None:
        """Who gets the next message, of that size; requests that have no claim to it end on the way."""
        line = self._line
        needs_pin = self._pinning and not self.pin
        passed_over = 0
        while line and passed_over < len(line):
            pull, had_pin = line[0], self.pin
            if pull.expires_at is not None and pull.expires_at <= self._timing.now():
                self._end_first(408, "Request Timeout")
                continue
            if needs_pin and not pull.pin:
                self._assign_pin(pull)
            elif self.pin and not pull.pin:
                line.rotate(-1)
                passed_over += 1
                continue
            elif self._pinning and pull.pin != self.pin:
                self._end_first(423, "Nats-Wrong-Pin-Id")
                continue
            if 0 < pull.bytes_left < size:
                if self.pin != had_pin:
                    self.unpin()
                self._end_first(409, "Message Size Exceeds MaxBytes")
            elif self._outlet.listens(pull.reply):
                return self._serve(size)
            else:
                line.popleft()
        return None

    def _serve(self, size: int) -> Pull:
        """Count one message for the head of the line; if it wants more, it goes to the end."""
        pull = self._line[0]
        if pull.bytes_left:
            pull.bytes_left -= size
            if not pull.bytes_left:
                pull.left = 1
        pull.left -= 1
        pull.delivered += 1
        if pull.left <= 0:
            self._line.popleft()
        else:
            self._line.rotate(-1)
        return pull

    def _end_first(self, code: int, description: str) -> None:
        pull = self._line.popleft()
        self._outlet.send(pull.reply, headers=pull.ended(code, description))

    # Waiting.

    def tend(self, last: Headers, *, end_of_stream: bool) -> None:
        """End what has expired or lost its listener; send the heartbeats that are due, saying `last`."""
        now, kept = self._timing.now(), []
        for pull in self._line:
            if pull.expires_at is not None and pull.expires_at <= now:
                self._outlet.send(pull.reply, headers=pull.ended(408, "Request Timeout"))
            elif end_of_stream and pull.no_wait and (pull.expires_at is None or pull.delivered):
                self._outlet.send(pull.reply, headers=status(404, "No Messages"))
            elif self._outlet.listens(pull.reply):
                kept.append(pull)
                if pull.heartbeat_at is not None and pull.heartbeat_at <= now:
                    pull.heartbeat_at = now + pull.heartbeat_s
                    self._outlet.send(pull.reply, headers=status(100, "Idle Heartbeat") | last)
        self._line = deque(kept)
        if self.pinned_until <= now:
            self.unpin()

    def next_at(self) -> float:
        """When `tend` has something to do, by `Timing.now`."""
        times = [self.pinned_until]
        for pull in self._line:
            times += [at for at in (pull.expires_at, pull.heartbeat_at) if at is not None]
        return min(times)

    def end_all(self, why: str) -> None:
        for pull in self._line:
            self._outlet.send(pull.reply, headers=status(409, why))
        self.clear()

    def clear(self) -> None:
        """Forget the requests and the pin, as a server does that is started again."""
        self._line.clear()
        self.unpin()

    # The pin.

    def _assign_pin(self, pull: Pull) -> None:
        self._pins += 1
        self.pin = pull.pin = f"pin-{self._timing.chance.getrandbits(64):016x}-{self._pins}"
        self.pinned_ns = self._timing.wall_ns()
        self._hold_pin()

    def _hold_pin(self) -> None:
        self.pinned_until = self._timing.now() + self._pin_s

    def unpin(self) -> None:
        self.pin = ""
        self.pinned_ns = 0
        self.pinned_until = math.inf
