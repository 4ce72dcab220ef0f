"""The flags `--since` and `--until` of commands that query the ledger."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def period(default: str | None = None) -> Callable[[Command], Command]:
    """Gives a command `--since`, with this default, and `--until`; `ask_ledger.period_ms` reads them."""

    def decorate(command: Command) -> Command:
        until = click.option("--until", metavar="TIME", help="Only before this time.")
        since = click.option(
            "--since", metavar="TIME", default=default, show_default=default is not None,
            help="Only since this time: 2h, 3d, 2026-01-31T12:00:00Z.",
        )  # fmt: skip
        return since(until(command))

    return decorate
