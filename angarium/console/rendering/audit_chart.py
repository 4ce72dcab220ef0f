"""A chart of an audit: a bar for the busiest second of each part of the period, and a line at its limit."""

from collections.abc import Sequence

from msgspec import Struct

from angarium.ledger.audit import BARS_MAX
from angarium.operations.ledger_queries.audit import AuditedPart

PART_WIDTH = 40
PART_GAP = 4
PARTS_HEIGHT = 120


class AuditBar(Struct, frozen=True):
    """A part: its place, the heights of its bar, limit and learnt rate (None: none), and its words."""

    x: int
    height: int
    limit: int | None
    learnt: int | None
    is_over: bool
    words: str


class AuditChart(Struct, frozen=True):
    """The bars from the oldest part on, the width of the most bars, and the most that they reach."""

    bars: list[AuditBar]
    width: int
    most: int

    @property
    def has_learnt(self) -> bool:
        """True if some part has a learnt rate."""
        return any(each.learnt is not None for each in self.bars)


def audit_chart(parts: Sequence[AuditedPart]) -> AuditChart:
    """The chart of the parts of an audit."""
    most = max([1, *(max(each.most, each.allowed or 0) for each in parts)])
    bars = [
        AuditBar(
            x=number * (PART_WIDTH + PART_GAP),
            height=max(1, round(each.most * PARTS_HEIGHT / most)) if each.most else 0,
            limit=None if each.allowed is None else round(each.allowed * PARTS_HEIGHT / most),
            learnt=None
            if each.learnt_min is None
            else min(round(each.learnt_min * PARTS_HEIGHT / most), PARTS_HEIGHT),
            is_over=each.allowed is not None and each.most > each.allowed,
            words=_words(each),
        )
        for number, each in enumerate(parts)
    ]
    return AuditChart(bars, BARS_MAX * (PART_WIDTH + PART_GAP), most)


def _words(part: AuditedPart) -> str:
    allowed = "no limit" if part.allowed is None else f"{part.allowed:,} allowed"
    learnt = "" if part.learnt_min is None else f", learnt {part.learnt_min:.3g} a second"
    return f"from {(part.at or '')[11:19]} UTC: at most {part.most:,} attempts in a second, {allowed}{learnt}"
