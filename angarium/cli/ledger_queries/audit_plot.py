"""The chart of an audit as SVG or PNG: the attempts of each second, and the limit in force."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click
from msgspec import Struct

if TYPE_CHECKING:
    from angarium.operations.ledger_queries.audit import Audit

WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 64, 48
GRID_LINES = 4
GRID_WIDTH = 1.0
LIMIT_WIDTH = 2.0
ROUNDED_BY = 2.0
FONT = "font-family='system-ui, sans-serif'"
INK, FAINT, GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
BAR, OVER, LIMIT, LEARNT = "#3e7cb1", "#c8553d", "#c8553d", "#d9a441"
PIXELS_PER_UNIT = 2
"""Resolution of a PNG: it stays sharp on a screen with small pixels."""


class Rectangle(Struct, frozen=True):
    """A filled rectangle; `said` is shown where the mouse is over it."""

    x: float
    y: float
    width: float
    height: float
    color: str
    said: str


class Line(Struct, frozen=True):
    """A horizontal line from `x` on."""

    x: float
    y: float
    length: float
    color: str
    width: float


class Label(Struct, frozen=True):
    """A line of text; `x` is its begin or its end."""

    x: float
    y: float
    text: str
    size: int = 12
    anchor: Literal["start", "end"] = "start"
    color: str = FAINT


Shape: TypeAlias = Rectangle | Line | Label


def check(path: Path) -> None:
    """Raises click.UsageError if the file's kind is not one that can be drawn."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise click.UsageError(f"--plot {path}: write a name that ends with .svg or .png")
    if kind == ".png" and find_spec("PIL") is None:
        raise click.UsageError(
            f"--plot {path}: a PNG needs the extra png (see README); or write a name that ends with .svg"
        )


def draw(path: Path, found: "Audit", verdict: str) -> None:
    """Draw the chart to the file, as the kind that its name says. Raises OSError."""
    shapes = list(chart(found, verdict))
    if path.suffix.lower() == ".png":
        path.write_bytes(png(shapes))
    else:
        path.write_text(svg(shapes, f"{found.receiver}: {verdict}"), encoding="utf-8")


def chart(found: "Audit", verdict: str) -> Iterator[Shape]:
    """The chart: a bar for each part of the period, as high as its busiest second; a line at the limit.

    Two more lines show the lowest and the highest learnt rate, where one held.
    """
    from angarium.operations.ledger_queries.ledger_access import text

    learnt = [each.learnt.highest for each in found.chart if each.learnt is not None]
    top = max([1, *(max(each.most, each.allowed or 0) for each in found.chart), *learnt])
    room, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    width = room / max(1, len(found.chart))

    def y(value: float) -> float:
        return TOP + high * (1 - value / top)

    yield Label(LEFT, 28, found.receiver, size=18, color=INK)
    yield Label(LEFT, 48, f"{verdict}; {found.attempts} attempts")
    limits = "the limit, and the learnt rate" if learnt else "and the limit"
    yield Label(WIDTH - RIGHT, 48, f"attempts in the busiest second, {limits}", anchor="end")
    for line in range(GRID_LINES + 1):
        value = top * line / GRID_LINES
        yield Line(LEFT, y(value), room, GRID, GRID_WIDTH)
        yield Label(LEFT - 8, y(value) + 4, f"{value:.3g}", anchor="end")
    for number, each in enumerate(found.chart):
        x, over = LEFT + number * width, each.allowed is not None and each.most > each.allowed
        said = f"{text(each.at)}: {each.attempts} attempts, {each.most} in the busiest second"
        held = each.learnt
        if held is not None:
            said += f"; learnt rate {held.lowest:.3g} to {held.highest:.3g} ({held.limited_by})"
        begin, height, color = y(each.most), TOP + high - y(each.most), OVER if over else BAR
        yield Rectangle(x + width * 0.1, begin, width * 0.8, height, color, said)
        if each.allowed is not None:
            yield Line(x, y(each.allowed), width, LIMIT, LIMIT_WIDTH)
        if held is not None:
            for rate in (held.lowest, held.highest):
                yield Line(x, y(rate), width, LEARNT, LIMIT_WIDTH)
    if found.chart:
        below, parts = HEIGHT - BOTTOM + 20, [each.at for each in found.chart]
        end = parts[-1] + (parts[1] - parts[0] if len(parts) > 1 else 1000)
        yield Label(LEFT, below, str(text(parts[0])))
        yield Label(WIDTH - RIGHT, below, str(text(end)), anchor="end")


def svg(shapes: Sequence[Shape], title: str) -> str:
    """The shapes as SVG."""
    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' {FONT}>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
    ]
    for shape in shapes:
        match shape:
            case Rectangle(x, y, width, height, color, said):
                drawn.append(
                    f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' "
                    f"rx='{ROUNDED_BY:g}' fill='{color}'><title>{escape(said)}</title></rect>"
                )
            case Line(x, y, length, color, width):
                style = f"stroke='{color}' stroke-width='{width:g}'"
                drawn.append(f"<path d='M{x:.1f} {y:.1f}h{length:.1f}' {style}/>")
            case Label(x, y, text, size, anchor, color):
                style = f"font-size='{size}' text-anchor='{anchor}' fill='{color}'"
                drawn.append(f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>")
    return "\n".join([*drawn, "</svg>", ""])


def png(shapes: Sequence[Shape]) -> bytes:
    """The shapes as PNG, with a font that the library brings along."""
    from PIL import Image, ImageDraw, ImageFont  # Only this needs the extra.

    image = Image.new("RGB", (WIDTH * PIXELS_PER_UNIT, HEIGHT * PIXELS_PER_UNIT), "#ffffff")
    drawing = ImageDraw.Draw(image)

    def box(x: float, y: float, width: float, height: float) -> list[float]:
        return [side * PIXELS_PER_UNIT for side in (x, y, x + width, y + height)]

    for shape in shapes:
        match shape:
            case Rectangle(x, y, width, height, color):
                drawing.rounded_rectangle(box(x, y, width, height), ROUNDED_BY * PIXELS_PER_UNIT, color)
            case Line(x, y, length, color, width):
                drawing.rectangle(box(x, y - width / 2, length, width), color)
            case Label(x, y, text, size, anchor, color):
                font = ImageFont.load_default(size * PIXELS_PER_UNIT)
                at = x * PIXELS_PER_UNIT, y * PIXELS_PER_UNIT
                drawing.text(at, text, color, font, "ls" if anchor == "start" else "rs")
    written = BytesIO()
    image.save(written, "PNG")
    return written.getvalue()
