"""The event loop of a command; asyncio is imported only once there is something to run."""

import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
EXIT_INTERRUPTED = 130


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run what is over soon.

    Ctrl-C ends the process at once, also while it reads its standard input: asyncio's own handler would wait
    for that, and an exception inside the loop would leave tasks that complain. What was printed is flushed;
    nothing else is left to be put in order.
    """
    import asyncio

    before = signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def end_on_sigterm() -> None:
    """Let SIGTERM end what runs as Ctrl-C does, so that nothing is left behind.

    To be called in the work itself: by then the loop's runner has a handler for Ctrl-C in place.
    """
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """Run what stays: on uvloop, where there is one. Ctrl-C cancels it, unless it has its own handler.

    Until then it ends the process: an exception while loading would leave `work` behind, never awaited.
    """
    if sys.platform == "win32":
        return run(work)
    import asyncio

    import uvloop

    before = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # In the place of which it puts its own.
            return runner.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
