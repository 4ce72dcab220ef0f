"""The transform of an event is that of its first recorded attempt, whatever the configuration says later."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.configuration.transform import (
    TRANSFORM_BYTES_MAX,
    Transform,
    key_hash,
    transform_bytes,
    transform_problems,
)
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.decide import NEEDS_NO_CONFIRMATION, transform_differs
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.numbering import with_number
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.scheduling.unverified import OLDER_NODES_EVERY_S
from actors.machine.scheduling.view import Cutoff, FixedBounds, View
from actors.machine.state import (
    BURIALS_MAX,
    OPEN_MAX,
    TRANSFORMS_BYTES_MAX,
    TRANSFORMS_MAX,
    OpenEvent,
    State,
    as_numbered,
)
from actors.status import why
from streams.journal.journal import PAYLOAD_MIN
from tests.unit.machine.transforms.receiver import DROP, KEY, OTHER_KEY, PSEUDONYMS, Receiver
from tests.unit.worlds.values import NOW, Actor, answer, event, policy


def test_a_transform_is_recorded_with_its_revision_and_the_hash_of_its_key() -> None:
    actor = Receiver()
    (fact,) = actor.has(PSEUDONYMS)
    assert fact == f.TransformSet(
        receiver="acme.billing", revision=11, transform=PSEUDONYMS, key=key_hash(KEY)
    )
    assert KEY not in msgspec.json.encode(actor.state).decode()
    assert not isinstance(fact, NEEDS_NO_CONFIRMATION)


def test_the_same_transform_is_recorded_once() -> None:
    actor = Receiver()
    actor.has(DROP)
    assert actor.has(DROP) == []
    assert not transform_differs(State(receiver="a.b"), policy())


def test_a_fact_has_the_revision_and_only_if_there_is_a_transform() -> None:
    actor = Receiver()
    before = actor.fails(event(1))
    actor.has(DROP)
    after = actor.fails(event(2))
    assert [each.events[0].transform for each in (before, after)] == [0, 11]
    assert b"transform" not in msgspec.json.encode(before)


def test_a_later_attempt_keeps_the_revision_of_the_first() -> None:
    actor = Receiver()
    one, two, three = event(1), event(2), event(3)
    actor.fails(one)
    actor.has(DROP)
    actor.fails(two)
    actor.has(PSEUDONYMS)
    actor.fails(three)
    actor.has(None)
    assert [actor.fails(each).events[0].transform for each in (one, two, three)] == [0, 11, 12]
    assert [each.transform for each in actor.state.transforms] == [DROP, PSEUDONYMS]
    assert actor.state.transform == 0


def test_a_recorded_number_has_the_revision_of_its_time() -> None:
    actor = Receiver()
    actor.has(DROP)
    actor.do(c.NumberEvents((event(1),)))
    actor.has(None)
    assert actor.transform_of(event(1)) == 11
    assert as_numbered(actor.state.open[0]).transform == 11


def test_a_transform_that_no_open_event_needs_is_forgotten() -> None:
    actor = Receiver()
    actor.has(DROP)
    actor.fails(event(1))
    actor.has(PSEUDONYMS)
    actor.ends(event(1), answer(200))
    actor.has(None)
    assert actor.state.transforms == ()


def test_a_fact_says_that_a_key_was_replaced() -> None:
    """The old key is gone, so its pseudonyms cannot come again; a transform without pseudonyms stays."""
    actor = Receiver()
    actor.has(DROP)
    actor.fails(event(1))
    actor.has(PSEUDONYMS)
    actor.fails(event(2))
    actor.has(PSEUDONYMS, OTHER_KEY)
    kept, changed = actor.fails(event(1)).events[0], actor.fails(event(2)).events[0]
    assert (kept.transform, kept.transform_gone) == (11, 0)
    assert (changed.transform, changed.transform_gone) == (12, 12)
    actor.has(PSEUDONYMS, KEY)
    again = actor.fails(event(2)).events[0]
    assert (again.transform, again.transform_gone) == (12, 0)


def test_the_number_of_kept_transforms_is_bounded() -> None:
    actor = Receiver()
    for position in range(1, TRANSFORMS_MAX + 3):
        actor.has(Transform(drop=(f"/{position}",)))
        actor.fails(event(position))
    assert len(actor.state.transforms) == TRANSFORMS_MAX
    oldest = actor.fails(event(1)).events[0]
    assert (oldest.transform, oldest.transform_gone) == (actor.state.transform, 11)


def test_the_bytes_of_kept_transforms_are_bounded() -> None:
    """A shard whose snapshot is larger than a message stores none any more."""
    actor = Receiver()
    for position in range(1, TRANSFORMS_MAX + 1):
        actor.has(largest_transform(position))
        actor.fails(event(position))
    kept = [transform_bytes(each.transform) for each in actor.state.transforms]
    assert TRANSFORMS_BYTES_MAX - TRANSFORM_BYTES_MAX < sum(kept) <= TRANSFORMS_BYTES_MAX
    assert actor.state.transforms[-1].revision == actor.state.transform
    oldest = actor.fails(event(1)).events[0]
    assert (oldest.transform, oldest.transform_gone) == (actor.state.transform, 11)


def test_the_largest_snapshot_with_transforms_is_one_message() -> None:
    actor = Receiver()
    actor.revision = 10**12

    def large(position: int) -> Event:
        return event(position, name=f"{position:0128d}", type="t" * 200, source=10**9 + position)

    actor.has(largest_transform(TRANSFORMS_MAX))
    actor.do(c.NumberEvents(tuple(map(large, range(1, BURIALS_MAX + 1)))))
    actor.do(c.GiveUpEvents(tuple(map(as_numbered, actor.state.open)), "skipped"))
    for number, each in enumerate(map(large, range(10**9, 10**9 + OPEN_MAX))):
        if number < TRANSFORMS_MAX:
            actor.has(largest_transform(number))
        actor.fails(each)
    assert (len(actor.state.burials), len(actor.state.open)) == (BURIALS_MAX, OPEN_MAX)
    assert all(each.transform for each in actor.state.open)
    assert len(msgspec.json.encode(actor.state)) < PAYLOAD_MIN


def largest_transform(number: int) -> Transform:
    """A transform that is as large as one may be."""
    transform = Transform(drop=(f"/{number}", *(f"/{place:02d}" + '"' * 125 for place in range(15))))
    rest = TRANSFORM_BYTES_MAX - transform_bytes(transform) - len(',"/"')
    transform = Transform(drop=(*transform.drop, "/" + "a" * rest))
    assert transform_bytes(transform) == TRANSFORM_BYTES_MAX
    assert not list(transform_problems(transform, None))
    return transform


def test_no_revision_stands_for_two_transforms() -> None:
    """A bucket that was created again counts from 1."""
    actor = Receiver()
    actor.has(DROP)
    actor.fails(event(1))
    actor.revision = 0
    (fact,) = actor.has(PSEUDONYMS)
    assert isinstance(fact, f.TransformSet)
    assert fact.revision == 12


@pytest.mark.parametrize("order", ["strict", "relaxed"])
def test_an_event_that_cannot_be_shaped_is_given_up_without_an_attempt(order: Any) -> None:
    actor = Actor(policy(order=order, transform=DROP))
    actor.adopt(actor.policy or policy())
    step = actor.step(head=event(1, unshapeable=True))
    assert isinstance(step, c.GiveUpEvents)
    assert step.reason == "transform"
    fact = actor.do(step)[0]
    assert isinstance(fact, f.DeadLettered)
    assert actor.state.burials[0].reason == "transform"


def test_events_are_given_up_together_only_for_the_same_reason() -> None:
    actor = Actor()
    waiting: tuple[Event, ...] = (
        event(1, malformed="no"),
        event(2, unshapeable=True),
        event(3, unshapeable=True),
        event(4),
    )
    for expected in (("malformed", 1), ("transform", 2)):
        step = actor.step(waiting=waiting, burying=True)
        assert isinstance(step, c.GiveUpEvents)
        assert (step.reason, len(step.events)) == expected
        actor.do(step)
        waiting = waiting[len(step.events) :]
    assert isinstance(actor.step(waiting=waiting, burying=True), s.Post)


def test_a_dead_letter_is_marked_with_the_transform_of_its_event() -> None:
    actor = Receiver()
    actor.has(DROP)
    actor.fails(event(1))
    actor.has(PSEUDONYMS)
    given_up = (as_numbered(actor.state.open[0]),)
    actor.do(c.GiveUpEvents(given_up, "skipped"))
    fresh = with_number(event(2), 2, actor.state.transform)
    actor.do(c.GiveUpEvents((fresh,), "expired"))
    marks = [each.transform.split() for each in actor.state.burials]
    assert [revision for revision, _ in marks] == ["11", "12"]
    assert marks[0][1] != marks[1][1]


def test_an_event_that_is_given_up_untried_has_the_transform_in_force() -> None:
    """The dead letter says by what it would have been shaped."""
    actor = Receiver()
    actor.has(DROP)
    expired = actor.step(NOW + 1e9, head=event(1))
    actor.policy = None
    evicted = actor.step(head=event(1), cutoff=Cutoff(5, "evicted"))
    for step in (expired, evicted):
        assert isinstance(step, c.GiveUpEvents)
        assert [each.transform for each in step.events] == [11]


def test_a_dead_letter_of_a_transform_that_is_gone_has_no_hash() -> None:
    state = State(
        receiver="a.b", open=(OpenEvent(sequence=1, position=1, id="a", stored_at=0.0, transform=7),)
    )
    fact = f.DeadLettered(receiver="a.b", events=(as_numbered(state.open[0]),), at=0.0, reason="expired")
    assert evolve(state, fact).burials[0].transform == "7"


def test_a_transform_waits_for_nodes_that_would_send_the_original() -> None:
    actor = Receiver()
    actor.policy = policy(order="relaxed", transform=DROP)
    older = FixedBounds(all_know_transforms=False)
    step = actor.step(policy_adopted=False, bounds=older)
    assert isinstance(step, s.WaitUntil)
    assert step.rule is Rule.OLDER_NODES_TRANSFORM
    view = View(policy_adopted=False, bounds=older, waiting=())
    assert why(actor.state, actor.policy, view, NOW, backlog=1) == (
        "a node of an older version knows no transforms: upgrade it"
    )
    assert isinstance(actor.step(policy_adopted=False, bounds=older, has_unacked=True), s.Park)
    assert isinstance(actor.step(policy_adopted=False), c.Adopt)
    actor.has(DROP, None)
    assert isinstance(actor.step(policy_adopted=False, bounds=older), c.Adopt)


OLDER = FixedBounds(all_know_transforms=False)


def waiting_for_nodes(order: Any = "strict", **members: Any) -> Actor:
    """A receiver whose transform cannot be recorded yet."""
    actor = Actor(policy(order=order, **members))
    actor.policy = policy(order=order, transform=DROP, **members)
    return actor


@pytest.mark.parametrize("order", ["strict", "relaxed"])
def test_an_event_is_given_up_in_time_while_its_transform_waits_for_nodes(order: Any) -> None:
    actor, given = waiting_for_nodes(order), event(1)
    expires_at = given.stored_at + policy().retry.max_age_s
    for now, is_due in ((expires_at - 1, False), (expires_at, True)):
        step = actor.step(now, head=given, policy_adopted=False, bounds=OLDER)
        assert isinstance(step, c.GiveUpEvents) == is_due, step
    assert isinstance(step, c.GiveUpEvents)
    assert (step.reason, [each.transform for each in step.events]) == ("expired", [0])
    assert isinstance(actor.do(step)[0], f.DeadLettered)


def test_an_open_event_is_given_up_in_time_while_a_transform_waits_for_nodes() -> None:
    actor = waiting_for_nodes()
    actor.ends(event(1), answer(500))
    step = actor.step(NOW + 1e7, policy_adopted=False, bounds=OLDER)
    assert isinstance(step, c.GiveUpEvents)
    assert (step.reason, [each.position for each in step.events]) == ("expired", [1])


def test_events_in_the_stream_expire_while_a_transform_waits_for_nodes() -> None:
    """The receiver wakes for the oldest of them, and looks for older nodes more often than that."""
    actor = waiting_for_nodes()
    actor.state = replace(actor.state, parked=True, waiting_since=NOW)
    expires_at = NOW + policy().retry.max_age_s
    found = [
        actor.step(now, policy_adopted=False, bounds=OLDER, seen_to=9)
        for now in (expires_at - 99, expires_at - 1, expires_at)
    ]
    assert found == [
        s.WaitUntil(expires_at - 99 + OLDER_NODES_EVERY_S, Rule.OLDER_NODES_TRANSFORM),
        s.WaitUntil(expires_at, Rule.OLDER_NODES_TRANSFORM),
        s.ReadBacklog(0),
    ]


def test_a_backlog_overflows_while_a_transform_waits_for_nodes() -> None:
    actor = waiting_for_nodes(backlog_max=1)
    waiting = tuple(event(position) for position in range(1, 4))
    step = actor.step(NOW, waiting=waiting, policy_adopted=False, bounds=OLDER, overflowed_at=NOW - 99)
    assert isinstance(step, c.GiveUpEvents)
    assert (step.reason, [each.position for each in step.events]) == ("overflow", [1, 2])


def test_a_duplicate_is_dropped_while_a_transform_waits_for_nodes() -> None:
    """The duplicate would stay the oldest event, and none behind it would be given up."""
    actor = waiting_for_nodes()
    actor.ends(event(1), answer(200))
    assert actor.step(head=event(1), policy_adopted=False, bounds=OLDER) == c.DropDuplicate(event(1))
