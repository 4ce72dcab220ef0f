"""`angarium demo`: plays the scenario, shows it, and then checks the records."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from angarium.demo import table
from angarium.demo.receivers import CAST, DemoReceiver, standard_check
from angarium.demo.scenario import Scenario
from angarium.demo.verdict import CheckedPromise, check_promises
from angarium.terminal import output
from angarium.terminal.run import end_on_sigterm

REFRESHES_A_SECOND = 8


async def perform(*, quiet: bool) -> tuple[list[CheckedPromise], Path]:
    """The verdict, and the directory of the run, which stays only if a promise was broken.

    Raises click.ClickException if something is missing.
    """
    try:
        check = standard_check()
    except ImportError:
        raise click.ClickException(
            "the demo verifies signatures with standardwebhooks: install the extra embedded (see README)"
        ) from None
    end_on_sigterm()
    directory = Path(tempfile.mkdtemp(prefix="angarium-demo-"))
    keep_directory = False
    try:
        display = DemoDisplay([DemoReceiver(role, check) for role in CAST], quiet=quiet)
        scenario = Scenario(directory, display.receivers, display.show)
        with display.shown(scenario):
            await scenario.play()
        display.end()
        findings = check_promises([receiver.record for receiver in display.receivers])
        keep_directory = any(not finding.is_kept for finding in findings)
    except Exception:
        keep_directory = True  # The error names a log in this directory.
        raise
    finally:
        if not keep_directory:
            shutil.rmtree(directory, ignore_errors=True)
    return findings, directory


class DemoDisplay:
    """The audience's view: a live table, lines where none can be drawn, nothing if `quiet`."""

    def __init__(self, receivers: list[DemoReceiver], *, quiet: bool) -> None:
        self.receivers = receivers
        self._quiet = quiet
        self._happenings: list[str] = []

    def show(self, elapsed_s: float, what: str) -> None:
        """Show what happened."""
        line = table.happening(elapsed_s, what)
        self._happenings.append(line)
        if not self._quiet and not output.can_redraw():
            output.say(line)

    def shown(self, scenario: Scenario) -> AbstractContextManager[Any]:
        """Resources for the time of the scenario."""
        return nullcontext() if self._quiet or not output.can_redraw() else self._live(scenario)

    @contextmanager
    def _live(self, scenario: Scenario) -> Iterator[None]:
        from rich.console import Console, Group, RenderableType
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text

        def render() -> RenderableType:
            rows = Table(*table.HEADINGS, box=None, pad_edge=False, header_style="bold")
            for receiver in self.receivers:
                rows.add_row(*table.row(receiver))
            state = f"{scenario.elapsed_s:4.1f} s   node: {scenario.node}"
            return Group(*map(Text, self._happenings), Text(), rows, Text(), Text(state))

        # Rendered by a thread of its own, so that the receivers record requests without delay.
        console = Console(color_system="auto" if output.shows_colours() else None)
        with Live(
            get_renderable=render, console=console, refresh_per_second=REFRESHES_A_SECOND, transient=True
        ):
            yield

    def end(self) -> None:
        """Shows what stays on the screen."""
        if self._quiet:
            return
        if output.can_redraw():
            for line in self._happenings:
                output.say(line)
        output.say()
        output.say_table(table.HEADINGS, map(table.row, self.receivers))
