"""The chart of an audit: well-formed, to scale, with what exceeded its limit in another colour."""

from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from angarium.cli.ledger_records.audit_plot import BAR, OVER, check, draw
from angarium.ledger.audit import Bar
from angarium.operations.ledger_queries.audit import Audit
from angarium.operations.ledger_queries.ledger_access import LedgerLag

SVG = "{http://www.w3.org/2000/svg}"


def audit(*chart: Bar) -> Audit:
    known = LedgerLag(as_of=None, behind_s=0.0, gaps=[])
    return Audit("acme.<b>", "exceeded", "since", "until", 9, [], [], list(chart), known)


def bars(svg: str) -> list[tuple[str | None, float]]:
    """The colour and the height of each bar."""
    rectangles = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [(each.get("fill"), float(each.get("height", 0))) for each in rectangles if each.get("rx")]


def test_a_bar_is_as_high_as_its_busiest_second_and_says_so() -> None:
    drawn = draw(audit(Bar(1000, 4, 2, 5), Bar(2000, 20, 10, 5), Bar(3000, 0, 0, None)), "exceeded")
    (few, some), (over, many), (_, none) = bars(drawn)
    assert (few, over) == (BAR, OVER)
    assert some == pytest.approx(many / 5)
    assert none == 0
    assert "1970-01-01T00:00:02.000Z: 20 attempts, 10 in the busiest second" in drawn
    assert "1970-01-01T00:00:04.000Z" in drawn  # Where it ends.
    assert "acme.&lt;b&gt;" in drawn


def test_nothing_can_be_drawn() -> None:
    assert bars(draw(audit(), "no limit was in force")) == []


def test_only_svg_is_drawn() -> None:
    check(Path("a.SVG"))
    with pytest.raises(click.UsageError, match=r"ends with \.svg"):
        check(Path("a.png"))
