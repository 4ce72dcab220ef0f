"""A receiver, command by command: answers, numbers, dead letters, configuration."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.configuration.policy import Offline, Policy, Rate, Retry
from actors.ids import stable_hash
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.numbering import Numbered, with_number
from actors.machine.outcome import Answered, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.state import TOMBSTONE_KEPT_S, Counters, is_left_over
from tests.unit.worlds.values import NO_ANSWER, NOW, Actor, answer, event, given_up, policy, retrying

FLOAT = 1e-6
"""Largest error of a sum with an instant of our days."""


def only(facts: list[f.Fact]) -> Any:
    (fact,) = facts
    return fact


# ---- the table of answers


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_2xx_is_delivered(status: int) -> None:
    actor, bucket = Actor(), Bucket(3.0, NOW, 1)
    fact = only(actor.ends(event(5), answer(status), bucket=bucket))
    number = Numbered(sequence=1, position=5, id="e5", stored_at=NOW, type="message")
    assert fact == f.Delivered(
        receiver="acme.billing", events=(number,), at=NOW, attempt=1, status=status, latency_ms=5.0,
        bucket=bucket,
    )  # fmt: skip
    state = actor.state
    assert (state.open, state.frontier.position, state.frontier.sequence) == ((), 5, 1)
    assert (state.settled_sequence, state.bucket, state.last) == (1, bucket, fact)
    assert state.counters == Counters(delivered=1)


@pytest.mark.parametrize("retry_after", ["30", "0", None, "soon"])
def test_429_throttles_the_receiver_and_counts_for_nothing(retry_after: str | None) -> None:
    actor = Actor(retrying(max_attempts=1, rejected_attempts=1))
    fact = only(actor.ends(event(5), answer(429, retry_after=retry_after)))
    assert isinstance(fact, f.Throttled)
    (entry,) = actor.state.open
    assert (entry.attempts, entry.failures, entry.rejections) == (1, 0, 0)
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    assert actor.state.counters == Counters(throttled=1)
    assert actor.state.throttled_until == entry.next_at == fact.until
    assert isinstance(actor.step(fact.until, head=event(5)), s.Post)


def test_a_named_time_is_kept_to_the_second_and_apart_from_backoff() -> None:
    actor = Actor(retrying(base_s=100, cap_s=100))
    for _ in range(3):
        assert only(actor.ends(event(5), answer(429, retry_after="30"))).until == NOW + 30


def test_503_throttles_only_with_a_valid_time() -> None:
    assert only(Actor().ends(event(5), answer(503, retry_after="30"))).until == NOW + 30
    assert NOW < only(Actor().ends(event(5), answer(503, retry_after="0"))).until <= NOW + 2
    assert isinstance(only(Actor().ends(event(5), answer(503, retry_after="soon"))), f.AttemptFailed)
    assert isinstance(only(Actor().ends(event(5), answer(503))), f.AttemptFailed)


def test_429_without_a_usable_time_backs_the_receiver_off_further_each_time() -> None:
    """No time, garbage, and a time that is over already: all of them would be a hot loop."""
    for header in (None, "soon", "0", "Tue, 14 Nov 2023 22:13:20 GMT"):
        actor = Actor(retrying(base_s=2, cap_s=3600))
        waits = list[float]()
        for _ in range(12):
            at = max(NOW, actor.state.throttled_until)
            waits.append(only(actor.ends(event(5), answer(429, retry_after=header), at=at)).until - at)
        assert all(0.05 - FLOAT <= wait <= 2 * 2.0**k + FLOAT for k, wait in enumerate(waits))
        assert waits[-1] > 60


def test_a_success_ends_the_growth_of_the_throttles_backoff() -> None:
    actor = Actor()
    for _ in range(5):
        actor.ends(event(5), answer(429), at=max(NOW, actor.state.throttled_until))
    assert actor.state.throttles == 5
    actor.ends(event(5), answer(200))
    assert actor.state.throttles == 0


def test_a_time_that_was_named_holds_over_other_answers() -> None:
    """A ping was answered with a Retry-After while an event was on its way."""
    actor = Actor()
    actor.ends(None, answer(429, retry_after="60"))
    actor.ends(event(5), answer(200), at=NOW + 1)
    assert actor.state.throttled_until == NOW + 60
    actor.ends(None, answer(429, retry_after="5"), at=NOW + 2)
    assert actor.state.throttled_until == NOW + 60
    assert actor.step(NOW + 3) == s.Rest(Rule.RESTING)
    assert actor.step(NOW + 3, head=event(6)) == s.Park(Rule.THROTTLED)
    assert actor.step(NOW + 58, head=event(6)) == s.WaitUntil(NOW + 60, Rule.THROTTLED)


def test_410_disables_and_the_events_wait_this_one_first() -> None:
    actor = Actor(retrying(max_attempts=1))
    failed, disabled = actor.ends(event(5), answer(410))
    assert isinstance(failed, f.AttemptFailed)
    assert disabled == f.Disabled(receiver="acme.billing", at=NOW, reason="gone")
    assert actor.state.disabled == "gone"
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    assert actor.step(NOW + 9) == s.WaitUntil(NOW + 172800, Rule.DISABLED)
    actor.do(c.ResumeReceiver(), at=NOW + 9)
    assert actor.step(NOW + 9, head=event(5)) == s.Post(event(5), 1, 2, has_token=True)


@pytest.mark.parametrize("status", [400, 409, 413, 415, 422, 431])
def test_a_rejected_event_is_given_up_after_so_many_such_answers_in_all(status: int) -> None:
    actor = Actor(retrying(rejected_attempts=2))
    assert only(actor.ends(event(5), answer(status))).rejected
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    actor.ends(event(5), answer(500))
    assert not isinstance(actor.step(NOW + 9, head=event(5)), c.GiveUpEvents)
    actor.ends(event(5), answer(status))
    assert actor.step(NOW, head=event(5)) == given_up("rejected", event(5))


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (answer(199), "HTTP 199"), (answer(301), "HTTP 301"), (answer(404), "HTTP 404"),
        (answer(500), "HTTP 500"),
        (NO_ANSWER, "timeout: no answer within 15 s"),
        (Failed(error="headers", detail="x" * 999, latency_ms=1.0, status=200), "headers: " + "x" * 291),
    ],
)  # fmt: skip
def test_everything_else_is_retried(outcome: Answered | Failed, error: str) -> None:
    actor = Actor()
    fact = only(actor.ends(event(5), outcome))
    assert isinstance(fact, f.AttemptFailed)
    assert (fact.error, fact.status, fact.rejected) == (error, outcome.status, False)
    (entry,) = actor.state.open
    assert (entry.attempts, entry.failures, entry.next_at) == (1, 1, fact.next_at)
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (NOW, 1)
    assert actor.state.counters == Counters(failed_attempts=1)


# ---- backoff


@given(st.floats(0.05, 3600), st.floats(0, 1e5), st.integers(1, 90))
def test_the_delay_before_attempt_k_plus_1_is_within_its_bounds(base_s: float, more_s: float, k: int) -> None:
    cap_s = base_s + more_s
    actor = Actor(retrying(base_s=base_s, cap_s=cap_s))
    for _ in range(k):
        fact = only(actor.ends(event(5), answer(500)))
    ceiling = max(0.05, min(cap_s, base_s * 2.0 ** (k - 1)))
    assert 0.05 - FLOAT <= fact.next_at - NOW <= ceiling + FLOAT


def test_the_jitter_uses_the_whole_of_its_range() -> None:
    actor = Actor(retrying(base_s=10, cap_s=10))
    waits = []
    for position in range(1, 200):
        waits.append(only(actor.ends(event(position), answer(500))).next_at - NOW)
        actor.ends(event(position), answer(200))
    assert min(waits) < 0.5
    assert max(waits) > 9.5


def test_a_journal_replays_to_the_byte() -> None:
    one, other = Actor(), Actor()
    for actor in (one, other):
        actor.ends(event(5), answer(500))
        actor.ends(event(5), answer(429))
    assert one.facts == other.facts


# ---- failing for long


def test_failing_since_counts_from_the_first_failure_and_ends_with_a_success() -> None:
    actor = Actor()
    actor.ends(event(5), answer(500), at=NOW)
    actor.ends(event(5), NO_ANSWER, at=NOW + 60)
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (NOW, 2)
    actor.ends(event(5), answer(200), at=NOW + 90)
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)


def test_failing_for_too_long_disables() -> None:
    actor = Actor(policy(offline=Offline(after_s=10, disable_after_s=100)))
    assert len(actor.ends(event(5), answer(500), at=NOW)) == 1
    assert len(actor.ends(event(5), answer(500), at=NOW + 99)) == 1
    assert len(actor.ends(event(5), answer(400), at=NOW + 200)) == 1
    _, disabled = actor.ends(event(5), answer(500), at=NOW + 201)
    assert disabled == f.Disabled(receiver="acme.billing", at=NOW + 201, reason="failing")


def test_pings_fail_for_themselves() -> None:
    actor = Actor(policy(offline=Offline(after_s=10, disable_after_s=100)))
    for at, status in ((NOW, 500), (NOW + 200, 500), (NOW + 201, 410), (NOW + 202, 400)):
        fact = only(actor.ends(None, answer(status), at=at))
        assert (fact.kind, fact.events) == ("ping", ())
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    assert (actor.state.disabled, actor.state.frontier.sequence) == ("", 0)


def test_a_ping_that_succeeds_ends_a_row_of_failures() -> None:
    actor = Actor()
    actor.ends(event(5), answer(500))
    actor.ends(None, answer(200))
    assert actor.state.failing_since is None
    assert actor.state.counters == Counters(failed_attempts=1)


# ---- numbers


def test_numbers_follow_the_stream_and_an_event_keeps_its_own() -> None:
    actor = Actor()
    for status in (500, 429, 200):
        assert only(actor.ends(event(5), answer(status))).events[0].sequence == 1
    assert only(actor.ends(event(9), answer(500))).events[0].sequence == 2
    assert actor.state.settled_sequence == 1


def test_a_duplicate_changes_a_counter_and_nothing_else() -> None:
    actor = Actor()
    actor.ends(event(5), answer(200))
    before = actor.state
    assert only(actor.do(c.DropDuplicate(event(6, name="e5")))) == f.EventDropped(
        receiver="acme.billing", position=6, id="e5"
    )
    assert actor.state.counters == Counters(delivered=1, duplicates=1)
    assert actor.state.frontier == before.frontier


def test_the_outcome_of_an_event_given_up_meanwhile_changes_only_the_receiver() -> None:
    """Otherwise the event would reopen under a number that another event gets."""
    actor = Actor()
    actor.do(c.ForgetBacklog(9, 1))
    frontier = actor.state.frontier
    assert only(actor.ends(event(5), answer(429, retry_after="60"))).events == ()
    assert (actor.state.throttled_until, actor.state.open) == (NOW + 60, ())
    assert only(actor.ends(event(5), answer(200))).events == ()
    assert (actor.state.frontier, actor.state.counters.delivered) == (frontier, 0)


def test_events_that_are_gone_from_the_stream_leave_a_gap() -> None:
    actor = Actor()
    actor.ends(event(5), answer(500))
    assert only(actor.do(c.MissEvents(5, 5))).next_sequence == 2
    assert actor.state.open == ()
    assert only(actor.do(c.MissEvents(6, 9))).next_sequence == 3
    assert only(actor.ends(event(12), answer(200))).events[0].sequence == 3


def test_a_recorded_attempt_has_its_number() -> None:
    actor, bucket = Actor(), Bucket(0.0, NOW, 1)
    fact = only(actor.do(c.StartAttempt((event(5),)), bucket=bucket))
    assert (fact.events[0].sequence, actor.state.frontier.sequence, actor.state.bucket) == (1, 1, bucket)
    (entry,) = actor.state.open
    assert (entry.sequence, entry.attempts) == (1, 0)
    assert only(actor.ends(event(5), answer(200))).attempt == 1


# ---- dead letters


@pytest.mark.parametrize("tried", [0, 3])
def test_a_dead_letter_keeps_its_number_and_owes_a_burial(tried: int) -> None:
    actor, bucket = Actor(), Bucket(1.0, NOW, 1)
    for _ in range(tried):
        actor.ends(event(5), answer(503))
    fact = only(actor.do(c.GiveUpEvents((with_number(event(5), 1),), "expired"), bucket=bucket))
    assert (fact.reason, fact.events[0].sequence, fact.attempts) == ("expired", 1, tried)
    assert fact.bucket == bucket
    state = actor.state
    assert state.burials == (
        f.Burial(position=5, reason="expired", sequence=1, attempts=tried, status=503 if tried else None),
    )
    assert (state.open, state.frontier.sequence, state.counters.dead) == ((), 1, 1)
    assert state.needed_position == 5
    actor.do(c.RecordBuried((5,)))
    assert (actor.state.burials, actor.state.needed_position) == ((), None)


def test_an_event_of_an_unknown_receiver_gets_no_number() -> None:
    actor = Actor(opened=False)
    actor.do(c.RefuseEvent(event(5), "unknown_receiver"))
    state = actor.state
    assert state.burials == (f.Burial(position=5, reason="unknown_receiver"),)
    assert (state.frontier.position, state.frontier.sequence, state.removed_at) == (5, 0, NOW)


# ---- configuration


def test_a_new_actor_takes_up_its_configuration_with_a_full_bucket() -> None:
    actor = Actor(policy(rate=Rate(limit=10, burst=20), dedup_window=32))
    assert actor.state.limit == RateLimit(10.0, 20)
    assert actor.state.bucket == Bucket(20.0, NOW, 1)
    assert actor.state.target == stable_hash(policy().url)
    assert actor.state.frontier.size == 32
    assert actor.policy is not None
    assert actor.adopt(actor.policy) == []


def test_a_limit_where_there_was_none_grants_nothing_at_once() -> None:
    actor = Actor()
    actor.ends(event(5), answer(200))
    actor.adopt(policy(rate=Rate(limit=10, burst=20)), at=NOW + 1)
    assert actor.state.bucket == Bucket(0.0, NOW + 1, 1)


@pytest.mark.parametrize(("burst", "tokens"), [(4, 4.0), (8, 5.0), (99, 5.0)])
def test_another_burst_cuts_at_once_and_grants_nothing(burst: int, tokens: float) -> None:
    actor = Actor(policy(rate=Rate(limit=10, burst=20)))
    fact = only(actor.adopt(policy(rate=Rate(limit=10, burst=burst)), bucket=Bucket(5.0, NOW, 1)))
    assert fact == f.RateSet(
        receiver="acme.billing", limit=RateLimit(10.0, burst), bucket=Bucket(tokens, NOW, 1)
    )
    assert actor.state.bucket == Bucket(tokens, NOW, 1)


def test_a_limit_may_end() -> None:
    actor = Actor(policy(rate=Rate(limit=10)))
    assert only(actor.adopt(policy())) == f.RateSet(receiver="acme.billing", limit=None)
    assert (actor.state.limit, actor.state.bucket) == (None, None)


def test_another_url_ends_everything_that_held_the_receiver_back() -> None:
    actor = held_back()
    only(actor.adopt(policy(url="https://other.example")))
    assert_let_go(actor)


def test_resume_ends_everything_that_held_the_receiver_back() -> None:
    actor = held_back()
    actor.do(c.ResumeReceiver())
    assert_let_go(actor)


def test_the_end_of_a_pause_is_a_resume() -> None:
    actor = held_back()
    assert [type(each) for each in actor.adopt(policy(paused=True))] == [f.Paused]
    assert actor.adopt(policy(paused=True)) == []
    assert [type(each) for each in actor.adopt(policy())] == [f.Resumed]
    assert_let_go(actor)


def held_back() -> Actor:
    actor = Actor()
    actor.ends(event(5), answer(500))
    actor.ends(event(5), answer(429, retry_after="600"))
    actor.ends(event(5), answer(410))
    assert actor.state.disabled
    assert actor.state.throttled_until > NOW
    assert actor.state.failing_since == NOW
    return actor


def assert_let_go(actor: Actor) -> None:
    state = actor.state
    assert (state.disabled, state.throttled_until, state.throttles, state.paused) == ("", 0.0, 0, False)
    assert (state.failing_since, state.consecutive_failures) == (None, 0)
    (entry,) = state.open
    assert (entry.next_at, entry.attempts) == (0.0, 3)
    assert actor.step(NOW, head=event(5)) == s.Post(event(5), 1, 4, has_token=True)


def test_another_window_holds_for_events_that_no_owner_can_have_posted() -> None:
    actor = Actor()
    assert only(actor.adopt(policy(dedup_window=16), above=30)) == f.WindowSet(
        receiver="acme.billing", size=16, above=30
    )
    assert [actor.state.frontier.size_at(position) for position in (30, 31)] == [256, 16]
    assert actor.adopt(policy(dedup_window=17), above=30) == []
    actor.ends(event(31), answer(200))
    assert actor.state.frontier.size == 16
    assert only(actor.adopt(policy(dedup_window=17), above=31)).size == 17


# ---- parking


def test_parking_and_unparking_are_said_once() -> None:
    actor = Actor()
    assert actor.do(c.UnparkReceiver()) == []
    assert only(actor.do(c.ParkReceiver(NOW - 5))).waiting_since == NOW - 5
    assert actor.do(c.ParkReceiver(NOW - 5)) == []
    assert actor.do(c.ParkReceiver(None)) == []
    assert only(actor.do(c.ParkReceiver(NOW - 3))).waiting_since == NOW - 3
    assert actor.state.needed_position == 1
    before = actor.state
    only(actor.do(c.UnparkReceiver()))
    assert actor.state == replace(before, parked=False, waiting_since=None)
    assert actor.state.needed_position is None


# ---- removal


def test_removal_records_what_it_discards_and_keeps_the_numbering() -> None:
    actor = Actor(policy(rate=Rate(limit=1, burst=5)))
    for position in (5, 6):
        actor.ends(event(position, source=position), answer(200))
    actor.ends(event(7), answer(500))
    actor.do(c.ParkReceiver(NOW))
    bucket = Bucket(2.5, NOW, 1)
    fact = only(actor.do(c.RemoveReceiver(40, 3), bucket=bucket))
    assert (fact.discarded, fact.next_sequence, fact.position) == (4, 7, 40)
    state = actor.state
    assert (state.opened, state.removed_at, state.open, state.waiting_since) == (False, NOW, (), None)
    assert (state.frontier.position, state.frontier.sequence, state.frontier.source) == (40, 6, 6)
    assert (state.bucket, state.limit, state.target) == (bucket, RateLimit(1.0, 5), "")
    assert state.counters.discarded == 4
    actor.policy = None
    assert actor.step(read_to=40, seen_to=40) == c.UnparkReceiver()
    assert actor.step(read_to=40, seen_to=44) == s.ReadBacklog(40)


def test_a_receiver_put_again_keeps_numbers_and_window_and_gets_no_old_events() -> None:
    actor = Actor(policy(dedup_window=16, rate=Rate(limit=1, burst=5)))
    actor.ends(event(5), answer(200))
    actor.do(c.RemoveReceiver(40, 0), bucket=Bucket(0.5, NOW, 1))
    opened = only(actor.do(c.OpenReceiver(actor.state.frontier.position, 99)))
    assert opened.position == 40
    assert (actor.state.opened, actor.state.removed_at, actor.state.frontier.size) == (True, None, 16)
    assert only(actor.adopt(policy(dedup_window=16, rate=Rate(limit=1, burst=5)))) == f.Retargeted(
        receiver="acme.billing", target=stable_hash(policy().url)
    )
    assert actor.state.bucket == Bucket(0.5, NOW, 1)
    assert actor.step(NOW, head=event(41, name="e5")) == c.DropDuplicate(event(41, name="e5"))
    assert only(actor.ends(event(42), answer(200))).events[0].sequence == 2


def test_the_default_policy_judges_what_comes_back_when_the_configuration_is_gone() -> None:
    actor = Actor()
    actor.policy = None
    assert NOW < only(actor.ends(event(5), answer(500))).next_at <= NOW + 2
    assert actor.do(c.Adopt(0, 1)) == []


def test_a_recorded_ping_spends_a_token() -> None:
    actor = Actor(policy(rate=Rate(limit=10)))
    actor.do(c.StartPing(), bucket=Bucket(3.0, NOW, 1))
    assert actor.state.bucket == Bucket(3.0, NOW, 1)


def test_every_fact_that_settles_skips_or_forgets_carries_the_bucket() -> None:
    bucket = Bucket(7.0, NOW + 1, 2)
    settling: list[c.Command] = [
        c.RecordOutcome((event(5),), answer(200)), c.ForgetBacklog(9, 1),
        c.GiveUpEvents((with_number(event(5), 1),), "expired"),
        c.RemoveReceiver(9, 1), c.MissEvents(5, 5), c.StartPing(),
        c.StartAttempt((event(5),)), c.RecordOutcome((event(5),), answer(500)),
        c.RecordOutcome((event(5),), answer(429)), c.RecordOutcome((), answer(200)),
    ]  # fmt: skip
    for command in settling:
        actor = Actor(policy(rate=Rate(limit=10)))
        actor.do(command, at=NOW + 1, bucket=bucket)
        assert actor.state.bucket == bucket


def test_retry_and_offline_are_the_policies_of_now() -> None:
    """A policy that changes while an event waits is asked at the next step."""
    actor = Actor(retrying(max_attempts=0))
    for _ in range(4):
        actor.ends(event(5), answer(500))
    assert isinstance(actor.step(NOW, head=event(5)), s.WaitUntil)
    actor.policy = Policy(url=policy().url, retry=Retry(max_attempts=3))
    assert actor.step(NOW, head=event(5)) == given_up("attempts", event(5))


def test_a_removed_or_unknown_receiver_is_remembered_while_its_events_may_exist() -> None:
    gone, unknown, there = Actor(), Actor(opened=False), Actor()
    gone.ends(event(5), answer(200))
    gone.do(c.RemoveReceiver(9, 0))
    unknown.do(c.RefuseEvent(event(9), "unknown_receiver"))
    unknown.do(c.RecordBuried((9,)))
    there.ends(event(5), answer(200))
    for actor in (gone, unknown):
        assert not is_left_over(actor.state, 9, NOW + TOMBSTONE_KEPT_S)
        assert not is_left_over(actor.state, 8, NOW + TOMBSTONE_KEPT_S + 1)
        assert is_left_over(actor.state, 9, NOW + TOMBSTONE_KEPT_S + 1)
    assert not is_left_over(there.state, 9, NOW + TOMBSTONE_KEPT_S + 1)
