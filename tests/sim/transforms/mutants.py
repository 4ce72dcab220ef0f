"""Rules about transforms, each taken out by itself."""

from collections.abc import Sequence

from msgspec.structs import replace

from actors.machine import decide, evolve
from actors.machine import facts as f
from actors.machine.decide import with_its_number
from actors.machine.event import Event
from actors.machine.evolve import with_transform
from actors.machine.numbering import Numbered, with_number
from actors.machine.state import OpenEvent, State
from actors.runtime.pending import Pending
from tests.sim.mutants.mutant import Mutant
from tests.sim.transforms import scenarios

_not_sent = Pending.not_sent


def _present(state: State, revision: int) -> int:
    return state.transform


def _present_for_none(state: State, revision: int) -> int:
    return revision if state.kept_transform(revision) else state.transform


def _present_without_key(state: State, revision: int) -> int:
    return state.transform if state.shapes_otherwise(revision) else revision


def _none_without_key(state: State, revision: int) -> int | None:
    return None if state.shapes_otherwise(revision) else revision


def _without_revision(event: Event, sequence: int, transform: int = 0) -> Numbered:
    return with_number(event, sequence)


def _present_only(state: State, fact: f.TransformSet) -> State:
    after = with_transform(state, fact)
    return replace(
        after, transforms=tuple(each for each in after.transforms if each.revision == fact.revision)
    )


def _off_record(state: State, event: Event, entry: OpenEvent) -> Numbered:
    return replace(with_its_number(state, event, entry), transform_gone=0)


def _not_given_up(pending: Pending, events: Sequence[Event], unshapeable: Sequence[int] = ()) -> None:
    _not_sent(pending, events)


TRANSFORM_MUTANTS = [
    Mutant("transform-of-the-first-attempt", "a retry has the transform of the first recorded attempt",
           ((State, "transform_for", _present),),
           scenarios.transform_is_replaced_between_attempts),
    Mutant("transform-none", "an event that was first sent as published is retried as published",
           ((State, "transform_for", _present_for_none),),
           scenarios.transform_comes_after_the_first_attempt),
    Mutant("transform-revision", "each fact about an event has the revision of its transform",
           ((decide, "with_number", _without_revision),),
           scenarios.owner_dies_after_the_change),
    Mutant("transform-original", "no original is sent if the transform of its first attempt is gone",
           ((State, "transform_for", _present_without_key),),
           scenarios.key_goes_between_attempts),
    Mutant("transform-pointers", "a replaced key leaves the pointers of the first attempt",
           ((State, "transform_for", _none_without_key),),
           scenarios.key_is_replaced_and_the_transform_goes),
    Mutant("transform-kept", "a transform is kept as long as an open event needs it",
           ((evolve, "with_transform", _present_only),),
           scenarios.relaxed_receiver_gets_many_transforms),
    Mutant("transform-gone", "if the transform of a first attempt is gone, a fact says so",
           ((decide, "with_its_number", _off_record),),
           scenarios.key_is_replaced_between_attempts),
    Mutant("transform-unshapeable", "an event whose body cannot be shaped is given up without an attempt",
           ((Pending, "not_sent", _not_given_up),),
           scenarios.body_is_not_json),
]  # fmt: skip
