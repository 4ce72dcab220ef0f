"""Virtual time: a loop whose clock moves only when all tasks wait, and then at once."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when nothing else is left to do, and then at once."""

    def __init__(self) -> None:
        super().__init__(Skipping(self))
        self.skipped_s = 0.0
        self.get_debug = bool  # type: ignore[method-assign]  # False, and asked for each handle and future.

    def time(self) -> float:
        return self.skipped_s


class Skipping(selectors.SelectSelector):
    """A selector that does not wait, but moves its loop's time.

    The system is asked for what came from outside only when nothing else is left to do.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0) if timeout != 0 else []
        if not ready:
            assert timeout is not None, "everything waits, and nothing will ever happen"
            self._loop.skipped_s += timeout
        return ready


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on a loop whose time costs nothing."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        async def scenario() -> None:
            await test(*args, **named)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(scenario())

    return run
