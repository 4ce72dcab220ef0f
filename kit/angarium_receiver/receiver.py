"""A receiver without a framework: given a request, it makes the answer, or hands over a genuine delivery.

The middleware for ASGI and WSGI is made of it, and so can be one for anything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Callable

from angarium_receiver.handled_numbers import Numbers
from angarium_receiver.handshake import answer_challenge, consent
from angarium_receiver.keys import HmacKey, parse_key
from angarium_receiver.limiters import Limiter
from angarium_receiver.queues import Queue
from angarium_receiver.verification import Delivery, VerificationError, verify

BODY_MAX = 1 << 20
"""Bytes of a body that are read. Angarium sends 256 KiB at most, unless its operator allows more."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Receiver:
    """Answers what needs no work of the program: handshakes, pings, repeats, and what is refused.

    - `secrets`: one or more, in any of the forms that `parse_key` reads; all are accepted, so that you can
      change one while the old one is still in use. Raises InvalidKey.
    - `numbers`: to answer repeats without work. A delivery counts as handled when it was answered with 2xx.
      `SqliteNumbers` need a connection of their own that any thread may use (`check_same_thread=False`).
    - `limiter`: to refuse what comes too fast (429).
    - `queue`: to answer 202 at once; the work is then done by `queue.work_one`. If it is full: 503.
    - `per_minute`: the rate that a CloudEvents handshake allows; None: any.

    Threads may share it.
    """

    def __init__(
        self,
        *secrets: str,
        numbers: Numbers | None = None,
        limiter: Limiter | None = None,
        queue: Queue | None = None,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = [parse_key(each) for each in secrets]
        if not self._keys:
            raise ValueError("a receiver needs a secret")
        self._numbers = numbers
        self._limiter = limiter
        self._queue = queue
        self._per_minute = per_minute
        self._clock = clock
        self._ticks = ticks
        self._lock = threading.Lock()
        self._in_work: set[int] = set()

    def receive(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer | Delivery:
        """The answer to a request; or, if the program has to do the work, the delivery.

        `headers`: by name, in any case. After the work, `done` gets the delivery and the status.
        """
        lower = {name.lower(): value for name, value in headers.items()}
        if method == "OPTIONS" and "webhook-request-origin" in lower:
            return self._consent(lower["webhook-request-origin"])
        if method == "GET" and "angarium-challenge" in lower:
            return self._proof(lower["angarium-challenge"])
        if method != "POST":
            return Answer(405, {"allow": "POST"})
        try:
            delivery = verify(lower, body, self._keys, self._clock())
        except VerificationError as error:
            return _text(401, str(error))
        if delivery.is_ping:
            return Answer(204)
        if not delivery.numbers:
            return _text(401, "angarium-sequence is missing")
        new, refused, limits = self._begin(delivery)
        if refused is not None:
            return refused
        delivery = replace(delivery, new=new)
        if self._queue is None:
            return delivery
        is_queued = False
        try:
            is_queued = self._queue.put(delivery)
        finally:
            self.done(delivery, 202 if is_queued else 503)
        return Answer(202, limits) if is_queued else Answer(503, {**limits, "retry-after": "1"})

    def _begin(self, delivery: Delivery) -> tuple[tuple[int, ...], Answer | None, dict[str, str]]:
        """Refuse the delivery, or take it into work until `done`; also returns its new numbers."""
        new = delivery.numbers
        with self._lock:
            if self._numbers is not None:
                new = self._numbers.look(delivery.numbers).new
                if not new:
                    return new, Answer(204), {}
                if not self._in_work.isdisjoint(delivery.numbers):
                    return new, Answer(503, {"retry-after": "1"}), {}
            limits: dict[str, str] = {}
            if self._limiter is not None:
                verdict = self._limiter.take(self._ticks())
                limits = verdict.headers()
                if not verdict.allowed:
                    return new, Answer(429, limits), {}
            if self._numbers is not None:
                self._in_work.update(delivery.numbers)
            return new, None, limits

    def done(self, delivery: Delivery, status: int) -> None:
        """The program has answered a delivery with this status: after 2xx, another one of it is a repeat.

        Call it after work that failed as well: until then, another one is answered 503.
        """
        with self._lock:
            self._in_work.difference_update(delivery.numbers)
            if self._numbers is not None and 200 <= status < 300:
                with self._numbers.handling(delivery.numbers):
                    pass

    def _consent(self, origin: str) -> Answer:
        try:
            return Answer(200, consent(origin, self._per_minute))
        except ValueError as error:
            return _text(400, str(error))

    def _proof(self, challenge: str) -> Answer:
        key = next((each for each in self._keys if isinstance(each, HmacKey)), None)
        if key is None:
            return _text(404, "this receiver has no secret that proves anything; use whsec_ or whs512_")
        try:
            return Answer(200, {"content-type": "application/json"}, answer_challenge(challenge, key))
        except ValueError as error:
            return _text(400, str(error))


def _text(status: int, text: str) -> Answer:
    return Answer(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())
