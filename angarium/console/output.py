"""What commands show: tables and sentences for people, lines with tabs for pipes, JSON for programs.

What came from outside (the body of an answer, an event, a header) may hold control characters that would move
the cursor or worse; they are shown, never obeyed.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec


def on_terminal() -> bool:
    """Whether standard output is seen by a person."""
    return sys.stdout.isatty()


def answers_come() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(text: str = "") -> None:
    """A line of the answer."""
    click.echo(text)


def note(text: str) -> None:
    """A line for people beside the answer, to stderr, so that it never gets into a pipe."""
    click.echo(text, err=True)


def say_json(data: Any) -> None:
    """One document, for `--json`."""
    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))


def say_json_line(data: Any) -> None:
    """One document of many, a line each, for `--json`."""
    click.echo(msgspec.json.encode(data))


def say_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; headings and rows with tabs between in a pipe."""
    texts = [[visible(shown(cell)) for cell in row] for row in rows]
    if not on_terminal():
        for row in [list(headings), *texts]:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    Console().print(table)


def shown(value: object) -> str:
    """A value as people write it: yes, no, and - for nothing."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def visible(text: str) -> str:
    """The text with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_of(text: str, length: int) -> str:
    """The beginning of a text, in one line, with `…` where it goes on."""
    return visible(text if len(text) <= length else text[: length - 1] + "…")
