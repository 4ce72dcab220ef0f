"""Ledger queries: times and statuses as people type them, the answer, and notes on its lag."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from angarium import quantities
from angarium.cli.invocation import options
from angarium.cli.invocation.perform import result_of
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.ledger_access import (
    CLOCK_AHEAD_MAX_S,
    LedgerLag,
    OpenLedger,
    open_ledger,
)
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import run

T = TypeVar("T")


def ask_ledger(settings: Settings, operation: Callable[[OpenLedger], Awaitable[T | NotDone]]) -> T:
    """Ask the ledger that the settings name; returns the answer. Raises NotDone."""
    return result_of(run(open_ledger(settings, operation)))


def period_ms(given: dict[str, Any]) -> tuple[int, int]:
    """The times of `--since` and `--until`, in milliseconds. Raises BadQuantity and click.UsageError."""
    since = past_ms("--since", given["since"]) if given["since"] else 0
    until = instant_ms("--until", given["until"]) if given["until"] else round(time.time() * 1000) + 1
    if until <= since:
        raise click.UsageError("--until is before --since")
    return since, until


def past_ms(flag: str, text: str) -> int:
    """A time in the past, in milliseconds. Raises BadQuantity and click.UsageError."""
    found = instant_ms(flag, text)
    if found > (time.time() + CLOCK_AHEAD_MAX_S) * 1000:
        raise click.UsageError(f"{flag} is in the future: {text}")
    return found


def instant_ms(flag: str, text: str) -> int:
    """The time that a flag gives, in milliseconds. Raises BadQuantity."""
    return round(options.quantity(flag, quantities.parse_time, text, time.time()) * 1000)


def status_range(text: str) -> tuple[int, int]:
    """`503`, or `5xx` for all of a class. Raises click.UsageError."""
    if len(text) == 3 and text[0] in "12345":
        if text[1:].lower() == "xx":
            return int(text[0]) * 100, int(text[0]) * 100 + 99
        if text.isdecimal():
            return int(text), int(text)
    raise click.UsageError(f"--status {text}: write a status, such as 503, or a class, such as 5xx")


def show_notes(standing: LedgerLag, since: int | None = None) -> None:
    """Say how far behind the ledger is, and which parts of a period it lacks, in addition to the answer.

    `since`: the beginning of the period, in milliseconds, if one was asked about.
    """
    for note in standing.notes + (standing.dropped_note(since) if since else []):
        output.note(f"note: {note}")
