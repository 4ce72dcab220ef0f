"""The chart of an audit as SVG: the attempts of each second, and the limit in force."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from angarium.operations.ledger_queries.audit import Audit

WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 64, 48
GRID_LINES = 4
FONT = "font-family='system-ui, sans-serif'"
INK, FAINT, BAR, OVER, LIMIT = "#1f2933", "#9aa5b1", "#3e7cb1", "#c8553d", "#c8553d"


def check(path: Path) -> None:
    """Raises click.UsageError if the file's kind is not one that can be drawn."""
    if path.suffix.lower() != ".svg":
        raise click.UsageError(
            f"--plot {path}: only SVG is drawn; write a name that ends with .svg (any browser shows it, "
            "and rsvg-convert makes a PNG of it)"
        )


def draw(found: "Audit", verdict: str) -> str:
    """The chart: a bar a part of the time, as high as its busiest second; a line at what was allowed."""
    from angarium.operations.ledger_queries.ledger_access import text

    top = max([1, *(max(each.most, each.allowed or 0) for each in found.chart)])
    room, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    width = room / max(1, len(found.chart))

    def y(value: float) -> float:
        return TOP + high * (1 - value / top)

    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' {FONT}>",
        f"<title>{escape(found.receiver)}: {escape(verdict)}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
        _text(LEFT, 28, found.receiver, size=18, weight=600),
        _text(LEFT, 48, f"{verdict}; {found.attempts} attempts", color=FAINT),
    ]
    for line in range(GRID_LINES + 1):
        value = top * line / GRID_LINES
        drawn.append(
            f"<path d='M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}' stroke='{FAINT}' stroke-opacity='.3'/>"
        )
        drawn.append(_text(LEFT - 8, y(value) + 4, f"{value:.3g}", anchor="end", color=FAINT))
    for number, each in enumerate(found.chart):
        x, over = LEFT + number * width, each.allowed is not None and each.most > each.allowed
        said = f"{text(each.at)}: {each.attempts} attempts, {each.most} in the busiest second"
        drawn.append(
            f"<rect x='{x + width * 0.1:.1f}' y='{y(each.most):.1f}' width='{width * 0.8:.1f}' rx='2' "
            f"height='{TOP + high - y(each.most):.1f}' fill='{OVER if over else BAR}'>"
            f"<title>{said}</title></rect>"
        )
        if each.allowed is not None:
            drawn.append(
                f"<path d='M{x:.1f} {y(each.allowed):.1f}h{width:.1f}' stroke='{LIMIT}' stroke-width='2'/>"
            )
    if found.chart:
        below, parts = HEIGHT - BOTTOM + 20, [each.at for each in found.chart]
        end = parts[-1] + (parts[1] - parts[0] if len(parts) > 1 else 1000)
        drawn.append(_text(LEFT, below, str(text(parts[0])), color=FAINT))
        drawn.append(_text(WIDTH - RIGHT, below, str(text(end)), anchor="end", color=FAINT))
    legend = "attempts in the busiest second, and the limit"
    drawn.append(_text(WIDTH - RIGHT, 48, legend, anchor="end", color=FAINT))
    return "\n".join([*drawn, "</svg>", ""])


def _text(
    x: float,
    y: float,
    what: str,
    *,
    size: int = 12,
    weight: int = 400,
    anchor: str = "start",
    color: str = INK,
) -> str:
    style = f"font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' fill='{color}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(what)}</text>"
