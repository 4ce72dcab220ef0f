"""Progress of a long task, drawn if the terminal can; nothing in a pipe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from angarium.terminal import output


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with how much is done, and of how much in total."""
    if not output.stderr_can_redraw():
        yield lambda *_: None
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
