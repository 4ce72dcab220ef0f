"""The limits that `inspect` shows, and when the next attempt may begin."""

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.event import Event
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.rate_status import bucket_state
from actors.status import why
from tests.unit.worlds.values import NOW, policy

SLOW, FAST = Rate(limit=30, per="minute", burst=4), Rate(limit=10)


def test_all_limits_that_hold_are_shown_the_slowest_first() -> None:
    limit = RateLimit(0.5, 4, (RateLimit(10.0, 10),))
    state = State(receiver="a.b", limit=limit, bucket=Bucket(1.0, NOW, 1, (9.0,)))
    shown = bucket_state(state, policy(rates=(FAST, SLOW)), state.bucket, NOW)
    assert shown is not None
    assert (shown["per"], shown["tokens"]) == ("minute", 1.0)
    assert shown["others"] == [
        {"tokens": 9.0, "limit": 10, "per": "second", "burst": 10, "effective_limit": 10.0}
    ]


def test_a_limit_that_is_not_in_force_yet_is_not_shown() -> None:
    state = State(receiver="a.b", limit=RateLimit(0.5, 4), bucket=Bucket(1.0, NOW, 1))
    shown = bucket_state(state, policy(rates=(FAST, SLOW)), state.bucket, NOW)
    assert shown is not None
    assert "others" not in shown


def test_a_margin_shows_in_the_limit_in_force() -> None:
    state = State(receiver="a.b", limit=RateLimit(9.0, 9), bucket=Bucket(1.0, NOW, 1))
    shown = bucket_state(state, policy(rates=(replace(FAST, margin=0.9),)), state.bucket, NOW)
    assert shown is not None
    assert (shown["limit"], shown["effective_limit"], shown["burst"]) == (10, 9.0, 9)
    assert shown.get("margin") == 0.9


@pytest.mark.parametrize(("per_second", "words"), [(0.5, "3s"), (16.0, "less than 1s")])
def test_a_wait_of_less_than_a_second_is_not_rounded_up(per_second: float, words: str) -> None:
    empty = Bucket(0.0, NOW, 1)
    state = State(receiver="a.b", opened=True, limit=RateLimit(per_second, 4), bucket=empty)
    head = Event(position=9, id="e1", stored_at=NOW, body=b"{}")
    view = View(waiting=(head,), bucket=empty)
    said = why(state, policy(rates=(FAST,)), view, NOW, backlog=1, problems=[])
    assert said == f"held back by its rate of 10 per second; the next in {words}"
