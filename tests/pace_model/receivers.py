"""Receivers as plants: a queue with workers, a hidden limit, contention, faults.

Each takes requests through `receive`, and answers each of them once, at a time of its own. It knows nothing
about the sender, not even whether it still waits. `cases` says what each could deliver at best.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import Protocol

from tests.pace_model.timeline import Timeline

Headers = tuple[tuple[str, str], ...]
Reply = Callable[[int, Headers], None]
OK, TOO_MANY, BROKEN, UNAVAILABLE = 200, 429, 500, 503
SCALING_S = 60.0
"""Time that an autoscaler has to be busy before it doubles."""
REFUSAL_S = 0.01
"""Time that it takes to refuse a request."""


class Plant(Protocol):
    """A receiver: `receive` takes a request, and calls `reply` once, at once or later."""

    def receive(self, reply: Reply) -> None: ...


class WorkerPool:
    """A queue and `workers`; each serves one request at a time, in the order in which they came.

    - `service_s`: the mean time of a request; `noise`: the sigma of its logarithm.
    - `waiting_max`: requests that may wait; one more is answered with 503.
    - `pauses`: times at which nothing is served, as start and length.
    - `scales_to`: the number of workers up to which they are doubled after each busy minute, at `doubled_at`.
    """

    def __init__(
        self, timeline: Timeline, rng: Random, *, workers: int, service_s: float, waiting_max: int = 10**9,
        noise: float = 0.0, pauses: Sequence[tuple[float, float]] = (), scales_to: int = 0,
    ) -> None:  # fmt: skip
        self.timeline, self._rng = timeline, rng
        self.workers, self._service_s, self._waiting_max, self._noise = workers, service_s, waiting_max, noise
        self.pauses = tuple(pauses)
        self._pauses = deque(pauses)
        self._waiting = deque[Reply]()
        self._busy = 0
        self._work_s = 0.0
        self.doubled_at = list[float]()
        if scales_to:
            timeline.plan(SCALING_S / 6, self._scale, scales_to, deque[float](maxlen=6))

    def receive(self, reply: Reply) -> None:
        """Serve the request, now or in its turn; refuse it if too many wait."""
        if self._busy < self.workers:
            self._serve(reply)
        elif len(self._waiting) < self._waiting_max:
            self._waiting.append(reply)
        else:
            self.timeline.plan(self.timeline.now + REFUSAL_S, reply, UNAVAILABLE, ())

    def _serve(self, reply: Reply) -> None:
        self._busy += 1
        length = self._service_s
        if self._noise:
            length *= exp(self._rng.gauss(-(self._noise**2) / 2, self._noise))
        self._work_s += length
        now = self.timeline.now
        self.timeline.plan(self._later(now, now + length), self._done, reply)

    def _later(self, start: float, end: float) -> float:
        """The end of a service that makes no progress in pauses."""
        while self._pauses and sum(self._pauses[0]) <= start:
            self._pauses.popleft()
        for at, length in self._pauses:
            if at >= end:
                break
            end += length - max(0.0, start - at)
        return end

    def _done(self, reply: Reply) -> None:
        self._busy -= 1
        if self._waiting and self._busy < self.workers:
            self._serve(self._waiting.popleft())
        reply(OK, ())

    def _scale(self, largest: int, loads: deque[float]) -> None:
        """Double the workers if they were busy for four fifths of the last minute."""
        period = SCALING_S / 6
        loads.append(self._work_s / (period * self.workers))
        self._work_s = 0.0
        if len(loads) == 6 and sum(loads) / 6 > 0.8 and self.workers < largest:
            self.workers *= 2
            self.doubled_at.append(self.timeline.now)
            loads.clear()
            while self._waiting and self._busy < self.workers:
                self._serve(self._waiting.popleft())
        self.timeline.plan(self.timeline.now + period, self._scale, largest, loads)


class HiddenLimit:
    """Hidden limits in fixed windows, and behind them a service that takes `service_s`, however many come.

    - `limits`: how many requests are served in how many seconds; the others get 429.
    - `tells`: every answer has the header fields of the IETF draft, and a 429 has `Retry-After`.
    - `doubles_at`: when the limits become twice as high.
    """

    def __init__(
        self, timeline: Timeline, *, limits: Sequence[tuple[int, float]], service_s: float,
        tells: bool = False, doubles_at: float | None = None,
    ) -> None:  # fmt: skip
        self._timeline, self._limits, self._service_s, self._tells = timeline, limits, service_s, tells
        self._used = {window_s: (0, 0) for _, window_s in limits}
        self.doubled_at = list[float]()
        if doubles_at is not None:
            timeline.plan(doubles_at, self._double)

    def receive(self, reply: Reply) -> None:
        """Serve the request, or refuse it if a window is used up."""
        now = self._timeline.now
        left = list[tuple[int, float]]()
        for limit, window_s in self._limits:
            number = int(now // window_s)
            last, used = self._used[window_s]
            left.append((limit - (used if last == number else 0), (number + 1) * window_s - now))
        refused = any(rest <= 0 for rest, _ in left)
        if not refused:
            left = [(rest - 1, until) for rest, until in left]
            for (limit, window_s), (rest, _) in zip(self._limits, left, strict=True):
                self._used[window_s] = (int(now // window_s), limit - rest)
        headers = self._headers(left, refused) if self._tells else ()
        status = TOO_MANY if refused else OK
        self._timeline.plan(now + (REFUSAL_S if refused else self._service_s), reply, status, headers)

    def _headers(self, left: Sequence[tuple[int, float]], refused: bool) -> Headers:
        said = [f'"{number}";r={rest};t={int(until + 1)}' for number, (rest, until) in enumerate(left)]
        policy = [f'"{number}";q={limit};w={int(size)}' for number, (limit, size) in enumerate(self._limits)]
        headers: Headers = (("ratelimit", ", ".join(said)), ("ratelimit-policy", ", ".join(policy)))
        if refused:
            wait_s = max(until for rest, until in left if rest <= 0)
            headers += (("retry-after", str(int(wait_s + 1))),)
        return headers

    def _double(self) -> None:
        self._limits = [(2 * limit, window_s) for limit, window_s in self._limits]
        self.doubled_at.append(self._timeline.now)


class ContendedService:
    """A service whose requests share what there is: beyond some number at once, each one more slows down all.

    With k requests at once it serves k / (1 + sigma (k - 1) + kappa k (k - 1)) times as many as with one
    (Gunther's universal scalability law).
    """

    def __init__(self, timeline: Timeline, *, service_s: float, sigma: float, kappa: float) -> None:
        self._timeline, self._service_s, self._sigma, self._kappa = timeline, service_s, sigma, kappa
        self._served: list[tuple[float, int, Reply]] = []
        self._work = self._since = 0.0
        self._count = self._plan = 0

    def throughput(self, concurrency: int) -> float:
        """Requests a second with so many at once."""
        k = concurrency
        return k / (1 + self._sigma * (k - 1) + self._kappa * k * (k - 1)) / self._service_s

    @property
    def best(self) -> float:
        """The highest throughput."""
        return max(self.throughput(k) for k in range(1, 257))

    def receive(self, reply: Reply) -> None:
        """Begin to serve the request, together with the others."""
        self._progress()
        self._count += 1
        heapq.heappush(self._served, (self._work + 1.0, self._count, reply))
        self._plan_next()

    def _speed(self) -> float:
        return self.throughput(len(self._served)) / len(self._served) if self._served else 0.0

    def _progress(self) -> None:
        now = self._timeline.now
        self._work += (now - self._since) * self._speed()
        self._since = now

    def _plan_next(self) -> None:
        self._plan += 1
        if self._served:
            at = self._timeline.now + max(0.0, self._served[0][0] - self._work) / self._speed()
            self._timeline.plan(at, self._done, self._plan)

    def _done(self, plan: int) -> None:
        if plan != self._plan:  # Another request has come or gone since, so another time holds.
            return
        self._progress()
        reply = heapq.heappop(self._served)[2]
        self._plan_next()
        reply(OK, ())


class FaultyReceiver:
    """A receiver that fails for other reasons than load: now and then, and in outages everything."""

    def __init__(
        self, timeline: Timeline, rng: Random, plant: Plant, *, share: float,
        outages: Sequence[tuple[float, float]], status: int = BROKEN,
    ) -> None:  # fmt: skip
        self._timeline, self._rng, self._plant = timeline, rng, plant
        self._share, self._outages, self._status = share, outages, status

    def receive(self, reply: Reply) -> None:
        """Fail, or let the plant serve the request."""
        now = self._timeline.now
        down = any(start <= now < start + length for start, length in self._outages)
        if down or self._rng.random() < self._share:
            self._timeline.plan(now + REFUSAL_S, reply, self._status, ())
        else:
            self._plant.receive(reply)
