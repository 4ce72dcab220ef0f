"""The rates of tokens, and the texts that identify tokens."""

import pytest

from angarium.api.admission import request_rates
from angarium.api.admission.request_rates import RequestRates
from angarium.operations.tokens.secret import new_secret, parse_token


def test_a_rate_lets_in_so_many_a_second_and_no_more() -> None:
    rates = RequestRates()
    taken = [rates.take("a", 10.0, 1, at / 100).admitted for at in range(1000)]
    assert sum(taken) == pytest.approx(10 + 10 * 9.99, abs=1)


def test_a_batch_goes_into_debt_and_pays_it_back() -> None:
    rates = RequestRates()
    assert rates.take("a", 10.0, 100, 0.0).admitted
    refused = rates.take("a", 10.0, 1, 1.0)
    assert (refused.admitted, refused.remaining, refused.wait_s) == (False, 0, 9)
    assert rates.take("a", 10.0, 1, 9.2).admitted
    assert rates.take("b", 10.0, 1, 1.0).admitted


def test_a_token_is_known_by_its_text_alone_and_shows_nothing() -> None:
    made = new_secret()
    assert parse_token(made.text) == made
    assert made.secret not in repr(made)
    for text in ("", "ang_", made.text[:-1], made.text + "x", made.text.upper(), f"{made.text}\n"):
        assert parse_token(text) is None


def test_the_bucket_that_was_used_longest_ago_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rates, "KEPT_MAX", 2)
    rates = RequestRates()
    for token in ("a", "b", "a", "c"):
        rates.take(token, 10.0, 5, now=1.0)
    assert rates.take("a", 10.0, 5, now=1.0).admitted is False, "it was used after b"
    assert rates.take("b", 10.0, 5, now=1.0).remaining == 5, "it is as if it was not used"


def test_a_clock_that_goes_back_takes_nothing() -> None:
    rates = RequestRates()
    rates.take("a", 10.0, 4, now=5.0)
    assert rates.take("a", 10.0, 6, now=4.0).admitted
