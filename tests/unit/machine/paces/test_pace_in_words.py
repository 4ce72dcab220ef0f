"""The learnt pace in the words of `inspect` and of the history."""

import pytest

from actors.configuration.policy import Adaptive, Policy
from actors.machine.pace.pace import HeaderLimit, LoweredRate, Pace, ProbedRate
from actors.machine.scheduling.pace_in_words import lesson_words, pace_words
from actors.machine.state import State

NOW = 1_700_000_000.0
SMART = Adaptive(smart=True)


@pytest.mark.parametrize(
    ("adaptive", "pace", "words"),
    [
        (SMART, None, "5 a second (it has had no trouble so far, and grows)"),
        (SMART, Pace(probed=ProbedRate(proven=20)), "40 a second (it has had no trouble so far, and grows)"),
        (
            SMART, Pace(probed=ProbedRate(proven=20, ceiling=20, low=18, at=NOW, lowered_at=NOW)),
            "18 a second (lowered after a refusal; it rises while answers are good)",
        ),
        (
            SMART, Pace(probed=ProbedRate(proven=20, ceiling=20, low=18, at=NOW, lowered_at=NOW, slow=True)),
            "18 a second (lowered after slower answers; it rises while answers are good)",
        ),
        (
            Adaptive(), Pace(lowered=LoweredRate(2.5, 5.0, NOW)),
            "2.5 a second (lowered after a 429; it rises while answers are good)",
        ),
        (
            Adaptive(), Pace(told=HeaderLimit(3.0, NOW + 9)),
            "3 a second (its headers say that little is left)",
        ),
    ],
    ids=["smart at first", "smart", "smart after a refusal", "smart after slow answers", "429", "headers"],
)  # fmt: skip
def test_the_words_say_the_rate_and_its_reason(adaptive: Adaptive, pace: Pace | None, words: str) -> None:
    policy = Policy(url="https://a.example", adaptive=adaptive)
    assert pace_words(State(receiver="a.b", pace=pace), policy, NOW) == f"its learnt rate of {words}"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((0.0, "headers", None, ""), "paced to nothing for a while: its headers say that nothing is left"),
        (
            (4.0, "after_429", 2, "concurrency"),
            "learnt rate of 4 a second (lowered after a 429; it rises while answers are good); "
            "2 attempts at a time, by concurrency",
        ),
        ((None, "", None, ""), "no learnt rate holds it back any more"),
    ],
    ids=["nothing left", "both", "neither"],
)
def test_a_lesson_says_its_limits(limits: tuple[float | None, str, int | None, str], words: str) -> None:
    assert lesson_words(Pace(), *limits) == words
