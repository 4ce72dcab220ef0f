"""The event loop of a command; asyncio is imported only once there is something to run."""

import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run what is over soon.

    Ctrl-C ends it at once, also while it reads its standard input: asyncio's own handler would wait for that.
    """
    import asyncio

    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """Run what stays: on uvloop, where there is one."""
    if sys.platform == "win32":
        return run(work)
    import uvloop

    return uvloop.run(work)
