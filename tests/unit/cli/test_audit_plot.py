"""The chart of an audit: well-formed, to scale, with breaches of the limit in another colour."""

from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from PIL import Image

from angarium.cli.ledger_queries import audit_plot
from angarium.cli.ledger_queries.audit_plot import (
    BAR,
    BOTTOM,
    HEIGHT,
    LEARNT,
    LEFT,
    OVER,
    PIXELS_PER_UNIT,
    RIGHT,
    TOP,
    WIDTH,
    Line,
    chart,
    check,
    draw,
    png,
    svg,
)  # fmt: skip
from angarium.ledger.audit import Bar, LearntRange
from angarium.operations.ledger_queries.audit import Audit
from angarium.operations.ledger_queries.ledger_access import LedgerLag

SVG = "{http://www.w3.org/2000/svg}"


def audit(*chart: Bar) -> Audit:
    known = LedgerLag(as_of=None, behind_s=0.0, gaps=[])
    return Audit("acme.<b>", "exceeded", "since", "until", 9, [], [], list(chart), known)


def as_svg(*parts: Bar) -> str:
    return svg(list(chart(audit(*parts), "exceeded")), "acme.<b>")


def colour_at(image: Image.Image, x: int, y: int) -> str:
    pixel = image.getpixel((x * PIXELS_PER_UNIT, y * PIXELS_PER_UNIT))
    assert isinstance(pixel, tuple)
    return "#" + "".join(f"{each:02x}" for each in pixel)


def bars(svg: str) -> list[tuple[str | None, float]]:
    """The colour and the height of each bar."""
    rectangles = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [(each.get("fill"), float(each.get("height", 0))) for each in rectangles if each.get("rx")]


def test_a_bar_is_as_high_as_its_busiest_second_and_says_so() -> None:
    drawn = as_svg(Bar(1000, 4, 2, 5), Bar(2000, 20, 10, 5), Bar(3000, 0, 0, None))
    (few, some), (over, many), (_, none) = bars(drawn)
    assert (few, over) == (BAR, OVER)
    assert some == pytest.approx(many / 5)
    assert none == 0
    assert "1970-01-01T00:00:02.000Z: 20 attempts, 10 in the busiest second" in drawn
    assert "1970-01-01T00:00:04.000Z" in drawn  # Where it ends.
    assert "acme.&lt;b&gt;" in drawn


def test_lines_show_the_lowest_and_the_highest_learnt_rate() -> None:
    parts = Bar(1000, 4, 2, 10, LearntRange(4.0, 8.0, "smart", 4.0)), Bar(2000, 4, 2, 10)
    drawn, found = as_svg(*parts), chart(audit(*parts), "kept")
    lines = [each.y for each in found if isinstance(each, Line) and each.color == LEARNT]
    high = HEIGHT - TOP - BOTTOM
    assert lines == [pytest.approx(TOP + high * part) for part in (0.6, 0.2)]
    assert "2 in the busiest second; learnt rate 4 to 8 (smart)" in drawn
    assert "the limit, and the learnt rate" in drawn
    assert "learnt" not in as_svg(Bar(1000, 4, 2, 10))


def test_nothing_can_be_drawn() -> None:
    assert bars(as_svg()) == []


def test_a_png_shows_the_same_bars_and_words() -> None:
    """The picture has the colour of each bar at its place, and ink where each word begins."""
    image = Image.open(BytesIO(png(list(chart(audit(Bar(1000, 4, 2, 5), Bar(2000, 20, 10, 5)), "exceeded")))))
    assert image.size == (WIDTH * PIXELS_PER_UNIT, HEIGHT * PIXELS_PER_UNIT)
    middle = (WIDTH + LEFT - RIGHT) // 2
    seen = [colour_at(image, x, HEIGHT - BOTTOM - 4) for x in (middle - 50, middle + 50)]
    assert seen == [BAR, OVER]
    name = range(LEFT, LEFT + 80)
    assert {colour_at(image, x, 22) for x in name} > {"#ffffff"}


def test_the_name_says_what_is_drawn(tmp_path: Path) -> None:
    for path, begin in ((tmp_path / "a.SVG", b"<svg "), (tmp_path / "a.png", b"\x89PNG\r\n")):
        check(path)
        draw(path, audit(Bar(1000, 4, 2, 5)), "kept")
        assert path.read_bytes().startswith(begin)


def test_other_files_are_refused_and_png_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(click.UsageError, match=r"ends with \.svg or \.png"):
        check(Path("a.jpg"))
    monkeypatch.setattr(audit_plot, "find_spec", lambda name: None)
    check(Path("a.svg"))
    with pytest.raises(click.UsageError, match="needs the extra png"):
        check(Path("a.png"))
