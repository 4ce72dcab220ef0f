"""The event loop of one simulated process: asyncio's rules, on virtual time.

It keeps the order that asyncio keeps (first in, first out; timers that are due go behind what is ready, once
an iteration), and nothing else of it: no selector, no threads, no real clock. Its caller decides how
many callbacks run before the rest of the world gets its turn, so a process can be stopped between any two.

Everything here must come out the same for the same seed. Therefore tasks and futures hash by the order in
which they were made: asyncio and programs keep them in sets, and the default hash is an address.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, TypeVarTuple, cast
from weakref import ReferenceType, ref

NEVER = float("inf")

RESOLUTION_S = 1e-9
"""Timers this close are due: sums of floats must not keep one a rounding error away forever."""

TIMERS_CANCELLED_MAX = 100
"""Cancelled timers are swept out whenever this many, and half as many as there are, were cancelled."""

Ts = TypeVarTuple("Ts")
Timer = tuple[float, int, asyncio.TimerHandle]


class SimTask(asyncio.Task[Any]):
    """A task whose name and whose place in a set depend on the order of creation alone."""

    _log_destroy_pending: bool

    def __init__(self, coroutine: Any, *, loop: "SimLoop", name: str | None = None, **options: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coroutine, loop=loop, name=name or f"task-{self._number}", **options)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = cast(SimLoop, self.get_loop()).next_number()
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """`clock` is the process's monotonic time in seconds; `on_error` gets what asyncio would have logged."""

    def __init__(self, clock: Callable[[], float], on_error: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.time = clock  # type: ignore[method-assign]  # One call less on the hottest path.
        self.get_debug = bool  # type: ignore[method-assign]  # False, and asked for each handle and future.
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: dict[SimTask, None] = {}
        self._on_error = on_error
        self._timers: list[Timer] = []
        self._timers_cancelled = 0
        self._number = 0
        self._left = 0
        self._over = False
        self._generators: list[ReferenceType[AsyncGenerator[Any, Any]]] = []

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def add_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator has begun in this loop."""
        self._generators = [each for each in self._generators if each() is not None]
        self._generators.append(ref(generator))

    def generators(self) -> list[AsyncGenerator[Any, Any]]:
        """The generators that are there, the oldest first."""
        return [found for each in self._generators if (found := each()) is not None]

    # Stepping.

    def timer_at(self) -> float:
        """When the next timer is due, by `clock`; `NEVER` when there is none."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        return timers[0][0] if timers else NEVER

    def begin(self) -> int:
        """Begin an iteration unless one is under way; returns how many callbacks of it are to be run."""
        if self._left == 0:
            timers, due = self._timers, self.time() + RESOLUTION_S
            while timers and timers[0][0] <= due:
                self.ready.append(heapq.heappop(timers)[2])
            self._left = len(self.ready)
        return self._left

    def run_one(self) -> None:
        """Run the next callback of the iteration."""
        self._left -= 1
        handle = self.ready.popleft()
        if not handle.cancelled():
            handle._run()  # It hands errors to call_exception_handler.

    def end(self) -> None:
        """Take no more callbacks. What is left of the tasks is for the owner to close."""
        self._over = True
        self.ready.clear()
        self._timers.clear()

    # What asyncio and the program call.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._over:
            self.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._over:
            handle._scheduled = True  # type: ignore[attr-defined]  # So that a cancel is reported below.
            heapq.heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > max(TIMERS_CANCELLED_MAX, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(self, coro: Any, **options: Any) -> SimTask:
        task = SimTask(coro, loop=self, **options)
        if self._over:
            close(coro)
            task._log_destroy_pending = False
        else:
            self.tasks[task] = None
            task.add_done_callback(self.tasks.pop)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._on_error(context)

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("threads cannot be simulated: do not use an executor here")

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self


CLOSES_MAX = 100


class ProcessDied(BaseException):
    """The end of a dead process's coroutine, which may await meanwhile: after `GeneratorExit` it may not."""


def close(coroutine: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine where it stands, as often as it awaits something while it is being ended.

    What it raises on the way out does not matter: its process is dead.
    """
    for _ in range(CLOSES_MAX):
        try:
            coroutine.throw(ProcessDied())
        except BaseException:
            return
    raise RuntimeError(f"{coroutine!r} cannot be ended: it awaits whatever is thrown into it")
