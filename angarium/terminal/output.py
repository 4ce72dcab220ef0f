"""Output of commands: tables and sentences for people, lines with tabs for pipes, JSON for programs.

Text from outside (the body of an answer, an event, a header) may contain control characters that would move
the cursor or worse; they are shown, never sent to the terminal as they are.
"""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click
import msgspec

from angarium import escaping

visible = escaping.visible

COLUMN_GAP = 2
"""Blanks between two columns of a table."""
CUT_LENGTH_MIN = 8
"""Characters that stay visible of a cut cell."""
WIDE_COLUMNS = 10_000
CLEARED = "\x1b[H\x1b[2J\x1b[3J"
CONTINUED_INDENT = 4
"""Blanks before the rest of a line on a terminal that is too narrow for its usual indentation."""


def is_terminal() -> bool:
    """True if standard output is seen by a person."""
    return sys.stdout.isatty()


def shows_colours() -> bool:
    """True if standard output shows colours, and they are wanted (https://no-color.org)."""
    return can_redraw() and not os.environ.get("NO_COLOR")


def stderr_shows_colours() -> bool:
    """True if standard error shows colours, and they are wanted."""
    return stderr_can_redraw() and not os.environ.get("NO_COLOR")


def can_redraw() -> bool:
    """True if the terminal can redraw lines, for example a progress bar."""
    return is_terminal() and _terminal_redraws()


def stderr_can_redraw() -> bool:
    """True if standard error can show a progress bar, even if standard output goes into a pipe."""
    return sys.stderr.isatty() and _terminal_redraws()


def _terminal_redraws() -> bool:
    return os.environ.get("TERM") not in ("dumb", "unknown")


def can_ask() -> bool:
    """True if a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def styled(text: str, colour: str) -> str:
    """The text in a colour, which `say` leaves out if it is not wanted."""
    return click.style(text, fg=colour)


def say(text: str = "") -> None:
    """Print a line of the answer."""
    click.echo(text, color=shows_colours())


def clear() -> None:
    """Clear the terminal, whether colours are wanted or not; only if it `can_redraw`."""
    click.echo(CLEARED, nl=False, color=True)


def note(text: str) -> None:
    """Print a line for people to stderr, in addition to the answer, so that it never gets into a pipe."""
    click.echo(text, err=True)


def newest(limit: int) -> str:
    """The note that a list shows only its newest rows."""
    return "this is the newest one" if limit == 1 else f"these are the newest {limit}"


def note_left_out(headings: Sequence[str], shown: Collection[str]) -> None:
    """Name the columns of a table that were left out."""
    left_out = [each for each in headings if each not in shown]
    note(f"note: {len(left_out)} columns left out ({', '.join(left_out)}): --wide shows them")


def say_wrapped(text: str, prefix: str = "", *, indent: int | None = None) -> None:
    """Print a line; on a terminal, words that do not fit continue below it, indented as far as the prefix."""
    if not is_terminal():
        say(prefix + text)
        return
    columns = shutil.get_terminal_size().columns
    begin = width(click.unstyle(prefix))
    indent = begin if indent is None else indent
    if indent > columns // 2:
        indent = CONTINUED_INDENT
    line, room = "", columns - begin
    for word in text.split(" "):
        if line and width(line) + 1 + width(word) > room:
            say(prefix + line)
            prefix, line, room = " " * indent, word, columns - indent
        else:
            line = f"{line} {word}" if line else word
    say(prefix + line)


def say_json(data: Any) -> None:
    """Print one document, for `--json`."""
    click.echo(msgspec.json.format(_json(data), indent=2))


def say_json_line(data: Any) -> None:
    """Print one of several documents in one line, for `--json`."""
    click.echo(_json(data))


def _json(data: Any) -> str:
    return escaping.visible_json(msgspec.json.encode(data).decode())


def say_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    cut: Collection[str] = (),
    wide: bool = False,
) -> None:
    """Print a table on a terminal, or rows with tabs into a pipe.

    If the terminal is too narrow, the columns named in `cut` are shortened, the first named first. If that is
    not enough, cells continue on the next line. A `wide` table is as wide as it needs to be.
    """
    texts = [[visible(shown(cell)) for cell in row] for row in rows]
    if not is_terminal():
        for row in [list(headings), *texts]:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = shutil.get_terminal_size().columns
    texts = _cut(headings, texts, cut, columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    Console(color_system="auto" if shows_colours() else None, width=WIDE_COLUMNS if wide else columns).print(
        table
    )


def fits(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> bool:
    """True if the terminal is wide enough for the whole table."""
    texts = [[visible(shown(cell)) for cell in row] for row in rows]
    return _table_width(_widths(headings, texts)) <= shutil.get_terminal_size().columns


def _widths(headings: Sequence[str], rows: list[list[str]]) -> list[int]:
    return [max(map(width, column)) for column in zip(headings, *rows, strict=True)]


def _table_width(widths: list[int]) -> int:
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)


def _cut(
    headings: Sequence[str], rows: list[list[str]], cut: Collection[str], columns: int
) -> list[list[str]]:
    """The rows with these columns shortened to fit the terminal."""
    widths = _widths(headings, rows)
    excess = _table_width(widths) - columns
    for name in cut:
        i = headings.index(name)
        taken = max(0, min(excess, widths[i] - CUT_LENGTH_MIN))
        widths[i] -= taken
        excess -= taken
    return [[first_of(text, columns) for text, columns in zip(row, widths, strict=True)] for row in rows]


def shown(value: object) -> str:
    """A value as people write it: yes, no, and - for nothing."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def first_of(text: str, length: int) -> str:
    """The beginning of a text in one line of at most `length` columns, with `…` if it is cut."""
    beginning = visible(text[:length])
    if len(text) <= length and width(beginning) <= length:
        return beginning
    kept, taken = "", 0
    for c in beginning:
        taken += width(c)
        if taken >= length:
            break
        kept += c
    return f"{kept}…"


def width(text: str) -> int:
    """Columns that a text takes on a terminal: there are characters that take two, or none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
