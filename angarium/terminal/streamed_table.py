"""A table whose rows come one by one, so that its widths cannot depend on them."""

import shutil
from collections.abc import Mapping, Sequence

import click

from angarium.terminal import output

FLEXIBLE_WIDTH_MIN = 8


class StreamedTable:
    """Prints a row as soon as it comes: cut to the terminal's width, or with tabs into a pipe.

    `widths`: those of the columns whose cells have a known length; the others share the room that is left,
    in the proportion of `shares`. A `wide` table cuts nothing.
    """

    def __init__(
        self,
        headings: Sequence[str],
        widths: Mapping[str, int],
        *,
        shares: Mapping[str, int] | None = None,
        wide: bool = False,
    ) -> None:
        self._headings = headings
        self._wide = wide
        self._on_terminal = output.is_terminal()
        room = shutil.get_terminal_size().columns - output.COLUMN_GAP * (len(headings) - 1)
        self._widths = dict(widths) | _shared(room - sum(widths.values()), shares or {})

    def say_headings(self) -> None:
        """Print the headings, on a terminal only."""
        if self._on_terminal:
            output.say(click.style(self._line(self._headings), bold=True))

    def say(self, row: Sequence[object]) -> None:
        """Print one row."""
        texts = [output.visible(output.shown(cell)) for cell in row]
        output.say(self._line(texts) if self._on_terminal else "\t".join(texts))

    def _line(self, texts: Sequence[str]) -> str:
        cells = []
        for heading, text in zip(self._headings, texts, strict=True):
            columns = self._widths[heading]
            cell = text if self._wide else output.first_of(text, columns)
            cells.append(cell + " " * (columns - output.width(cell)))
        return (" " * output.COLUMN_GAP).join(cells).rstrip()


def _shared(room: int, shares: Mapping[str, int]) -> dict[str, int]:
    """The room in these shares, the rest of it to the last one."""
    total, left, widths = sum(shares.values()), room, dict[str, int]()
    for name, share in shares.items():
        widths[name] = max(FLEXIBLE_WIDTH_MIN, room * share // total)
        left -= widths[name]
    if shares:
        widths[name] += max(0, left)
    return widths
