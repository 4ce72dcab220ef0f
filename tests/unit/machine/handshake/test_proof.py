"""A receiver is verified under the URL and the secrets that its last handshake was about, and no others."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.configuration.policy import OldSecret, Policy, Rate, Retry
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.handshake.deciding import PER_MINUTE_MAX, allowed_per_minute
from actors.machine.handshake.proof import handshake_key, is_verified, limit_in_force
from actors.machine.outcome import Answered, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule, hold
from actors.machine.state import Handshake
from tests.unit.worlds.values import NO_ANSWER, NOW, Actor, answer, event, policy

SECRET = "whsec_" + "b2xk" * 8
OTHER = "whsec_" + "bmV3" * 8
UNTIL = datetime.fromtimestamp(NOW, UTC)


def asking(**members: Any) -> Policy:
    return policy(**({"handshake": "hmac", "secrets": (SECRET,)} | members))


class UnprovenActor(Actor):
    """A receiver that has to prove itself."""

    def __init__(self, **members: Any) -> None:
        super().__init__(asking(**members))

    def begin(self, at: float = NOW, bucket: Bucket | None = None) -> str:
        """A handshake begins; returns its key."""
        [fact] = self.do(c.StartHandshake(), at=at, bucket=bucket)
        assert isinstance(fact, f.HandshakeStarted)
        return fact.key

    def over(self, key: str, outcome: Any, at: float = NOW, bucket: Bucket | None = None) -> list[f.Fact]:
        return self.do(c.RecordHandshake(key, outcome, 1), at=at, bucket=bucket)

    def verified(self) -> bool:
        assert self.policy is not None
        return is_verified(self.state, self.policy)


CHANGES = [
    {"url": "https://example.com/other"}, {"secrets": (OTHER,)}, {"secrets": (OTHER, SECRET)},
    {"secrets": (OTHER,), "old_secrets": (OldSecret(secret=SECRET, until=UNTIL),)},
    {"handshake": "cloudevents"},
]  # fmt: skip


@pytest.mark.parametrize("changed", CHANGES)
def test_another_url_secret_or_kind_needs_another_handshake(changed: dict[str, Any]) -> None:
    actor = UnprovenActor()
    assert not actor.verified()
    actor.over(actor.begin(), answer(200))
    assert actor.verified()
    actor.adopt(asking(**changed))
    assert not actor.verified()
    assert actor.step(head=event(1)) == c.StartHandshake()
    actor.adopt(asking())
    assert actor.verified()  # Nothing was asked in between, so what it proved is still the last thing known.
    actor.adopt(asking(**changed))
    actor.begin()
    actor.adopt(asking())
    assert not actor.verified()


def test_other_members_change_nothing() -> None:
    actor = UnprovenActor()
    actor.over(actor.begin(), answer(200))
    actor.adopt(asking(timeout_s=1, headers={"x-a": "b"}, rate=Rate(limit=1), order="relaxed"))
    assert actor.verified()


def test_no_secret_can_be_moved_between_the_members_of_a_key() -> None:
    old = (OldSecret(secret=OTHER, until=UNTIL),)
    keys = {
        handshake_key(asking(secrets=(SECRET, OTHER))), handshake_key(asking(old_secrets=old)),
        handshake_key(asking()), handshake_key(asking(secrets=(OTHER, SECRET))),
    }  # fmt: skip
    assert len(keys) == 4


def test_no_one_can_find_two_urls_with_the_same_key_of_a_handshake() -> None:
    """A person may choose both: then 64 bits take 2^32 trials, and 160 bits 2^80."""
    assert len(bytes.fromhex(handshake_key(asking()))) * 8 >= 160


def test_the_outcome_of_an_outdated_handshake_counts_for_nothing() -> None:
    for outcome in (answer(200), answer(410), answer(429, retry_after="60"), NO_ANSWER):
        actor = UnprovenActor()
        key = actor.begin()
        actor.adopt(asking(secrets=(OTHER,)))
        assert actor.over(key, outcome) == []
        assert not actor.verified()


def test_the_outcome_for_a_removed_receiver_counts_for_nothing() -> None:
    actor = UnprovenActor()
    key = actor.begin()
    actor.do(c.RemoveReceiver(0, 0, removal=1))
    assert actor.over(key, answer(200)) == []
    actor.do(c.OpenReceiver(0, 256, 1))
    actor.adopt(asking())
    assert not actor.verified()
    assert actor.over(key, answer(200)) == []


def test_a_receiver_that_was_removed_proves_itself_again() -> None:
    actor = UnprovenActor()
    actor.over(actor.begin(), answer(200))
    actor.do(c.RemoveReceiver(0, 0, removal=1))
    assert actor.state.handshake is None


def test_an_event_waits_for_a_handshake_and_a_handshake_for_an_event() -> None:
    actor = UnprovenActor()
    assert actor.step() == s.Rest(Rule.RESTING)
    assert actor.step(head=event(1)) == c.StartHandshake()
    assert actor.step(head=event(1), handshake_under_way=True) == s.Rest(Rule.IN_HANDSHAKE)
    key = actor.begin()
    actor.over(key, answer(204))
    assert actor.step(head=event(1)) == s.Post(event(1), 1, 1, has_token=True)


def test_a_handshake_comes_before_what_is_in_the_stream_is_read() -> None:
    actor = UnprovenActor()
    actor.do(c.ParkReceiver(NOW))
    assert actor.step(seen_to=9) == c.StartHandshake()


def test_a_failed_handshake_backs_off_and_events_still_expire() -> None:
    actor = UnprovenActor(retry=Retry(base_s=8, cap_s=8, max_age_s=60))
    key = actor.begin()
    [fact] = actor.over(key, answer(404))
    assert isinstance(fact, f.HandshakeFailed)
    assert NOW < fact.next_at <= NOW + 8
    assert fact.error == "HTTP 404"
    step = actor.step(NOW + 0.01, head=event(1), has_unacked=False)
    assert step in (s.WaitUntil(fact.next_at, Rule.UNVERIFIED), s.Park(Rule.UNVERIFIED))
    assert actor.step(fact.next_at, head=event(1)) == c.StartHandshake()
    assert isinstance(actor.step(NOW + 60, head=event(1)), c.GiveUpEvents)


def test_each_failure_counts_but_only_those_of_the_receiver_make_it_failing() -> None:
    actor = UnprovenActor()
    key = actor.begin()
    actor.over(key, Failed(error="overload", detail="no connection", latency_ms=0.0))
    known = actor.state.handshake
    assert known is not None
    assert (known.failures, known.failing_since) == (1, None)
    actor.over(key, NO_ANSWER, at=NOW + 1)
    actor.over(key, NO_ANSWER, at=NOW + 2)
    known = actor.state.handshake
    assert known is not None
    assert (known.failures, known.failing_since, known.error[:7]) == (3, NOW + 1, "timeout")


def test_a_receiver_that_throttles_a_handshake_is_left_alone_until_then() -> None:
    actor = UnprovenActor()
    actor.over(actor.begin(), answer(503, retry_after="60"))
    assert actor.state.throttled_until == NOW + 60
    assert actor.step(NOW + 57, head=event(1)) == s.Park(Rule.UNVERIFIED)
    assert actor.step(NOW + 60, head=event(1)) == c.StartHandshake()


@pytest.mark.parametrize(
    ("outcome", "reason"), [(answer(410), "gone"), (answer(500, angarium_disable="true"), "asked")]
)
def test_a_receiver_that_wants_nothing_is_disabled_by_its_handshake(outcome: Any, reason: str) -> None:
    actor = UnprovenActor()
    actor.over(actor.begin(), outcome)
    assert actor.state.disabled == reason
    assert actor.step(NOW + 9e5, head=event(1, at=NOW + 9e5), has_unacked=True) == s.Park(Rule.DISABLED)
    actor.do(c.ResumeReceiver())
    assert actor.step(head=event(1)) == c.StartHandshake()


@pytest.mark.parametrize("members", [{}, {"webhook_allowed_origin": "*"}])
def test_a_success_that_disables_is_not_proof_and_disables(members: dict[str, str]) -> None:
    actor = UnprovenActor(handshake="cloudevents", secrets=())
    actor.over(actor.begin(), answer(200, angarium_disable="true", **members))
    assert actor.state.disabled == "asked"
    assert not actor.verified()


@pytest.mark.parametrize("base_s", [0.05, 0.5])
def test_pauses_after_failed_handshakes_grow_from_2_s_to_60_s_under_any_backoff(base_s: float) -> None:
    """The URL may be that of a stranger, and the times are chosen by the person who put it."""
    actor, waits = UnprovenActor(retry=Retry(base_s=base_s, cap_s=base_s)), []
    for _ in range(8):
        [fact] = actor.over(actor.begin(), answer(404))
        assert isinstance(fact, f.HandshakeFailed)
        waits.append(fact.next_at - NOW)
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(
    "outcome", [answer(429), answer(429, retry_after="1"), answer(503, retry_after="60")]
)
def test_a_receiver_that_asks_for_a_pause_does_not_fail_its_handshake(outcome: Any) -> None:
    actor = UnprovenActor()
    for at in (0, 70):
        [fact] = actor.over(actor.begin(NOW + at), outcome, NOW + at)
        assert isinstance(fact, f.HandshakeFailed)
        assert actor.state.throttled_until == fact.next_at >= NOW + at + 2
    assert actor.state.handshake is not None
    assert (actor.state.handshake.failures, actor.state.handshake.failing_since) == (2, None)


def test_a_resume_ends_the_backoff_of_a_handshake() -> None:
    actor = UnprovenActor(retry=Retry(base_s=3600, cap_s=3600))
    actor.over(actor.begin(), answer(500))
    held = hold(actor.state, asking(), NOW)
    assert held is not None
    assert (held.rule, held.until > NOW) == (Rule.UNVERIFIED, True)
    actor.do(c.ResumeReceiver())
    assert actor.step(head=event(1)) == c.StartHandshake()


def test_a_failed_check_of_a_verified_receiver_takes_nothing_back() -> None:
    actor = UnprovenActor()
    key = actor.begin()
    actor.over(key, answer(200))
    proved = actor.state.handshake
    assert actor.begin() == key
    [fact] = actor.over(key, NO_ANSWER)
    assert isinstance(fact, f.HandshakeFailed)
    assert actor.verified()
    assert actor.state.handshake == proved, "it counts as failing, and an alert would be raised"
    assert actor.step(head=event(1)) == s.Post(event(1), 1, 1, has_token=True)


def test_a_handshake_takes_a_token() -> None:
    actor = UnprovenActor(rate=Rate(limit=1, burst=1))
    empty, full = Bucket(0.0, NOW, 1), Bucket(1.0, NOW, 1)
    step = actor.step(head=event(1), bucket=empty)
    assert isinstance(step, s.WaitUntil)
    assert step.rule is Rule.TOKEN
    assert actor.step(head=event(1), bucket=full) == c.StartHandshake()
    actor.begin(bucket=empty)
    assert actor.state.bucket == empty


# ---- the rate that a receiver allows


def allowed(per_minute: int, rate: Rate | None) -> RateLimit | None:
    configured = asking(handshake="cloudevents", rate=rate)
    known = Handshake(key=handshake_key(configured), verified=True, per_minute=per_minute)
    return limit_in_force(configured, known)


@given(
    st.integers(1, 10**9), st.floats(1e-6, 1e6), st.sampled_from(["second", "minute", "hour"]),
    st.integers(1, 10**6),
)  # fmt: skip
def test_a_minute_never_has_more_requests_than_the_receiver_allows(
    per_minute: int, limit: float, per: Any, burst: int
) -> None:
    rate = Rate(limit=limit, per=per, burst=burst)
    found = allowed(per_minute, rate)
    assert found is not None
    assert found.per_second <= rate.per_second
    assert 1 <= found.burst <= burst
    assert found.per_second <= per_minute / 60
    # One at a time comes evenly: 60 s without their end contain at most so many.
    assert found.burst == 1 or found.burst + 60 * found.per_second <= per_minute + 1e-6


def test_a_lower_configured_rate_keeps_its_burst_if_the_minute_has_room_for_it() -> None:
    assert allowed(120, Rate(limit=1, burst=10)) == RateLimit(1.0, 10)
    assert allowed(120, Rate(limit=1, burst=100)) == RateLimit(1.0, 60)
    assert allowed(120, Rate(limit=10, burst=100)) == RateLimit(2.0, 1)
    assert allowed(120, None) == RateLimit(2.0, 1)


def test_the_allowed_rate_is_recorded_with_the_success_and_ends_with_the_handshake() -> None:
    actor = UnprovenActor(handshake="cloudevents", rate=Rate(limit=10, burst=10))
    bucket = Bucket(9.0, NOW, 1)
    facts = actor.over(actor.begin(), answer(200, webhook_allowed_rate="60"), bucket=bucket)
    assert [type(each) for each in facts] == [f.HandshakeSucceeded, f.RateSet]
    assert actor.state.limit == RateLimit(1.0, 1)
    assert actor.state.bucket == Bucket(1.0, NOW, 1)
    assert actor.adopt(actor.policy or asking()) == []
    actor.adopt(asking(handshake="none", rate=Rate(limit=10, burst=10)))
    assert actor.state.limit == RateLimit(10.0, 10)


def test_a_receiver_without_a_rate_gets_one_and_no_token_at_once() -> None:
    actor = UnprovenActor(handshake="cloudevents")
    actor.over(actor.begin(), answer(200, webhook_allowed_rate="60"))
    assert actor.state.limit == RateLimit(1.0, 1)
    assert actor.state.bucket == Bucket(0.0, NOW, 1)


def test_only_the_handshake_of_cloudevents_may_lower_the_rate() -> None:
    actor = UnprovenActor()
    actor.over(actor.begin(), answer(200, webhook_allowed_rate="60"))
    assert actor.state.limit is None


@pytest.mark.parametrize(
    ("rates", "per_minute"),
    [(["1000", " 1 ", "*"], 1), (["9" * 5000, "*"], PER_MINUTE_MAX), (["0" * 5000 + "7"], 7), (["*"], None)],
)
def test_the_lowest_allowed_rate_counts_and_a_huge_one_is_the_highest(
    rates: list[str], per_minute: int | None
) -> None:
    headers = tuple(("webhook-allowed-rate", each) for each in rates)
    assert allowed_per_minute(Answered(status=200, latency_ms=1.0, headers=headers)) == per_minute
