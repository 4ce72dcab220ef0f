"""Long-running tasks: how their end is awaited, and what is said and done if an exception ends them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks, and return when all have ended."""
    running = [each for each in tasks if each is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def on_defect(part: str, on_broken: Callable[[str], None]) -> Callable[[asyncio.Task[Any]], None]:
    """A done callback for tasks that work for `part`; calls `on_broken` if one raised."""

    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report_defect(part, on_broken, error)

    return ended


def report_defect(part: str, on_broken: Callable[[str], None], error: BaseException) -> None:
    """Log an exception that ends work for `part`, and call `on_broken`."""
    log.error(f"{part}.broken", exc_info=error)
    on_broken(f"its {part} broke")


def reporting(message: str) -> Callable[[asyncio.Task[Any]], None]:
    """A done callback that reports the exception of a task to the handler of its event loop."""

    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report = {"message": message, "exception": error, "task": task}
            task.get_loop().call_exception_handler(report)

    return ended
