"""The simulated world: virtual time, several processes in one, and randomness from one seed.

Time moves only when no process has anything left to do now. Each turn of a process (one iteration of its
event loop, or a part of one) takes a little time, drawn at random, so that messages, freezes and crashes fall
between any two callbacks, and which of several busy processes goes first is drawn with it.

Chance for the world's plans comes from `rng`; the pace of the processes has its own source, so the same
faults meet a program that was changed by a step. The same seed gives the same history to the byte, as
long as the program iterates over no sets of strings (PYTHONHASHSEED) or of plain objects (addresses).
"""

import asyncio
import gc
import heapq
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from itertools import chain
from random import Random
from typing import Any, Self

from tests.sim.world.loop import NEVER
from tests.sim.world.process import Process

TURN_S = 20e-6
"""Average time that a turn of a process takes."""

HISTORY_MAX = 4000

STEPS_MAX = 2_000_000
"""Turns and events of one wait: twenty times as many as a long run has. More of them are two parties that
answer each other without end, while hardly any time passes."""


class RunFailed(AssertionError):
    """A run did not do what it had to. The message begins with the seed that repeats it."""


class Deadlock(RunFailed):
    """The error of a world in which nothing can happen any more before what it waits for."""


class LimitReached(RunFailed):
    """The error of a wait that took too long, or too many steps."""


class World:
    """One run. Use it as a context manager, so that no coroutine of it outlives it.

    `history_max`: how many lines are kept; 0 keeps none, None all.
    """

    def __init__(self, seed: int, *, turn_s: float = TURN_S, history_max: int | None = HISTORY_MAX) -> None:
        self.seed = seed
        self.now = 0.0
        self.rng = Random(seed)
        self.processes: list[Process] = []
        self._pace = self.random("pace")
        self._turn_s = turn_s
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._event_number = 0
        self._history: deque[tuple[float, str, tuple[object, ...]]] | None
        self._history = None if history_max == 0 else deque(maxlen=history_max)
        self.stepping: Process | None = None
        self._failure: RunFailed | None = None

    def random(self, name: str) -> Random:
        """A further source of chance, which depends on the seed and its name alone."""
        return Random(f"{self.seed} {name}")

    # What happens.

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back when the true time is `when`, at once if that is past; first come first."""
        self._event_number += 1
        heapq.heappush(self._events, (when, self._event_number, callback, args))

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self.at(self.now + delay_s, callback, *args)

    def spawn(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        """Start a process. It ends when `main` returns; if that raises, the run has failed."""
        process = Process(self, name)
        self.processes.append(process)
        self.say("%s starts", name)
        process.start(main(process))
        return process

    def ended(self, process: Process) -> None:
        """For the process: it is dead. It may be in the middle of a turn, and is buried only after it."""
        self.processes.remove(process)
        if process is not self.stepping:
            self._bury(process)

    def _bury(self, process: Process) -> None:
        outer = asyncio._get_running_loop()
        try:
            process.bury()
        finally:
            asyncio._set_running_loop(outer)

    # What is told of it.

    def say(self, text: str, *values: object) -> None:
        """Add a line to the history. It is formatted, by `%`, when read: the values must not change."""
        if self._history is not None:
            self._history.append((self.now, text, values))

    def history(self) -> list[str]:
        """The last lines, each with its time in seconds."""
        return [f"{when:12.6f} {text % values}" for when, text, values in self._history or ()]

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """The run has failed: `run` will raise, whatever the program makes of it. The first reason counts."""
        if self._failure is None:
            self._failure = self._failed(RunFailed, reason)
            self._failure.__cause__ = cause

    def _failed(self, kind: type[RunFailed], reason: str) -> RunFailed:
        self.say("FAILED: %s", reason)
        return kind(f"seed {self.seed}, at {self.now:.6f} s: {reason}")

    # Running it.

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        """Go on until the condition holds, which is checked after each turn and event.

        Raises `Deadlock`, `LimitReached` after `limit_s` of virtual time or `STEPS_MAX`, or `RunFailed` for
        what was reported to `fail`, for an exception out of a main task, and for an unhandled one.
        """
        end, steps = self.now + limit_s, 0
        outer, hooks, collects = asyncio._get_running_loop(), sys.get_asyncgen_hooks(), gc.isenabled()
        sys.set_asyncgen_hooks(self._generator_begins, _end_generator)
        gc.disable()  # When it runs depends on all that the interpreter did before.
        try:
            while not until():
                self._go_on(end)
                steps += 1
                if steps > STEPS_MAX:
                    raise self._failed(LimitReached, f"{STEPS_MAX} steps were not enough\n{self._where()}")
                if self._failure is not None:
                    raise self._failure
        finally:
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
            if collects:
                gc.enable()

    def run_for(self, time_s: float) -> None:
        """Let that much time pass."""
        end = self.now + time_s
        self.at(end, lambda: None)
        self.run(lambda: self.now >= end, 2 * time_s)

    def _go_on(self, end: float) -> None:
        """Let the next thing happen: an event of the world or a turn of a process, the first one."""
        next_process, when = None, NEVER
        for process in self.processes:
            if (turn_at := process.turn_at()) < when:
                next_process, when = process, turn_at
        events = self._events
        if events and events[0][0] <= when:
            next_process, when = None, events[0][0]
        elif next_process is None:
            raise self._failed(Deadlock, f"nothing can happen any more\n{self._where()}")
        if when > end:
            raise self._failed(LimitReached, f"what was waited for has not happened\n{self._where()}")
        if when > self.now:
            self.now = when
        if next_process is not None:
            self._turn(next_process)
        else:
            _, _, callback, args = heapq.heappop(events)
            callback(*args)

    def _turn(self, process: Process) -> None:
        """One iteration, or as much of it as chance allows; the rest follows in the next turns."""
        pace = self._pace
        callbacks_max = len(process.loop.ready)
        if callbacks_max > 1:
            callbacks_max = 1 + int(pace.random() * 2 * callbacks_max)
        self.stepping = process
        process.turn(callbacks_max or 1)
        self.stepping = None
        if process.alive:
            process.busy_until = self.now + 2 * self._turn_s * pace.random()
        else:
            self._bury(process)

    def _where(self) -> str:
        return "\n".join(chain((process.where() for process in self.processes), self.history()[-20:]))

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.stepping is not None:
            self.stepping.loop.add_generator(generator)

    # Its end.

    def close(self) -> None:
        """End all processes; nothing of them is left to run or to warn."""
        for process in list(self.processes):
            process.kill()
        self._events.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Closes an abandoned asynchronous generator, as asyncio does."""
    if (loop := asyncio._get_running_loop()) is not None:
        loop.create_task(generator.aclose())
