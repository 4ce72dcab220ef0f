"""A simulated process: its own event loop, its own clocks, and a death that affects no other."""

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.sim.world.loop import NEVER, SimLoop, close

if TYPE_CHECKING:
    from tests.sim.world.world import World

EPOCH_S = 1_767_225_600.0
"""The true wall time at which every world begins: 2026-01-01T00:00:00Z."""


class Process:
    """Made by `World.spawn`. The world steps it; nothing else runs its code.

    `skew_s` is what its wall clock is wrong by; it may be changed at any time, as ntpd or an operator would.
    """

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.skew_s = 0.0
        self.alive = True
        self.frozen = False
        self.began_at = self.busy_until = world.now
        self.loop = SimLoop(self.monotonic, self._asyncio_error)
        self._main: asyncio.Task[None] | None = None
        self._suspended_at: float | None = None
        self._suspended_s = 0.0
        self._at_end: list[Callable[[], None]] = []
        self._buried = False

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self._main = self.loop.create_task(main)
        self._main.add_done_callback(self._main_done)

    # Its clocks.

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC, that of its event loop: stands still while the machine is suspended."""
        now = self.world.now if self._suspended_at is None else self._suspended_at
        return now - self._suspended_s

    def boottime(self) -> float:
        """CLOCK_BOOTTIME: goes on while the machine is suspended."""
        return self.world.now

    def wall_clock(self) -> float:
        """Seconds since the epoch, as wrong as its machine's clock is."""
        return EPOCH_S + self.world.now + self.skew_s

    # What the world does to it.

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback in the process's loop, after what is queued there; dropped when it is dead."""
        self.loop.call_soon(callback, *args)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call back when the process has ended or was killed, as its kernel closes its sockets."""
        self._at_end.append(callback)

    def freeze(self, *, suspend: bool = False) -> None:
        """Stops the process where it stands, as SIGSTOP does; with `suspend`, as a machine's lid does."""
        if self.alive and not self.frozen:
            self.frozen = True
            self._suspended_at = self.world.now if suspend else None
            self.world.say("%s is frozen%s", self.name, " and its machine suspended" if suspend else "")

    def wake(self) -> None:
        if self.frozen:
            self.frozen = False
            if self._suspended_at is not None:
                self._suspended_s += self.world.now - self._suspended_at
                self._suspended_at = None
            self.world.say("%s wakes", self.name)

    def kill(self) -> None:
        """Ends the process at once. Nothing that its coroutines do while closing reaches the world."""
        self._end("is killed")

    def say(self, text: str, *values: object) -> None:
        """A line in the world's history, in this process's name."""
        if self.alive:
            self.world.say("%s: " + text, self.name, *values)

    # Stepping, for the world alone.

    def turn_at(self) -> float:
        """The world's time of its next turn; `NEVER` while it waits for the world."""
        if self.frozen:
            return NEVER
        busy_until, loop = self.busy_until, self.loop
        if loop.ready:
            return busy_until
        timer_at = loop.timer_at() + self._suspended_s
        return timer_at if timer_at > busy_until else busy_until

    def turn(self, callbacks_max: int) -> None:
        """Run callbacks of one iteration of its loop, up to that many, or until it is frozen or dead."""
        loop = self.loop
        asyncio._set_running_loop(loop)
        try:
            for _ in range(min(loop.begin(), callbacks_max)):
                loop.run_one()
                if self.frozen or not self.alive:
                    break
        finally:
            asyncio._set_running_loop(None)

    def bury(self) -> None:
        """Close what the dead process left suspended. Not from within its own turn."""
        if self._buried:
            return
        self._buried = True
        asyncio._set_running_loop(self.loop)
        try:
            for task in list(self.loop.tasks):
                close(task.get_coro())  # type: ignore[arg-type]
                task._log_destroy_pending = False
            for generator in self.loop.generators():
                if (
                    awaited := getattr(generator, "ag_await", None)
                ) is not None:  # What ends the task does not end this.
                    close(awaited)
        finally:
            asyncio._set_running_loop(None)
        self.loop.close()

    def where(self) -> str:
        """Lists where its tasks stand, a line each: for the reader of a failure."""
        state = "dead" if not self.alive else "frozen" if self.frozen else "waiting"
        lines = [f"{self.name} is {state}"]
        lines += [f"  {task.get_name()} {_standing(task)}" for task in self.loop.tasks]
        return "\n".join(lines)

    # Its ends.

    def _main_done(self, main: asyncio.Task[None]) -> None:
        if main.cancelled():
            self._end("was cancelled")
        elif error := main.exception():
            self.world.fail(f"the main task of {self.name} failed:\n{_trace(error)}", error)
        else:
            self._end("has ended")

    def _asyncio_error(self, context: dict[str, Any]) -> None:
        if self.alive:
            error = context.get("exception")
            self.world.fail(f"in {self.name}: {context['message']}\n{_trace(error)}", error)

    def _end(self, how: str) -> None:
        if not self.alive:
            return
        self.world.say("%s %s", self.name, how)
        self.alive = self.frozen = False
        self.loop.end()
        for callback in self._at_end:
            callback()
        self.world.ended(self)


def _trace(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error else ""


def _standing(task: asyncio.Task[Any]) -> str:
    """The coroutines that a task is suspended in, and the line of the innermost."""
    awaited: Any = task.get_coro()
    names, line = [], ""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        names.append(frame.f_code.co_qualname)
        line = f" ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = awaited.cr_await
    return "at " + " > ".join(names) + line
