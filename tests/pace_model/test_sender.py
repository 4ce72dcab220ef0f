"""The sender keeps the product's rules: order, bounds, pauses and backoff."""

from itertools import pairwise
from random import Random

from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.pace.combined import CombinedRules
from actors.machine.state import OPEN_MAX
from tests.pace_model.receivers import Headers, Reply
from tests.pace_model.sender import Sender, SenderProfile
from tests.pace_model.timeline import Timeline


class ScriptedPlant:
    """A receiver that gives these answers in turn, the last one again and again, each after `latency_s`."""

    def __init__(self, timeline: Timeline, *answers: tuple[int, Headers], latency_s: float = 0.1) -> None:
        self._timeline, self._answers, self._latency_s = timeline, list(answers), latency_s
        self.times = list[float]()

    def receive(self, reply: Reply) -> None:
        self.times.append(self._timeline.now)
        status, headers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._timeline.plan(self._timeline.now + self._latency_s, reply, status, headers)


OK: tuple[int, Headers] = (200, ())
BROKEN: tuple[int, Headers] = (500, ())
TOO_MANY: tuple[int, Headers] = (429, ())


def sent(
    profile: SenderProfile, *answers: tuple[int, Headers], length_s: int = 10, latency_s: float = 0.1
) -> tuple[Sender, list[float]]:
    timeline = Timeline()
    plant = ScriptedPlant(timeline, *answers, latency_s=latency_s)
    sender = Sender(timeline, plant, profile, CombinedRules(), Random(1), length_s)
    timeline.plan(0.0, sender.start)
    timeline.run_until(length_s)
    return sender, plant.times


def test_strict_order_has_one_attempt_in_flight_and_retries_first() -> None:
    sender, times = sent(SenderProfile(strict=True), OK, BROKEN, OK)
    assert times[1] == 0.1
    assert 0.25 <= times[2] <= 2.2
    assert sender.open_events == 1


def test_relaxed_order_has_as_many_attempts_in_flight_as_configured() -> None:
    _, times = sent(SenderProfile(concurrency=8), OK, latency_s=1.0)
    assert times[:8] == [0.0] * 8
    assert times[8] == 1.0


def test_a_pause_that_was_asked_for_is_kept() -> None:
    _, times = sent(SenderProfile(strict=True), (429, (("retry-after", "3"),)), OK)
    assert times[:2] == [0.0, 3.1]


def test_refusals_at_once_make_one_short_pause() -> None:
    _, times = sent(SenderProfile(concurrency=16), *[TOO_MANY] * 16, OK)
    assert len([at for at in times if at < 0.1]) == 16
    assert 0.15 <= times[16] <= 2.2


def test_five_failures_in_a_row_leave_single_attempts() -> None:
    _, times = sent(SenderProfile(concurrency=16), BROKEN, length_s=60)
    later = [at for at in times if at > 0.2]
    assert FAILURES_IN_A_ROW_MAX < 16 <= len(times) - len(later)
    assert len(later) > 3
    assert all(after - before > 0.1 for before, after in pairwise(later))


def test_no_more_events_are_open_than_the_product_opens() -> None:
    sender, _ = sent(SenderProfile(base_s=60, cap_s=60), *[OK, BROKEN] * 400, OK, length_s=9)
    assert sender.open_events == OPEN_MAX


def test_an_attempt_that_takes_too_long_is_refused() -> None:
    sender, _ = sent(SenderProfile(concurrency=4, timeout_s=2.0), OK, length_s=3, latency_s=5.0)
    assert (sum(sender.tally.refused), sum(sender.tally.delivered)) == (4, 0)
