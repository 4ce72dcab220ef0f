"""The chart of the last hour: its rows, from the present minute back, and its columns."""

from angarium.console.recent_minutes import HourByMinute
from angarium.console.rendering.hour_chart import COLUMN_HEIGHT, hour_chart
from angarium.operations.live.minute_totals import SettledMinute

LAST = 30_000_000


def test_waiting_events_are_computed_back_from_those_of_now() -> None:
    """Ten came two minutes ago, four were delivered and one given up one minute ago: five wait now."""
    hour = HourByMinute(
        LAST, {LAST - 2: 10, LAST: 0}, {LAST - 1: SettledMinute(4, 3, 1)}, known_since=LAST - 59
    )
    found = hour_chart(hour, 5)
    assert len(found.rows) == len(found.columns) == 60
    assert [each.behind for each in found.rows[-4:]] == [0, 10, 5, 5]
    assert [each.accepted for each in found.rows[-4:]] == [0, 10, 0, 0]
    assert (found.accepted, found.delivered, found.failed) == (10, 4, 3)
    assert (found.most, found.most_behind) == (10, 10)
    assert [(each.good, each.bad, each.behind) for each in found.columns[-3:]] == [
        (0, 0, COLUMN_HEIGHT),
        (32, 24, 40),
        (0, 0, 40),
    ]
    assert found.columns[-2].words == "07:59 UTC: 0 accepted, 4 delivered, 3 failed, 5 waiting at its end"


def test_minutes_that_are_not_known_are_not_zero() -> None:
    found = hour_chart(HourByMinute(LAST, {LAST - 1: 2}, {}, known_since=LAST), 0)
    assert (found.rows[-2].delivered, found.rows[-2].behind) == (None, None)
    assert (found.rows[-1].delivered, found.rows[-1].behind) == (0, 0)
    assert found.columns[-2].words.endswith(": 2 accepted")


def test_a_hole_in_what_is_known_makes_no_negative_numbers() -> None:
    hour = HourByMinute(LAST, {LAST: 100}, {}, known_since=LAST - 59)
    assert [each.behind for each in hour_chart(hour, 3).rows[-2:]] == [0, 3]
    assert hour_chart(hour, None).rows[-1].behind is None
