"""The event loop of a command; asyncio is imported only if there is something to run."""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import click

from angarium.terminal import output

T = TypeVar("T")
EXIT_INTERRUPTED = 130
SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
"""Clears the line of a progress bar, and shows the cursor that it hides."""


def run(work: Coroutine[Any, Any, T], *, interrupted: str | Callable[[], str] = "") -> T:
    """Run a short task; `interrupted` is said if Ctrl-C ends it.

    Ctrl-C ends the process at once, even while it reads standard input: asyncio's own handler would wait for
    that, and an exception inside the loop would leave tasks that complain. Output is flushed; nothing else
    needs cleaning up.
    """
    import asyncio

    before = signal.signal(
        signal.SIGINT, lambda *_: _end(interrupted if isinstance(interrupted, str) else interrupted())
    )
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def confirm(question: str) -> bool:
    """Ask a question, on stderr; Ctrl-C ends the process, which has changed nothing yet."""
    text = "\nangarium: interrupted; nothing was changed\n"
    before = signal.signal(signal.SIGINT, lambda *_: _end(text))
    try:
        return click.confirm(f"{question}?", err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _end(text: str) -> NoReturn:
    """End the process at once. A progress bar would leave the terminal without its cursor."""
    clean = SHOW_CURSOR if output.stderr_can_redraw() else ""
    os.write(sys.stderr.fileno(), f"{clean}{text}".encode())
    os._exit(EXIT_INTERRUPTED)


def end_on_sigterm() -> None:
    """Let SIGTERM end the task like Ctrl-C, so that nothing is left behind.

    Call it within the task: by then the loop's runner has installed its handler for Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask a long task to end: SIGHUP says that its terminal was closed.

    A process that ignores SIGHUP, as with nohup, keeps ignoring it.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hangup)


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """Run a long task, on uvloop if that is installed. Ctrl-C cancels it, unless it has its own handler.

    Until it runs, Ctrl-C ends the process: an exception while loading would leave `work` unawaited.
    """
    if sys.platform == "win32":
        return run(work)
    import asyncio

    import uvloop

    before = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # The runner replaces it by its own.
            return runner.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
