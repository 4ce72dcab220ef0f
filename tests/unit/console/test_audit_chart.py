"""The chart of an audit: bars and limits on one scale, and as wide as the chart of the longest period."""

from angarium.console.rendering.audit_chart import PARTS_HEIGHT, audit_chart
from angarium.operations.ledger_queries.audit import AuditedPart

AT = "2026-11-27T10:00:00.000Z"


def part(attempts: int, most: int, allowed: int | None, learnt_min: float | None = None) -> AuditedPart:
    """A part of a period; the highest learnt rate in it is not drawn."""
    return AuditedPart(AT, attempts, most, allowed, learnt_min, learnt_min, None)


def test_bars_and_limits_have_one_scale() -> None:
    parts = [part(30, 10, 20), part(50, 40, 20, learnt_min=4.0), part(3, 1, None, learnt_min=50.0)]
    found = audit_chart(parts)
    assert [(each.height, each.limit, each.is_over) for each in found.bars] == [
        (PARTS_HEIGHT // 4, PARTS_HEIGHT // 2, False),
        (PARTS_HEIGHT, PARTS_HEIGHT // 2, True),
        (PARTS_HEIGHT // 40, None, False),
    ]
    assert [each.learnt for each in found.bars] == [None, PARTS_HEIGHT // 10, PARTS_HEIGHT]
    assert found.has_learnt
    assert found.most == 40
    assert found.bars[0].words == "from 10:00:00 UTC: at most 10 attempts in a second, 20 allowed"
    assert found.bars[2].words.endswith("1 attempts in a second, no limit, learnt 50 a second")


def test_a_short_period_has_narrow_bars() -> None:
    found = audit_chart([part(1, 1, 1)])
    assert found.width == audit_chart([part(1, 1, 1)] * 16).width == audit_chart([]).width
    assert not found.has_learnt
