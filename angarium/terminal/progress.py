"""Progress of a long task: a bar if the terminal can draw it, else a line from time to time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from angarium.terminal import output

LINE_EVERY_S = 10.0
"""Time between two lines; a task that ends before the first one says nothing."""


def _lines(what: str) -> Callable[[int, int], None]:
    """A function that says from time to time how much is done."""
    due_at = time.monotonic() + LINE_EVERY_S

    def show(done: int, total: int) -> None:
        nonlocal due_at
        if time.monotonic() >= due_at:
            due_at = time.monotonic() + LINE_EVERY_S
            output.note(f"{what}: {done} of {total}")

    return show


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with how much is done, and of how much in total."""
    if not output.stderr_can_redraw():
        yield _lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    colours: Literal["auto"] | None = "auto" if output.stderr_shows_colours() else None
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True, color_system=colours), transient=True) as bar:
        task = bar.add_task(what, total=None, count="")
        yield lambda done, total: bar.update(task, completed=done, total=total, count=f"{done}/{total}")
