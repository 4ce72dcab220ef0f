"""A chart of the last hour, by minute: accepted, delivered, failed, and how many events wait at its end."""

from msgspec import Struct

from actors.times_as_text import instant_text
from angarium.console.recent_minutes import HourByMinute
from angarium.operations.live.minute_totals import SECONDS_A_MINUTE, SPAN_MINUTES, SettledMinute

COLUMN_WIDTH = 12
COLUMN_HEIGHT = 80


class HourRow(Struct, frozen=True):
    """A minute; None: not known. `behind`: the events that waited at its end."""

    at: str
    accepted: int
    delivered: int | None
    failed: int | None
    behind: int | None


class HourColumn(Struct, frozen=True):
    """A minute in the chart: its place, the heights of its parts, and what it says."""

    x: int
    good: int
    bad: int
    behind: int
    words: str


class HourChart(Struct, frozen=True):
    """The minutes from the oldest on, as rows and as columns, and the sums.

    - `line`: the points of the accepted events.
    - `most`: the number that the highest column stands for; `most_behind`: that of the waiting events.
    """

    rows: list[HourRow]
    columns: list[HourColumn]
    line: str
    width: int
    most: int
    most_behind: int
    accepted: int
    delivered: int
    failed: int
    note: str


def hour_chart(hour: HourByMinute, waiting: int | None) -> HourChart:
    """The chart, with the number of events that wait now, from which the earlier ones are computed.

    Events that were discarded are not in the ledger's minutes, so before that fewer may be shown to wait.
    """
    rows = _rows(hour, waiting)
    most = max([1, *(max(each.accepted, (each.delivered or 0) + (each.failed or 0)) for each in rows)])
    most_behind = max([1, *(each.behind or 0 for each in rows)])
    columns = [
        HourColumn(
            x=number * COLUMN_WIDTH,
            good=_height(each.delivered, most),
            bad=_height(each.failed, most),
            behind=_height(each.behind, most_behind),
            words=_words(each),
        )
        for number, each in enumerate(rows)
    ]
    line = " ".join(
        f"{number * COLUMN_WIDTH + COLUMN_WIDTH // 2},{COLUMN_HEIGHT + 1 - _height(each.accepted, most)}"
        for number, each in enumerate(rows)
    )
    return HourChart(
        rows, columns, line, SPAN_MINUTES * COLUMN_WIDTH, most, most_behind,
        accepted=sum(each.accepted for each in rows),
        delivered=sum(each.delivered or 0 for each in rows),
        failed=sum(each.failed or 0 for each in rows),
        note=hour.note,
    )  # fmt: skip


def _rows(hour: HourByMinute, waiting: int | None) -> list[HourRow]:
    """The rows, computed from the present minute back."""
    rows, behind = list[HourRow](), waiting
    for minute in range(hour.last, hour.last - SPAN_MINUTES, -1):
        at, accepted = instant_text(minute * SECONDS_A_MINUTE), hour.accepted.get(minute, 0)
        if minute < hour.known_since:
            rows.append(HourRow(at, accepted, None, None, None))
            continue
        settled = hour.settled.get(minute) or SettledMinute()
        rows.append(HourRow(at, accepted, settled.delivered, settled.failed, behind))
        if behind is not None:
            behind = max(0, behind + settled.delivered + settled.given_up - accepted)
    return rows[::-1]


def _words(row: HourRow) -> str:
    known = "" if row.delivered is None else f", {row.delivered:,} delivered, {row.failed:,} failed"
    behind = "" if row.behind is None else f", {row.behind:,} waiting at its end"
    return f"{row.at[11:16]} UTC: {row.accepted:,} accepted{known}{behind}"


def _height(part: int | None, most: int) -> int:
    """The height of a part, at least one if there is something."""
    return max(1, round(part * COLUMN_HEIGHT / most)) if part else 0
