"""An event whose transform is gone is never sent as published: another shapes it, or it is given up."""

from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.policy import BatchLimits
from actors.configuration.transform import Transform, Unshapeable, shaping_of
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.event import Event
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.state import BURIALS_MAX, TRANSFORMS_MAX, as_numbered
from actors.ports import EventShaping
from actors.runtime.live_state import LiveState
from tests.unit.machine.transforms.receiver import DROP, KEY, OTHER_KEY, PSEUDONYMS, Receiver
from tests.unit.worlds.values import NOW, answer, event, policy

BOTH = Transform(drop=("/a",), pseudonymize=("/b",))
LATER = NOW + 60.0


def tried_under(transform: Transform) -> Receiver:
    """A receiver with an event that has a recorded attempt under this transform."""
    actor = Receiver()
    actor.has(transform)
    actor.fails(event(1))
    return actor


def after_nine_transforms() -> Receiver:
    """A receiver whose first event was tried under a transform that is not kept any more."""
    actor = tried_under(DROP)
    for position in range(2, TRANSFORMS_MAX + 2):
        actor.has(Transform(drop=(f"/{position}",)))
        actor.fails(event(position))
    return actor


def shapings(actor: Receiver, *events: Event) -> tuple[EventShaping, ...]:
    """The shapings of these events in an attempt."""
    live = LiveState("acme.billing", environment=None)  # type: ignore[arg-type]
    live.state = actor.state
    return live.shapings(events, actor.policy or policy())


def given_up(actor: Receiver) -> f.DeadLettered:
    """The fact of the next step, which gives an event up before its next attempt is due."""
    step = actor.step(head=event(99))
    assert isinstance(step, c.GiveUpEvents), step
    fact = actor.do(step)[0]
    assert isinstance(fact, f.DeadLettered)
    return fact


@pytest.mark.parametrize("transform", [PSEUDONYMS, BOTH])
@pytest.mark.parametrize("present", [None, DROP])
def test_an_event_whose_key_is_gone_is_given_up_with_the_mark_of_its_transform(
    transform: Transform, present: Transform | None
) -> None:
    """A transform in force that needs no key might show what was a pseudonym before."""
    actor = tried_under(transform)
    actor.has(present, None)
    fact = given_up(actor)
    assert (fact.reason, [each.position for each in fact.events]) == ("transform", [1])
    assert actor.state.burials[0].transform.split()[0] == "11"


def test_an_event_whose_pointers_are_gone_is_given_up_if_no_transform_is_in_force() -> None:
    actor = after_nine_transforms()
    actor.has(None)
    fact = given_up(actor)
    assert (fact.reason, [each.position for each in fact.events]) == ("transform", [1])
    assert actor.state.burials[0].transform == "11"
    assert not isinstance(actor.step(head=event(99)), c.GiveUpEvents)


def test_an_attempt_has_no_original_of_an_event_whose_transform_is_gone() -> None:
    """The machine makes no such attempt; if it did, nothing would be sent."""
    gone, present = Unshapeable("its transform is gone"), Transform(drop=("/z",))
    actor = after_nine_transforms()
    assert shapings(actor, event(1)) == (shaping_of(Transform(drop=("/9",)), KEY),)
    actor.has(None)
    assert shapings(actor, event(1), event(99)) == (gone, None)
    actor.state = replace(actor.state, transforms=())
    assert shapings(actor, event(1), event(99)) == (gone, None)
    actor.has(present)
    actor.state = replace(actor.state, transforms=())
    assert shapings(actor, event(99)) == (gone,)


def test_an_attempt_has_no_pseudonyms_without_a_key() -> None:
    actor = tried_under(PSEUDONYMS)
    actor.has(DROP, None)
    assert shapings(actor, event(1)) == (Unshapeable("its transform is gone"),)


def test_a_dead_letter_keeps_the_mark_of_a_transform_that_is_gone() -> None:
    """The mark hides the body, whatever the event is given up for."""
    actor = tried_under(PSEUDONYMS)
    actor.has(None, None)
    assert actor.fails(event(1)).events[0].transform == 11
    actor.do(c.GiveUpEvents((as_numbered(actor.state.open[0]),), "skipped"))
    assert actor.state.burials[0].transform.split()[0] == "11"


def test_an_event_that_cannot_be_shaped_is_given_up_before_its_turn() -> None:
    """In relaxed order it is neither the oldest nor due first."""
    actor = Receiver()
    actor.has(DROP)
    actor.fails(event(1))
    actor.has(PSEUDONYMS)
    actor.fails(event(2))
    actor.has(DROP, None)
    assert [each.position for each in given_up(actor).events] == [2]


@pytest.mark.parametrize("present", [None, DROP])
def test_a_replaced_key_leaves_the_pointers_of_an_event(present: Transform | None) -> None:
    actor = tried_under(BOTH)
    actor.has(present, OTHER_KEY)
    assert shapings(actor, event(1)) == (shaping_of(BOTH, OTHER_KEY),)
    number = actor.fails(event(1)).events[0]
    assert (number.transform, number.transform_gone) == (11, 11)


def test_a_replaced_key_changes_nothing_for_an_event_without_pseudonyms() -> None:
    actor = tried_under(DROP)
    actor.has(None, None)
    number = actor.fails(event(1)).events[0]
    assert (number.transform, number.transform_gone) == (11, 0)


def in_one_post(order: Any) -> Receiver:
    """A receiver of batches whose events were in one POST, each under a transform of its own."""
    actor = Receiver()
    actor.has(DROP)
    actor.do(c.NumberEvents((event(1),)))
    actor.has(PSEUDONYMS)
    actor.do(c.NumberEvents((event(2),)))
    actor.do(c.RecordOutcome((event(1), event(2)), answer(500), ""))
    actor.has(DROP, None)
    actor.policy = policy(order=order, transform=DROP, batch=BatchLimits())
    return actor


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@pytest.mark.parametrize("full", [False, True])
def test_an_event_that_cannot_be_shaped_leaves_its_batch(order: Any, full: bool) -> None:
    """The batch waits until there is room for a dead letter."""
    actor = in_one_post(order)
    in_memory = {1: event(1), 2: event(2)}
    if full:
        burial = f.Burial(position=0, reason="expired")
        actor.state = replace(actor.state, burials=(burial,) * BURIALS_MAX)
        resting = actor.step(LATER, open_in_memory=in_memory, burying=True)
        assert resting == s.Rest(Rule.BURIALS_FULL)
        return
    step = actor.step(LATER, open_in_memory=in_memory)
    assert isinstance(step, c.GiveUpEvents)
    assert (step.reason, [each.position for each in step.events]) == ("transform", [2])
    actor.do(step)
    post = actor.step(LATER, open_in_memory=in_memory, burying=True)
    assert isinstance(post, s.PostBatch)
    assert [each.position for each in post.events] == [1]


def test_an_event_that_an_attempt_could_not_shape_leaves_its_batch() -> None:
    """The attempt would else be made again and again, and never be sent."""
    actor = in_one_post("strict")
    actor.has(PSEUDONYMS)
    actor.policy = policy(transform=PSEUDONYMS, pseudonym_key=KEY, batch=BatchLimits())
    in_memory = {1: event(1), 2: event(2, unshapeable=True)}
    step = actor.step(LATER, open_in_memory=in_memory)
    assert isinstance(step, c.GiveUpEvents)
    assert (step.reason, [each.position for each in step.events]) == ("transform", [2])
