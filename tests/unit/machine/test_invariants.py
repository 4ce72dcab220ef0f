"""The invariants: each with a fact that breaks it; no decision of the machine breaks any."""

from typing import Any, get_args, get_type_hints

import pytest
from msgspec.structs import replace

from actors.errors import Unusable
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.evolve import evolve
from actors.machine.invariants import NAMES_EVENTS, Breach, InvariantBroken, check, evolve_checked
from actors.machine.numbering import Frontier, Numbered
from actors.machine.state import BURIALS_MAX, OPEN_MAX, OpenEvent, State
from tests.unit.worlds.values import NOW, Actor, answer, event, policy, retrying

RECEIVER = "acme.billing"
OPENED = OpenEvent(sequence=3, position=9, id="e9", stored_at=NOW)
STATE = State(
    receiver=RECEIVER, opened=True, frontier=Frontier(position=9, sequence=3, source=7), open=(OPENED,),
    limit=RateLimit(1.0, 4), bucket=Bucket(2.0, NOW, 1),
)  # fmt: skip
QUIET = replace(STATE, open=())


def numbered(position: int, sequence: int, **members: Any) -> Numbered:
    return Numbered(sequence=sequence, position=position, id=f"e{position}", stored_at=NOW, **members)


def delivered(*events: Numbered, bucket: Bucket | None = None) -> f.Delivered:
    return f.Delivered(receiver=RECEIVER, events=events, at=NOW, attempt=1, status=200, bucket=bucket)


def failed(*events: Numbered) -> f.AttemptFailed:
    return f.AttemptFailed(receiver=RECEIVER, events=events, at=NOW, attempt=1, status=500)


def given_up(*events: Numbered, reason: str = "expired") -> f.DeadLettered:
    return f.DeadLettered(receiver=RECEIVER, events=events, at=NOW, reason=reason)


def open_events(count: int) -> State:
    entries = tuple(OpenEvent(sequence=n, position=n, id="e", stored_at=NOW) for n in range(1, count + 1))
    return replace(QUIET, frontier=Frontier(position=count, sequence=count), open=entries)


def owing(count: int) -> State:
    burials = tuple(f.Burial(position=n, reason="expired") for n in range(1, count + 1))
    return replace(QUIET, burials=burials)


@pytest.mark.parametrize(
    ("before", "fact", "breach"),
    [
        (STATE, f.Unparked(receiver="acme.other", at=NOW), Breach.OTHER_RECEIVER),
        (QUIET, delivered(numbered(10, 3)), Breach.NUMBER),
        (QUIET, delivered(numbered(10, 5)), Breach.NUMBER),
        (QUIET, delivered(numbered(10, 4), numbered(11, 6)), Breach.NUMBER),
        (STATE, delivered(numbered(9, 4)), Breach.NUMBER),
        (QUIET, delivered(numbered(9, 3)), Breach.SETTLED),
        (QUIET, failed(numbered(9, 3)), Breach.SETTLED),
        (STATE, failed(numbered(5, 2)), Breach.SETTLED),
        (STATE, given_up(numbered(5, 2)), Breach.SETTLED),
        (QUIET, f.EventsNumbered(receiver=RECEIVER, events=(numbered(9, 3),)), Breach.SETTLED),
        (QUIET, f.Started(receiver=RECEIVER, events=(numbered(9, 3),), at=NOW), Breach.SETTLED),
        (
            open_events(OPEN_MAX),
            f.EventsNumbered(receiver=RECEIVER, events=(numbered(999, 257),)),
            Breach.OPEN,
        ),
        (owing(BURIALS_MAX), given_up(numbered(999, 4)), Breach.BURIALS),
        (
            owing(BURIALS_MAX),
            f.EventRefused(receiver=RECEIVER, position=99, reason="expired", at=NOW),
            Breach.BURIALS,
        ),
        (QUIET, delivered(numbered(10, 4), bucket=Bucket(-0.5, NOW, 1)), Breach.TOKENS),
        (QUIET, delivered(numbered(10, 4), bucket=Bucket(4.5, NOW, 1)), Breach.TOKENS),
    ],
)
def test_a_fact_that_breaks_a_rule_is_found(before: State, fact: f.Fact, breach: Breach) -> None:
    assert check(before, fact, evolve(before, fact)) is breach


FELL = f.Unparked(receiver=RECEIVER, at=NOW)


@pytest.mark.parametrize(
    ("after", "breach"),
    [
        (replace(STATE, frontier=Frontier(position=8, sequence=3, source=7)), Breach.FRONTIER),
        (replace(STATE, frontier=Frontier(position=9, sequence=2, source=7)), Breach.FRONTIER),
        (replace(STATE, frontier=Frontier(position=9, sequence=3, source=6)), Breach.FRONTIER),
        (replace(STATE, open=(replace(OPENED, sequence=2),)), Breach.SETTLED),
        (replace(STATE, open=(OPENED, replace(OPENED, sequence=4))), Breach.BEYOND),
        (replace(STATE, open=(OPENED, replace(OPENED, position=10))), Breach.BEYOND),
    ],
)
def test_a_fold_that_breaks_a_rule_is_found(after: State, breach: Breach) -> None:
    """Today's `evolve` breaks none of these rules; a changed one might."""
    assert check(STATE, FELL, after) is breach


@pytest.mark.parametrize(
    ("before", "fact"),
    [
        (QUIET, delivered(numbered(12, 4))),
        (QUIET, delivered(numbered(12, 4), numbered(13, 5))),
        (STATE, delivered(numbered(9, 3))),
        (STATE, delivered(numbered(9, 3), numbered(12, 4))),
        (STATE, failed(numbered(9, 3))),
        (STATE, failed(numbered(12, 4))),
        (QUIET, delivered()),
        (open_events(OPEN_MAX + 5), failed(numbered(7, 7))),
        (owing(BURIALS_MAX + 5), f.Buried(receiver=RECEIVER, position=1)),
        (owing(BURIALS_MAX), given_up(numbered(999, 4), reason="skipped")),
        (replace(QUIET, limit=None), delivered(numbered(10, 4), bucket=Bucket(9.0, NOW, 1))),
        (STATE, f.Repaired(receiver=RECEIVER, at=NOW, position=5, next_sequence=600, dropped=(9,))),
    ],
)
def test_allowed_courses_break_no_invariant(before: State, fact: f.Fact) -> None:
    assert check(before, fact, evolve(before, fact)) is None


def test_only_a_repair_goes_back_and_it_gives_no_number_twice() -> None:
    back = f.Repaired(receiver=RECEIVER, at=NOW, position=5, next_sequence=600)
    again = replace(QUIET, frontier=Frontier(position=5, sequence=2))
    assert check(QUIET, back, again) is Breach.FRONTIER


def test_a_breach_names_receiver_fact_and_rule_and_shows_no_event() -> None:
    fact = delivered(numbered(10, 9, again="hidden"))
    with pytest.raises(InvariantBroken) as caught:
        evolve_checked(QUIET, fact)
    assert isinstance(caught.value, Unusable)
    assert caught.value.breach is Breach.NUMBER
    assert str(caught.value) == (
        "acme.billing: its fact `delivered` breaks an invariant (its number is neither the "
        "next one nor one that was already given). This is a defect in Angarium: see `Refused shards` in "
        "docs/troubleshooting.md"
    )


def test_the_life_of_a_receiver_breaks_none() -> None:
    """The facts are those that the machine decides, each checked as it is folded."""
    actor = Actor(retrying(max_attempts=3))
    actor.ends(event(5), answer(200))
    actor.ends(event(6), answer(500))
    actor.ends(event(6), answer(429))
    actor.do(c.ParkReceiver(NOW))
    actor.do(c.MissEvents(7, 8, posted=2, source=4))
    actor.adopt(policy(dedup_window=16), above=9)
    actor.do(c.ForgetBacklog(20, waiting=3))
    actor.ends(event(21), answer(410))
    actor.do(c.ResumeReceiver())
    actor.do(c.RemoveReceiver(30, waiting=1, removal=4))
    actor.do(c.RefuseEvent(event(31), "unknown_receiver"))
    actor.do(c.RecordBuried((31,)))
    state = State(receiver=RECEIVER)
    for fact in actor.facts:
        state = evolve_checked(state, fact)
    assert state == actor.state


def test_every_fact_that_names_numbers_is_asked_for_them() -> None:
    kinds = get_args(f.Fact)
    assert set(NAMES_EVENTS) == {
        kind for kind in kinds if get_type_hints(kind).get("events") == tuple[Numbered, ...]
    }
