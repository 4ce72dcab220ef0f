"""Words of the console: for every phase and every limit, and numbers and times for people."""

from typing import get_args

import pytest

from actors.machine.scheduling.phases import PHASES, Phase
from angarium.console.rendering import labels
from angarium.console.rendering.minute_chart import CHART_HEIGHT, minute_chart
from angarium.operations.ledger_queries.minutes import Minute
from angarium.operations.receiver_list.throughput import Bottleneck


def test_every_phase_and_every_limit_has_words_and_every_phase_a_tone() -> None:
    assert set(labels.PHASE_WORDS) == set(labels.PHASE_TONES) == set(PHASES)
    assert set(labels.LIMIT_WORDS) == set(get_args(Bottleneck))
    assert (labels.phase_words(None), labels.phase_tone(None)) == ("not known", "calm")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "not known"), (0.0, "0 s"), (59.4, "59.4 s"), (90.0, "2 min"), (3600.0, "1 h 0 min"),
     (5400.0, "1 h 30 min"), (90_000.0, "1 d 1 h")],
)  # fmt: skip
def test_a_span_has_two_units_at_most(seconds: float | None, words: str) -> None:
    assert labels.span(seconds) == words


@pytest.mark.parametrize(
    ("waiting", "empty_in_s", "words"),
    [(0, 0.0, "it is empty"), (0, None, "it is empty"), (None, None, "not known"),
     (5, None, labels.NO_END), (5, 90.0, "2 min")],
)  # fmt: skip
def test_the_end_of_a_backlog_is_in_words(waiting: int | None, empty_in_s: float | None, words: str) -> None:
    assert labels.until_empty(waiting, empty_in_s) == words


def test_numbers_have_separators() -> None:
    numbers = (None, 0, 1234567, 0.25, 1234.5)
    assert [labels.number(each) for each in numbers] == ["–", "0", "1,234,567", "0.25", "1,234.5"]


def test_figures_have_one_decimal_at_most_or_two_digits() -> None:
    figures = (1.30963, 17.978, 8.0, 0.033333, 0.0)
    assert [labels.number(each) for each in figures] == ["1.3", "18", "8", "0.033", "0"]


@pytest.mark.parametrize(
    ("phase", "why", "reason"),
    [("paused", "paused", ""), ("paused", "nothing waits; paused", "nothing waits"),
     ("backing_off", "backing off until 12:00: it answered 503", "until 12:00: it answered 503"),
     ("disabled", "nothing waits; disabled: it answered 410", "nothing waits; it answered 410"),
     ("active", "an attempt is under way", "an attempt is under way")],
)  # fmt: skip
def test_a_reason_does_not_repeat_the_words_of_the_badge(phase: Phase, why: str, reason: str) -> None:
    assert labels.reason(phase, why) == reason


def test_the_words_for_a_learnt_rate_recommend_nothing() -> None:
    """Read-only users read them, and to forget the rate brings back what taught it."""
    assert labels.limit_words("pace") == "its learnt rate"


def test_a_chart_has_a_bar_for_each_minute_in_which_something_happened() -> None:
    def minute(at: str, delivered: int, failed: int, throttled: int = 0) -> Minute:
        return Minute(at, 0, delivered, failed, throttled, 0, None, None, None, None, 0)

    chart = minute_chart(
        [minute("1970-01-01T00:01:00.000Z", 1000, 0), minute("1970-01-01T00:03:00.000Z", 499, 1, 500)], 0, 60
    )
    assert [(each.x, each.good, each.bad) for each in chart.bars] == [
        (12, CHART_HEIGHT, 0), (36, 40, 40)
    ]  # fmt: skip
    assert chart.bars[1].words == "00:03 UTC: 499 delivered, 501 failed"
    assert (chart.most, chart.delivered, chart.failed) == (1000, 1499, 501)
    assert minute_chart([], 0, 60).bars == []
