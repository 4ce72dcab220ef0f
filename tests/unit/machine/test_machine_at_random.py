"""The machine under random input: explored, folded from nonsense, written to JSON and read back."""

from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.configuration.transform import Transform
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.decide import NEEDS_NO_CONFIRMATION
from actors.machine.evolve import evolve
from actors.machine.numbering import Numbered
from actors.machine.pace.pace import HeaderLimit, InFlightLimit, LoweredRate, Pace, ProbedRate
from actors.machine.state import State
from tests.unit.worlds.receiver import RULES, explore_one

STEPS = 120
SEEDS = {"above": 2, "dead_first": 1, "removal_first": 67, "forgot_first": 48, "gap": 2, "seen": 1}


def explore(seeds: Iterable[int], off: str = "") -> None:
    for seed in seeds:
        explore_one(seed, STEPS, off)


def test_with_every_rule_the_promises_hold() -> None:
    explore([*SEEDS.values(), *range(80)])


@pytest.mark.parametrize("rule", RULES)
def test_without_this_rule_one_is_broken(rule: str) -> None:
    """The seeds were found by trying; where the explorer has changed, the soak test finds others."""
    with pytest.raises(AssertionError):
        explore([SEEDS[rule]], rule)


@pytest.mark.soak
def test_with_every_rule_the_promises_hold_for_long() -> None:
    explore(range(20_000))


@pytest.mark.soak
@pytest.mark.parametrize("rule", RULES)
def test_without_this_rule_some_seed_breaks_one(rule: str) -> None:
    with pytest.raises(AssertionError):
        explore(range(50_000), rule)


def test_only_these_facts_hold_nothing_up() -> None:
    """Every other fact must be confirmed before anything starts: numbers and tokens depend on it."""
    hurry = {
        f.Delivered, f.AttemptFailed, f.Throttled, f.EventsNumbered, f.EventDropped, f.Parked, f.Unparked,
        f.Buried, f.TurnedAway, f.AlertRaised, f.AlertRecovered, f.AlertsPublished,
        f.HandshakeFailed, f.PaceSet,
    }  # fmt: skip
    assert set(NEEDS_NO_CONFIRMATION) == hurry
    assert hurry < set(get_args(f.Fact))


# ---- any fact on any state

SMALL = st.integers(0, 5)
EVENTS = st.lists(
    st.builds(
        Numbered,
        sequence=SMALL,
        position=SMALL,
        id=st.sampled_from("ab"),
        stored_at=st.just(1.0),
        transform=st.integers(0, 3),
    ),
    max_size=2,
).map(tuple)
SHARED = {
    "receiver": st.just("a.b"), "events": EVENTS, "position": SMALL, "first": SMALL, "last": SMALL,
    "next_sequence": SMALL, "above": SMALL, "size": st.integers(1, 4), "window": st.integers(1, 4),
    "at": st.floats(0, 9), "kind": st.sampled_from(["event", "ping", f.OFFLINE_PING]), "discarded": SMALL,
    "bucket": st.none() | st.builds(Bucket, st.floats(0, 9), st.floats(0, 9), SMALL),
    "limit": st.none() | st.builds(RateLimit, st.floats(0.1, 9), st.integers(1, 9)),
    "returns_at": st.just(0.0) | st.floats(0, 9),
    "attempt": SMALL, "next_at": st.floats(0, 9), "until": st.floats(0, 9), "rejected": st.booleans(),
    "gone": st.booleans(), "ours": st.booleans(), "failing_since": st.none() | st.floats(0, 9),
    "halved": st.booleans(),
    "aborted": st.booleans(), "waiting_since": st.none() | st.floats(0, 9),
    "reason": st.just("gone"),
    "target": st.just("x"), "status": st.none() | st.just(500), "id": st.just("a"), "error": st.just("e"),
    "answer": st.just("no"), "by": st.just("ada@desk"), "left_out": SMALL,
    "latency_ms": st.just(1.5), "attempts": SMALL, "removal": SMALL, "source": SMALL,
    "keys": st.lists(st.binary(min_size=8, max_size=8), max_size=3).map(b"".join),
    "alert": st.sampled_from(get_args(f.AlertKind)), "number": SMALL, "since": st.none() | st.floats(0, 9),
    "raised_at": st.floats(0, 9), "why": st.just("it failed"),
    "revision": st.integers(1, 3),
    "transform": st.none() | st.builds(Transform, pseudonymize=st.sampled_from([(), ("/b",)])),
    "key": st.sampled_from("xy"), "per_minute": st.none() | st.just(60),
    "positions": st.lists(SMALL, max_size=2).map(tuple), "dropped": st.lists(SMALL, max_size=2).map(tuple),
}  # fmt: skip

SHARED |= {
    "pace": st.builds(
        Pace,
        told=st.none() | st.builds(HeaderLimit, st.floats(0, 9), st.floats(0, 9)),
        lowered=st.none() | st.just(LoweredRate(1.5, 3.0, 2.0)),
        in_flight=st.none() | st.just(InFlightLimit(3.5, 1.0)),
        probed=st.none() | st.just(ProbedRate(proven=3.0, ceiling=4.0, low=2.0, slow=True)),
    ),
    "per_second": st.none() | st.floats(0, 9), "in_flight": st.none() | SMALL,
    "limited_by": st.just("headers"), "in_flight_by": st.just("smart"),
}  # fmt: skip


BURIALS = st.lists(
    st.builds(f.Burial, position=SMALL, reason=st.just("gone"), receiver=st.just("a.c")),
    min_size=1,
    max_size=2,
).map(tuple)


def any_fact(kind: type[f.Fact]) -> st.SearchStrategy[f.Fact]:
    if kind is f.TurnedAway:
        return st.builds(
            kind, receiver=st.just("_unknown"), events=BURIALS, discarded=st.booleans(), at=st.just(1.0)
        )
    return st.builds(kind, **{name: SHARED[name] for name in kind.__struct_fields__})


FACTS = st.lists(st.one_of([any_fact(kind) for kind in get_args(f.Fact)]), max_size=12)


@settings(max_examples=60)
@given(FACTS)
def test_folding_never_refuses_and_all_of_it_survives_json(facts: list[f.Fact]) -> None:
    state = State(receiver="a.b")
    for fact in facts:
        assert msgspec.json.decode(msgspec.json.encode(fact), type=f.AnyFact) == fact
        frontier, state = state.frontier, evolve(state, fact)
        assert state.frontier.position >= frontier.position or isinstance(fact, f.Repaired)
        assert state.frontier.sequence >= frontier.sequence or fact_is_nonsense(fact, frontier.sequence)
        assert [each.sequence for each in state.open] == sorted(each.sequence for each in state.open)
        assert len({each.position for each in state.open}) == len(state.open)
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state


def fact_is_nonsense(fact: f.Fact, sequence: int) -> bool:
    """No machine gives a number a second time."""
    return any(each.sequence <= sequence for each in getattr(fact, "events", ()))


def test_every_kind_of_fact_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(f.AnyFact)]
    assert tags == [
        "delivered", "attempt_failed", "throttled", "dead_lettered", "buried", "accepted", "started",
        "repeated", "parked", "unparked", "opened", "removed", "forgot", "missing", "window_set",
        "rate_set", "retargeted", "paused", "resumed", "disabled", "pinged", "refused", "turned_away",
        "repaired", "removal_set", "alert_raised", "alert_recovered", "alerts_published",
        "handshake_started", "handshake_succeeded", "handshake_failed", "transform_set", "pace_set",
        "claimed",
    ]  # fmt: skip


def test_a_quiet_actor_is_small() -> None:
    """About a kilobyte in addition to its dedup window, as the snapshots hold it."""
    state = explore_one(1, STEPS)
    state = replace(state, frontier=replace(state.frontier, window=b""))
    assert len(msgspec.json.encode(state)) < 1024
