"""The event loop of a command; asyncio is imported only once there is something to run."""

import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run what is over soon."""
    import asyncio

    return asyncio.run(work)


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """Run what stays: on uvloop, where there is one."""
    if sys.platform == "win32":
        return run(work)
    import uvloop

    return uvloop.run(work)
