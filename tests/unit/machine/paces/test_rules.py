"""The rules that learn, observation by observation."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.machine.pace.after_429 import After429Rule
from actors.machine.pace.combined import CombinedRules
from actors.machine.pace.concurrency import ConcurrencyRule
from actors.machine.pace.headers import HeadersRule
from actors.machine.pace.pace import (
    HeaderLimit,
    InFlightLimit,
    Observation,
    Pace,
    PaceLimits,
    PaceRule,
    ProbedRate,
)
from actors.machine.pace.quota_headers import Quota
from actors.machine.pace.smart import (
    CUT_FACTOR,
    EFFECT_TIME_S,
    IN_FLIGHT_FACTOR,
    RETURN_S,
    START_RATE,
    YIELD_FACTOR,
    SmartRule,
)
from tests.pace_model.other_rules import FewWaiting, LatencyGradient

NOW = 1_700_000_000.0
REFUSED = Observation(started_per_s=40, answers=9, throttled=1, refused_began_at=NOW)


def rate_of(rule: PaceRule, pace: Pace, now: float) -> float:
    rate = rule.limits(pace, now).per_second
    assert rate is not None
    return rate


class TestAfter429Rule:
    def test_a_429_halves_the_rate_which_grows_back_by_a_tenth_of_the_limit_each_10_s(self) -> None:
        rule = After429Rule(20.0)
        pace = rule.learn(Pace(), REFUSED, NOW)
        for seconds, rate in (0, 10.0), (10, 12.0), (45, 19.0):
            assert rate_of(rule, pace, NOW + seconds) == pytest.approx(rate)
        assert rule.limits(pace, NOW + 50) == PaceLimits()

    def test_the_measured_rate_is_halved_if_it_is_lower(self) -> None:
        rule = After429Rule(100.0)
        assert rate_of(rule, rule.learn(Pace(), REFUSED, NOW), NOW) == 20.0

    def test_without_a_limit_the_rate_grows_back_to_the_measured_one_and_the_lesson_ends(self) -> None:
        rule = After429Rule(None)
        pace = rule.learn(Pace(), REFUSED, NOW)
        assert rate_of(rule, pace, NOW + 49) == pytest.approx(39.6)
        assert rule.limits(pace, NOW + 50) == PaceLimits()

    def test_refusals_of_attempts_that_were_under_way_halve_nothing(self) -> None:
        rule = After429Rule(20.0)
        pace = rule.learn(Pace(), REFUSED, NOW + 1)
        assert rule.learn(pace, REFUSED, NOW + 1.5) is pace
        again = msgspec.structs.replace(REFUSED, refused_began_at=NOW + 2, started_per_s=10)
        assert rate_of(rule, rule.learn(pace, again, NOW + 2), NOW + 2) < 5.2

    def test_other_outcomes_teach_nothing(self) -> None:
        overloaded = Observation(started_per_s=40, answers=9, overloaded=9, refused_began_at=NOW)
        assert After429Rule(20.0).learn(Pace(), overloaded, NOW) == Pace()


@pytest.mark.parametrize(
    ("rule", "observed"),
    [
        (After429Rule(20.0), REFUSED), (ConcurrencyRule(64), REFUSED), (SmartRule(20.0), REFUSED),
        (HeadersRule(), Observation(quotas=(Quota(2, 3600, 20),))),
    ],
    ids=["after_429", "concurrency", "smart", "headers"],
)  # fmt: skip
def test_a_lesson_by_a_clock_that_was_ahead_is_one_of_now(rule: PaceRule, observed: Observation) -> None:
    """The clock of the owner before was an hour ahead; its lesson ends, and later refusals count."""
    learnt = rule.learn(Pace(), observed, NOW)
    ahead = rule.learn(Pace(), observed, NOW + 3600)
    assert learnt != Pace()
    assert CombinedRules((rule,)).learn(ahead, Observation(answers=1), NOW) == learnt


class TestHeadersRule:
    rule = HeadersRule()

    def learn(self, pace: Pace, *quotas: Quota, at: float = NOW) -> Pace:
        return self.rule.learn(pace, Observation(quotas=quotas), at)

    def test_nothing_left_is_a_pause_until_the_reset(self) -> None:
        pace = self.learn(Pace(), Quota(0, 30, 100))
        assert self.rule.limits(pace, NOW + 29) == PaceLimits(resumes_at=NOW + 30, limited_by="headers")
        assert self.rule.limits(pace, NOW + 30) == PaceLimits()

    def test_little_left_is_spread_over_the_time_left(self) -> None:
        pace = self.learn(Pace(), Quota(6, 30, 100))
        assert self.rule.limits(pace, NOW) == PaceLimits(per_second=0.2, limited_by="headers")

    def test_the_tightest_of_several_quotas_counts(self) -> None:
        pace = self.learn(Pace(), Quota(2, 1, 20), Quota(60, 60, 600), Quota(1, 10, 1000))
        assert pace.told == HeaderLimit(0.1, NOW + 10)

    def test_a_limit_above_the_configured_one_sets_none(self) -> None:
        pace = self.learn(Pace(), Quota(20, 1, 100))
        assert HeadersRule(20.0).limits(pace, NOW) == PaceLimits()

    def test_a_burst_that_would_use_up_what_is_left_is_spread(self) -> None:
        pace = self.learn(Pace(), Quota(20, 10, 100))
        assert HeadersRule(2.0, burst=20).limits(pace, NOW) == PaceLimits(per_second=2, limited_by="headers")
        assert HeadersRule(1.0, burst=10).limits(pace, NOW) == PaceLimits()

    def test_much_left_sets_no_limit_and_ends_one(self) -> None:
        assert self.learn(Pace(), Quota(50, 30, 100)) == Pace()
        assert self.learn(self.learn(Pace(), Quota(6, 30, 100)), Quota(99, 60, 100)) == Pace()

    def test_a_small_change_is_not_a_fact(self) -> None:
        pace = self.learn(Pace(), Quota(10, 30, 100))
        assert self.learn(pace, Quota(9, 28, 100), at=NOW + 2) is pace
        assert self.learn(pace, Quota(5, 28, 100), at=NOW + 2) is not pace
        assert self.learn(pace, Quota(0, 28, 100), at=NOW + 2) is not pace

    def test_a_reset_that_is_now_sets_no_limit(self) -> None:
        assert self.learn(Pace(), Quota(0, 0, 100)) == Pace()


class TestConcurrencyRule:
    def test_refusals_halve_the_number_once_for_everything_that_was_under_way(self) -> None:
        rule = ConcurrencyRule(64)
        pace = rule.learn(Pace(), REFUSED, NOW + 1)
        assert rule.limits(pace, NOW).in_flight == 32
        assert rule.learn(pace, REFUSED, NOW + 2) is pace

    def test_the_number_grows_only_if_it_was_used_up(self) -> None:
        rule, pace = ConcurrencyRule(64), Pace(in_flight=InFlightLimit(8.0))
        assert rule.learn(pace, Observation(answers=50, limit_was_reached=False), NOW) is pace
        assert (
            rule.limits(rule.learn(pace, Observation(answers=50, limit_was_reached=True), NOW), NOW).in_flight
            == 9
        )

    def test_the_number_follows_the_ratio_of_latencies(self) -> None:
        rule = LatencyGradient(64)
        pace = Pace(in_flight=InFlightLimit(30.0, base_ms=100))
        for latency_ms, limit in (100, 30), (400, 27):
            learnt = rule.learn(pace, Observation(answers=50, latency_ms=latency_ms, in_flight_max=30), NOW)
            assert rule.limits(learnt, NOW).in_flight == limit

    def test_the_number_grows_until_a_few_seem_to_wait(self) -> None:
        rule, pace = FewWaiting(64), Pace(in_flight=InFlightLimit(10.0, base_ms=100))
        for latency_ms, limit in (100, 11), (200, 10), (1000, 9):
            observed = Observation(answers=50, latency_ms=latency_ms, in_flight_max=10)
            assert rule.limits(rule.learn(pace, observed, NOW), NOW).in_flight == limit


class TestSmartRule:
    rule = SmartRule(100.0)
    known = Pace(
        probed=ProbedRate(proven=40, ceiling=40, low=36, at=NOW, lowered_at=NOW, before=40, base_ms=100)
    )

    def seen(self, latency_ms: float, rate: float = 40.0) -> Observation:
        return Observation(
            started_per_s=rate, accepted_per_s=rate, answers=40, latency_ms=latency_ms, limit_was_reached=True
        )

    def test_the_rate_doubles_until_there_is_trouble(self) -> None:
        pace = Pace()
        assert rate_of(self.rule, pace, NOW) == START_RATE
        for second, rate in enumerate((5.0, 10.0, 20.0)):
            pace = self.rule.learn(pace, self.seen(100, rate), NOW + second)
            assert rate_of(self.rule, pace, NOW + second) == 2 * rate

    def test_a_refusal_lowers_the_rate_below_the_accepted_one(self) -> None:
        pace = Pace(probed=ProbedRate(proven=40, base_ms=100))
        refused = Observation(
            started_per_s=80, accepted_per_s=44, answers=80, overloaded=1, refused_began_at=NOW
        )
        assert rate_of(self.rule, self.rule.learn(pace, refused, NOW), NOW) == pytest.approx(CUT_FACTOR * 44)

    def test_one_timeout_while_there_is_little_to_send_costs_little_of_a_proven_rate(self) -> None:
        pace = Pace(probed=ProbedRate(proven=50, base_ms=100))
        late = Observation(started_per_s=1 / 15, answers=1, overloaded=1, refused_began_at=NOW - 15)
        pace = self.rule.learn(pace, late, NOW)
        assert rate_of(self.rule, pace, NOW) > 40
        assert rate_of(self.rule, pace, NOW + 2 * RETURN_S) > 50

    @pytest.mark.parametrize("proven", [0.0, 0.1])
    def test_one_timeout_of_a_quiet_receiver_costs_little_of_the_rate_to_begin_with(
        self, proven: float
    ) -> None:
        """At `rate_min`, the attempts after which a rate grows take 20 minutes."""
        late = Observation(
            started_per_s=0.1, accepted_per_s=0.05, answers=2, overloaded=1, refused_began_at=NOW - 15
        )
        pace = self.rule.learn(Pace(probed=ProbedRate(proven=proven, base_ms=100)), late, NOW)
        assert rate_of(self.rule, pace, NOW + 2 * RETURN_S) > CUT_FACTOR * START_RATE

    def test_a_sender_whose_share_becomes_smaller_yields_some_more(self) -> None:
        """Two senders that find the same limit come to equal shares sooner."""
        refused = Observation(
            started_per_s=30, accepted_per_s=30, answers=80, overloaded=1, refused_began_at=NOW + RETURN_S
        )
        pace = self.rule.learn(
            Pace(probed=ProbedRate(proven=30, ceiling=40, low=36, at=NOW, lowered_at=NOW)),
            refused,
            NOW + RETURN_S,
        )
        assert pace.probed
        assert pace.probed.ceiling == YIELD_FACTOR * 30

    def test_refusals_of_attempts_that_began_before_the_cut_lower_nothing(self) -> None:
        refused = Observation(
            started_per_s=40, accepted_per_s=4, answers=9, overloaded=5, refused_began_at=NOW + 0.5
        )
        assert self.rule.learn(self.known, refused, NOW + 0.6) is self.known

    def test_the_rate_returns_to_the_ceiling_and_then_grows_ever_faster(self) -> None:
        rates = [rate_of(self.rule, self.known, NOW + RETURN_S * n / 2) for n in range(6)]
        assert rates[0] == 36
        assert rates[2] == pytest.approx(40)
        steps = [after - before for before, after in pairwise(rates)]
        assert steps[0] > steps[1] > 0 < steps[2] < steps[3] < steps[4]

    def test_a_slow_receiver_gets_a_lower_rate(self) -> None:
        learnt = self.rule.learn(self.known, self.seen(400), NOW + RETURN_S)
        assert rate_of(self.rule, learnt, NOW + RETURN_S) == pytest.approx(CUT_FACTOR * 40)

    def test_a_cut_has_time_to_show(self) -> None:
        assert self.rule.learn(self.known, self.seen(400), NOW + EFFECT_TIME_S - 0.1) is self.known

    def test_a_receiver_that_is_slow_for_another_reason_than_load_is_not_slowed_for_good(self) -> None:
        pace, now, rates = self.known, NOW + RETURN_S, list[float]()
        for _ in range(60):
            rates.append(rate_of(self.rule, pace, now))
            pace = self.rule.learn(pace, self.seen(900, rates[-1]), now)
            now += 1
        assert min(rates) < 15
        assert rates[-1] > 35
        assert pace.probed
        assert pace.probed.base_ms == 900

    def test_a_low_limit_is_tried_again_only_after_many_attempts(self) -> None:
        """At three a second, 20 s are 60 attempts: one refusal each time would be more than 1 %."""
        slow = Pace(probed=ProbedRate(proven=3, ceiling=3, low=2.7, at=NOW, lowered_at=NOW, base_ms=100))
        assert rate_of(self.rule, slow, NOW + RETURN_S) < 3
        assert rate_of(self.rule, slow, NOW + 40) == pytest.approx(3)

    @pytest.mark.parametrize(
        ("latency_ms", "seconds", "base_ms"),
        [(25, 15, 50), (196, 5, 140), (196, 15, 100), (110, 5, 100), (90, 15, 100)],
        ids=["faster", "slower after a cut", "slower later", "a little slower", "a little faster"],
    )
    def test_the_latency_without_load_is_corrected(
        self, latency_ms: float, seconds: float, base_ms: float
    ) -> None:
        """A higher latency is believed only soon after a cut: later, it may be a queue of our own."""
        pace = self.rule.learn(self.known, self.seen(latency_ms), NOW + seconds)
        assert pace.probed
        assert pace.probed.base_ms == pytest.approx(base_ms)

    def test_a_rate_that_refusals_lowered_does_not_return_because_the_receiver_is_slow(self) -> None:
        """A receiver that lost most of its capacity refuses at first, and has a long queue then."""
        probed = ProbedRate(
            proven=9, ceiling=9, low=8, at=NOW, lowered_at=NOW, before=40, base_ms=100, slow=False
        )
        pace = self.rule.learn(Pace(probed=probed), self.seen(900, rate=9), NOW + EFFECT_TIME_S)
        assert rate_of(self.rule, pace, NOW + EFFECT_TIME_S) < 9

    def test_attempts_in_flight_are_bounded_by_what_the_rate_needs(self) -> None:
        limits = self.rule.limits(self.known, NOW)
        assert limits.in_flight == IN_FLIGHT_FACTOR * 36 * 0.1

    def test_a_pause_of_the_receiver_does_not_count_as_time_without_trouble(self) -> None:
        refused = Observation(
            started_per_s=40,
            accepted_per_s=40,
            answers=9,
            throttled=1,
            refused_began_at=NOW + 90,
            resumes_at=NOW + 150,
        )
        pace = self.rule.learn(self.known, refused, NOW + 90)
        assert rate_of(self.rule, pace, NOW + 150) == pytest.approx(36)

    def test_a_429_and_nothing_else_lowers_the_ceiling_further(self) -> None:
        """The quota of a minute is used up: the rate until then is not the one that the receiver can take."""
        refused = Observation(
            started_per_s=40, accepted_per_s=40, answers=1, throttled=1, refused_began_at=NOW + 5
        )
        pace = self.rule.learn(self.known, refused, NOW + 5)
        assert rate_of(self.rule, pace, NOW + 5 + RETURN_S) == pytest.approx(34)

    def test_an_idle_receiver_is_not_trusted_with_more_than_twice_what_is_proven(self) -> None:
        assert rate_of(self.rule, self.known, NOW + 86400) == 80


observations = st.builds(
    Observation,
    started_per_s=st.floats(0, 500), accepted_per_s=st.floats(0, 500), answers=st.integers(1, 64),
    throttled=st.integers(0, 1), overloaded=st.integers(0, 1), latency_ms=st.none() | st.floats(0.1, 15000),
    refused_began_at=st.floats(NOW - 10, NOW + 1000), limit_was_reached=st.booleans(),
    in_flight_max=st.integers(0, 256),
    quotas=st.lists(st.builds(Quota, st.integers(0, 99), st.floats(0, 3600)), max_size=2).map(tuple),
)  # fmt: skip
RULES = [
    After429Rule(100.0), HeadersRule(100.0), ConcurrencyRule(64), LatencyGradient(64), FewWaiting(64),
    SmartRule(100.0), CombinedRules((HeadersRule(100.0), SmartRule(100.0))),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 100), observations), max_size=30))
def test_no_rule_exceeds_the_limit_or_starves_the_receiver(
    rule: PaceRule, seen: list[tuple[float, Observation]]
) -> None:
    pace, now = Pace(), NOW
    for wait_s, observed in seen:
        now += wait_s
        pace = rule.learn(pace, observed, now)
        limits = rule.limits(pace, now)
        assert limits.per_second is None or 0 < limits.per_second <= 100
        assert limits.in_flight is None or limits.in_flight >= 1
        assert pace.probed is None or 0 <= pace.probed.low <= pace.probed.ceiling <= 100
        assert limits.resumes_at <= now + 3600
    assert rule.limits(pace, now + 4000).resumes_at <= now + 4000


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@settings(max_examples=40)
@given(st.lists(observations, max_size=20))
def test_a_pace_is_small_and_survives_the_journal(rule: PaceRule, seen: list[Observation]) -> None:
    pace = Pace()
    for second, observed in enumerate(seen):
        pace = rule.learn(pace, observed, NOW + second)
    stored = msgspec.json.encode(pace)
    assert len(stored) < 400
    assert msgspec.json.decode(stored, type=Pace) == pace


@pytest.mark.parametrize(("concurrency", "in_flight"), [(16, 9), (9, None), (1, None)])
def test_a_learnt_number_in_flight_that_is_not_below_the_configured_one_is_no_limit(
    concurrency: int, in_flight: int | None
) -> None:
    found = CombinedRules((TestSmartRule.rule,), concurrency).limits(TestSmartRule.known, NOW)
    assert (found.in_flight, found.in_flight_by) == (in_flight, "smart" if in_flight else "")


def test_the_lowest_limit_of_several_rules_counts() -> None:
    rule = CombinedRules((HeadersRule(), After429Rule(100.0), ConcurrencyRule(64)))
    pace = rule.learn(Pace(), msgspec.structs.replace(REFUSED, quotas=(Quota(30, 2, 200),)), NOW + 1)
    assert rule.limits(pace, NOW + 1) == PaceLimits(
        per_second=15.0, in_flight=32, limited_by="headers", in_flight_by="concurrency"
    )
    assert rule.limits(pace, NOW + 4).limited_by == "after_429"
    assert CombinedRules().limits(pace, NOW) == PaceLimits()
