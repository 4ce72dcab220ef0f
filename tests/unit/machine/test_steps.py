"""The next step, state by state: the one thing that the machine asks of the actor."""

from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Policy, Rate
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.numbering import with_number
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import PARK_AFTER_S
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.view import FixedBounds
from actors.machine.state import BURIALS_MAX
from tests.unit.worlds.values import NOW, URL, Actor, answer, event, given_up, policy, retrying

EVENT = event(5)
MAX_AGE_S = 172800
PAUSED = policy(paused=True)
HOURLY = policy(rate=Rate(limit=1, per="hour", burst=1))


def changed(actor: Actor, **members: Any) -> Actor:
    actor.state = replace(actor.state, **members)
    return actor


def failed(given: Policy | None = None, *, next_at: float = 0.0) -> Actor:
    """An actor with one open event at position 5, due at `next_at`."""
    actor = Actor(given)
    actor.ends(EVENT, answer(500))
    return changed(actor, open=(replace(actor.state.open[0], next_at=next_at),))


# ---- posting


def test_nothing_is_owed_if_no_event_waits() -> None:
    assert Actor().step() == s.Rest(Rule.RESTING)


def test_the_head_is_posted_under_the_next_number() -> None:
    actor = Actor()
    assert actor.step(head=EVENT) == s.Post(EVENT, 1, 1, has_token=True)
    actor.ends(EVENT, answer(200))
    assert actor.step(head=event(9)) == s.Post(event(9), 2, 1, has_token=True)


def test_a_strict_receiver_has_at_most_one_attempt_in_flight() -> None:
    assert Actor().step(head=event(9), in_flight=(5,)) == s.Rest(Rule.IN_FLIGHT)


def test_an_event_that_failed_comes_before_the_next_one() -> None:
    """Memory may no longer have the event's body; then it is fetched before anything else starts."""
    actor = failed(next_at=NOW + 1)
    for head in (EVENT, event(9), None):
        assert actor.step(head=head) == s.WaitUntil(NOW + 1, Rule.BACKING_OFF)
    assert actor.step(NOW + 1, head=EVENT) == s.Post(EVENT, 1, 2, has_token=True)
    assert actor.step(NOW + 1, head=event(9)) == s.ReadOpenEvents((5,))
    assert actor.step(NOW + 1) == s.ReadOpenEvents((5,))


def test_a_fact_that_must_be_confirmed_first_holds_everything_up() -> None:
    """The actor says `unconfirmed` for every fact but a few: only after a 2xx may the next event hurry on."""
    assert Actor().step(head=event(9), barrier_unconfirmed=True) == s.Rest(Rule.UNCONFIRMED)


def test_a_shard_out_of_order_starts_nothing_but_gives_up_what_is_too_old() -> None:
    actor = Actor(retrying(max_age_s=60))
    assert actor.step(head=EVENT, bounds=FixedBounds(may_start=False)) == s.Rest(Rule.UNREADY)
    assert actor.step(NOW + 60, head=EVENT, bounds=FixedBounds(may_start=False)) == given_up("expired", EVENT)


def test_duplicates_are_dropped_by_id_by_source_and_once_settled() -> None:
    actor = Actor()
    actor.ends(event(5, source=3), answer(200))
    for duplicate in (event(6, name="e5"), event(7, source=3), event(8, source=2), event(5), event(4)):
        assert actor.step(head=duplicate) == c.DropDuplicate(duplicate)
    assert isinstance(actor.step(head=event(9, name="e5", again="r1")), s.Post)


# ---- tokens


def test_without_a_token_it_waits_for_one() -> None:
    actor = Actor(policy(rate=Rate(limit=2, burst=1)))
    step = actor.step(head=EVENT, bucket=Bucket(0.5, NOW, 1))
    assert isinstance(step, s.WaitUntil)
    assert step.at == pytest.approx(NOW + 0.25, abs=1e-5)
    assert actor.step(NOW + 0.25, head=EVENT, bucket=Bucket(0.5, NOW, 1)) == s.Post(
        EVENT, 1, 1, has_token=False
    )


def test_a_token_that_is_long_in_coming_parks_who_holds_messages() -> None:
    actor, empty = Actor(policy(rate=Rate(limit=0.2, burst=1))), Bucket(0.0, NOW, 1)
    assert actor.step(head=EVENT, bucket=empty, has_unacked=True) == s.Park(Rule.TOKEN)
    assert isinstance(actor.step(head=EVENT, bucket=empty), s.WaitUntil)


def test_a_slow_attempt_is_recorded_before_it_is_made() -> None:
    actor, full = Actor(HOURLY), Bucket(1.0, NOW, 1)
    assert actor.step(head=EVENT, bucket=full) == c.StartAttempt((EVENT,))
    actor.do(c.StartAttempt((EVENT,)), bucket=Bucket(0.0, NOW, 1))
    assert actor.step(head=EVENT, granted_position=5) == s.Post(EVENT, 1, 1, has_token=True)
    assert isinstance(actor.step(head=EVENT, bucket=Bucket(0.0, NOW, 1)), s.WaitUntil)


def test_an_event_expires_while_it_waits_for_a_token() -> None:
    actor = Actor(policy(rate=HOURLY.rate, retry=retrying(max_age_s=60).retry))
    assert actor.step(head=EVENT, bucket=Bucket(0.0, NOW, 1)) == s.WaitUntil(NOW + 60, Rule.TOKEN)


# ---- held back


@pytest.mark.parametrize("has_unacked", [True, False])
def test_a_receiver_that_is_held_back_for_long_drops_its_events_from_memory(has_unacked: bool) -> None:
    for wait_s, step in (
        (PARK_AFTER_S, s.WaitUntil(NOW + PARK_AFTER_S, Rule.THROTTLED)),
        (PARK_AFTER_S + 0.1, s.Park(Rule.THROTTLED)),
    ):
        actor = changed(Actor(), throttled_until=NOW + wait_s)
        assert actor.step(head=EVENT, has_unacked=has_unacked) == step


@pytest.mark.parametrize("held", [{"disabled": "gone"}, {"disabled": "failing"}, {"paused": True}])
def test_a_paused_or_disabled_receiver_gets_nothing(held: dict[str, Any]) -> None:
    actor = changed(Actor(PAUSED if "paused" in held else None), **held)
    rule = Rule.PAUSED if "paused" in held else Rule.DISABLED
    assert actor.step(head=EVENT) == s.Park(rule)
    changed(actor, parked=True, waiting_since=NOW)
    assert actor.step(seen_to=5) == s.WaitUntil(NOW + MAX_AGE_S, rule)
    assert changed(actor, waiting_since=None).step(seen_to=5) == s.Rest(rule)


def test_a_pause_holds_from_the_moment_that_it_is_known() -> None:
    actor = Actor()
    actor.policy = PAUSED
    assert actor.step(head=EVENT, policy_adopted=False) == c.Adopt(0, 1)
    assert actor.step(head=EVENT) == s.Park(Rule.PAUSED)


def test_backoff_and_throttling_both_have_to_end() -> None:
    actor = changed(failed(next_at=NOW + 1), throttled_until=NOW + 2)
    assert actor.step() == s.WaitUntil(NOW + 2, Rule.THROTTLED)
    changed(actor, throttled_until=NOW + 0.5)
    assert actor.step() == s.WaitUntil(NOW + 1, Rule.THROTTLED)
    changed(actor, throttled_until=NOW)
    assert actor.step() == s.WaitUntil(NOW + 1, Rule.BACKING_OFF)


# ---- giving up


@pytest.mark.parametrize("given", [policy(), PAUSED], ids=["active", "paused"])
def test_an_expired_event_is_given_up_even_while_paused(given: Policy) -> None:
    actor = Actor(given)
    assert actor.step(NOW + MAX_AGE_S, head=EVENT) == given_up("expired", EVENT)
    assert not isinstance(actor.step(NOW + MAX_AGE_S - 1, head=EVENT), c.GiveUpEvents)


def test_an_event_that_expires_in_the_stream_is_read_and_given_up() -> None:
    actor = changed(Actor(PAUSED), parked=True, waiting_since=NOW)
    assert actor.step(NOW + MAX_AGE_S, read_to=4, seen_to=9) == s.ReadBacklog(4)
    actor = changed(failed(PAUSED), parked=True)
    assert actor.step(NOW + MAX_AGE_S, seen_to=9) == given_up("expired", EVENT)


def test_attempts_are_limited_where_the_policy_says_so() -> None:
    actor = failed(retrying(max_attempts=2))
    assert isinstance(actor.step(head=EVENT), s.Post)
    actor.ends(EVENT, answer(500))
    assert actor.step(head=EVENT) == given_up("attempts", EVENT)
    actor.policy = retrying(max_attempts=0)
    assert not isinstance(actor.step(head=EVENT), c.GiveUpEvents)


def test_a_malformed_event_is_given_up_when_its_turn_comes() -> None:
    broken = event(9, malformed="Angarium-Type: wrong")
    assert Actor().step(head=broken) == given_up("malformed", broken)
    assert failed().step(head=broken) == s.ReadOpenEvents((5,))


def test_dead_letters_wait_for_those_before_them() -> None:
    actor = Actor(retrying(max_age_s=60))
    burials = tuple(f.Burial(position=n, reason="expired") for n in range(BURIALS_MAX))
    changed(actor, burials=burials)
    late = event(99)
    assert actor.step(NOW + 60, head=late, burying=True) == s.Rest(Rule.BURIALS_FULL)
    changed(actor, burials=burials[1:])
    assert actor.step(NOW + 60, head=late, burying=True) == given_up("expired", late)


def test_a_confirmed_dead_letter_is_buried_also_without_a_configuration() -> None:
    actor = Actor()
    actor.do(c.GiveUpEvents((with_number(EVENT, 1),), "expired"))
    (burial,) = actor.state.burials
    for given in (policy(), None):
        actor.policy = given
        assert actor.step(barrier_unconfirmed=True) in (s.Rest(Rule.UNCONFIRMED), s.ConfirmReceiver())
        assert actor.step() == s.Bury((burial,))
        assert not isinstance(actor.step(burying=True), s.Bury)


# ---- what lies in the stream


def test_a_parked_receiver_reads_on_until_it_has_read_everything_that_was_seen() -> None:
    actor = changed(Actor(), parked=True)
    assert actor.step(read_to=5, seen_to=9) == s.ReadBacklog(5)
    assert isinstance(actor.step(read_to=9, seen_to=9, head=event(8)), s.Post)


def test_a_receiver_unparks_only_when_everything_that_was_seen_is_settled() -> None:
    actor = changed(Actor(), parked=True)
    assert actor.step(read_to=9, seen_to=9) == c.UnparkReceiver()
    assert actor.step(read_to=12, seen_to=9, head=event(12)) == c.UnparkReceiver()
    assert actor.step(read_to=9, seen_to=9, in_flight=(5,)) == s.Rest(Rule.IN_FLIGHT)
    assert changed(failed(), parked=True).step(read_to=9, seen_to=9) == s.ReadOpenEvents((5,))


def test_nothing_is_read_while_the_receiver_is_held_back() -> None:
    actor = changed(Actor(), parked=True, waiting_since=NOW, throttled_until=NOW + 60)
    assert actor.step(seen_to=9) == s.WaitUntil(NOW + 60, Rule.THROTTLED)


# ---- configuration


def test_a_configuration_is_adopted_before_anything_starts_never_in_an_attempt() -> None:
    actor = Actor()
    assert actor.step(head=EVENT, policy_adopted=False) == c.Adopt(0, 1)
    assert actor.step(head=EVENT, policy_adopted=False, in_flight=(5,)) == s.Rest(Rule.ADOPTION)
    actor.policy = policy(dedup_window=16)
    assert actor.step() == c.Adopt(0, 1)
    actor.adopt(actor.policy, above=9)
    assert actor.step() == s.Rest(Rule.RESTING)


def test_a_receiver_that_is_put_is_opened_first() -> None:
    assert Actor(opened=False).step(head=EVENT) == c.OpenReceiver(0, 256)


def test_without_a_configuration_the_leader_is_asked_about_what_waits() -> None:
    actor = Actor(opened=False)
    actor.policy = None
    assert actor.step() == s.Rest(Rule.UNCONFIGURED)
    assert actor.step(head=EVENT) == s.ConfirmReceiver()
    assert actor.step(head=EVENT, confirming=True) == s.Rest(Rule.UNCONFIGURED)
    assert actor.step(head=EVENT, absent_up_to=4) == s.ConfirmReceiver()
    assert actor.step(head=EVENT, absent_up_to=5) == c.RefuseEvent(EVENT, "unknown_receiver")
    broken = event(5, malformed="no such name")
    assert actor.step(head=broken) == c.RefuseEvent(broken, "malformed")


def test_events_of_an_unknown_receiver_in_the_stream_are_read_and_refused() -> None:
    actor = changed(Actor(opened=False), parked=True)
    actor.policy = None
    assert actor.step(read_to=5, seen_to=9) == s.ReadBacklog(5)
    assert actor.step(read_to=9, seen_to=9) == c.UnparkReceiver()
    changed(actor, burials=tuple(f.Burial(position=n, reason="x") for n in range(BURIALS_MAX)))
    assert actor.step(head=EVENT, absent_up_to=5, burying=True) == s.Rest(Rule.UNCONFIGURED)


def test_a_receiver_whose_configuration_is_gone_starts_nothing_more() -> None:
    actor = Actor()
    actor.policy = None
    assert actor.step(head=EVENT) == s.ConfirmReceiver()
    assert actor.step(head=EVENT, in_flight=(5,)) == s.Rest(Rule.UNCONFIGURED)
    assert actor.step(head=EVENT, absent_up_to=5) == s.ConfirmReceiver()


def test_another_url_takes_effect_at_the_next_step() -> None:
    actor = changed(failed(next_at=NOW + 999), disabled="gone")
    actor.adopt(policy(url=URL + "/new"))
    assert actor.step(head=EVENT) == s.Post(EVENT, 1, 2, has_token=True)
