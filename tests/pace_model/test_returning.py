"""Many receivers of one host come back together: how large the wave is, with and without each rule."""

import pytest

from tests.pace_model.returning import CASES, RULES, Case, peak

COUNT = 1000
"""A tenth of 10,000, whose peaks are the same multiples."""
CHANCE = 1.3
"""A tenth of a second counts few starts of so few receivers: their number varies by so much."""
FAST = [case for case in CASES if case.per_second >= 1]


@pytest.mark.parametrize("case", FAST, ids=[case.name for case in FAST])
def test_with_both_rules_no_wave_is_above_the_sum_of_the_rates(case: Case) -> None:
    assert peak(case, RULES["both"], COUNT) < CHANCE


def test_without_a_rule_saved_tokens_make_a_wave() -> None:
    assert peak(CASES[0], RULES["none"], COUNT) > 2


def test_without_jitter_receivers_that_begin_at_once_stay_in_step() -> None:
    assert peak(CASES[4], RULES["empty bucket"], COUNT) > 5


def test_with_full_buckets_jitter_alone_does_not_help() -> None:
    assert peak(CASES[0], RULES["jitter"], COUNT) > 2
