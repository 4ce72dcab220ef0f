"""A chart of the last minutes of a receiver: a bar a minute, for delivered and failed attempts."""

from collections.abc import Sequence

from msgspec import Struct

from actors.times_as_text import instant_text
from angarium.operations.ledger_queries.minutes import Minute

BAR_WIDTH = 10
BAR_GAP = 2
CHART_HEIGHT = 80


class MinuteBar(Struct, frozen=True):
    """A bar: its place, the heights of its parts, and what it says."""

    x: int
    good: int
    bad: int
    words: str


class MinuteChart(Struct, frozen=True):
    """The bars from the oldest minute on, the height of the highest one, and the sums."""

    bars: list[MinuteBar]
    width: int
    most: int
    delivered: int
    failed: int


def minute_chart(minutes: Sequence[Minute], begin_ms: int, count: int) -> MinuteChart:
    """The chart of so many minutes from a time on."""
    by_at = {each.at: each for each in minutes}
    most = max((each.delivered + _failed(each) for each in minutes), default=0)
    bars: list[MinuteBar] = []
    for number in range(count):
        at = instant_text(begin_ms / 1000 + 60 * number)
        if (minute := by_at.get(at)) is not None:
            delivered, failed = minute.delivered, _failed(minute)
            words = f"{at[11:16]} UTC: {delivered:,} delivered, {failed:,} failed"
            x = number * (BAR_WIDTH + BAR_GAP)
            bars.append(MinuteBar(x, _height(delivered, most), _height(failed, most), words))
    delivered = sum(each.delivered for each in minutes)
    return MinuteChart(bars, count * (BAR_WIDTH + BAR_GAP), most, delivered, sum(map(_failed, minutes)))


def _failed(minute: Minute) -> int:
    return minute.failed + minute.throttled


def _height(part: int, most: int) -> int:
    """The height of a part, at least one if there is something."""
    return max(1, round(part * CHART_HEIGHT / most)) if part else 0
