"""The transform by which the body of a stored event may be shown: never less of one than it may have had."""

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.configuration.transform import Transform, key_hash
from actors.machine.state import RecordedTransform, State
from angarium.operations.events.recorded_copies import RecordedCopies, TransformChange
from angarium.operations.events.stored_copy import HiddenBody, transform_to_show
from angarium.operations.ledger_queries.ledger_access import LedgerLag

STORED_AT = 1_700_000_000.0
LONG_BEFORE, SOON_BEFORE, AFTER = (round((STORED_AT + each) * 1000) for each in (-3600, -60, 60))
DROP = Transform(drop=("/secret",))
OTHER = Transform(drop=("/other",))
KEY = "psk_" + "a" * 32
NAMES = Transform(pseudonymize=("/name",))
KEPT_UP = LedgerLag(as_of=None, behind_s=0.0, gaps=[])


def recorded(*changes: tuple[int, int], ledger: LedgerLag | None = None) -> RecordedCopies:
    """Transforms as a ledger that has everything knows them."""
    progress = ledger or replace(KEPT_UP, as_of="2023-11-15T00:00:00.000Z")
    return RecordedCopies(
        [], [TransformChange(*each) for each in changes], are_all=True, recorded_to=AFTER, ledger=progress
    )


def adopted(revision: int, transform: Transform, key: str = "") -> State:
    """A receiver for which the transform of that revision is in force."""
    kept = RecordedTransform(revision=revision, transform=transform, key=key)
    return State(receiver="acme.billing", transform=revision, transforms=(kept,))


def policy(transform: Transform | None, key: str | None = None) -> Policy:
    return Policy(url="https://example.com/", transform=transform, pseudonym_key=key)


NONE = State(receiver="acme.billing")


@pytest.mark.parametrize(
    ("wanted", "state", "changes", "shown"),
    [
        (None, None, (), None),
        (None, NONE, (), None),
        (DROP, NONE, (), DROP),
        (DROP, adopted(3, DROP), ((AFTER, 3),), DROP),
        (DROP, adopted(3, DROP), ((SOON_BEFORE, 3),), DROP),
        (DROP, adopted(3, DROP), ((LONG_BEFORE, 2), (LONG_BEFORE, 3)), DROP),
        (None, NONE, ((LONG_BEFORE - 1, 2), (LONG_BEFORE, 0)), None),
    ],
)
def test_the_transform_is_the_only_one_that_an_event_can_have_had(
    wanted: Transform | None,
    state: State | None,
    changes: tuple[tuple[int, int], ...],
    shown: Transform | None,
) -> None:
    assert transform_to_show(policy(wanted), state, recorded(*changes), STORED_AT) == shown


@pytest.mark.parametrize(
    ("wanted", "state", "changes"),
    [
        (None, NONE, ((LONG_BEFORE, 2), (AFTER, 0))),
        (None, NONE, ((SOON_BEFORE, 2), (SOON_BEFORE, 0))),
        (None, adopted(2, DROP), ((LONG_BEFORE, 2),)),
        (OTHER, adopted(2, DROP), ((LONG_BEFORE, 2),)),
        (OTHER, adopted(3, OTHER), ((LONG_BEFORE, 2), (AFTER, 3))),
        (OTHER, adopted(3, OTHER), ((SOON_BEFORE, 2), (AFTER, 3))),
        (DROP, adopted(2, DROP), ((LONG_BEFORE, 2), (AFTER, 3))),
        (DROP, NONE, ((AFTER, 2),)),
        (DROP, State(receiver="acme.billing", transform=2), ((LONG_BEFORE, 2),)),
        (None, NONE, ((LONG_BEFORE, 2),)),
        (None, None, ((LONG_BEFORE, 2),)),
        (OTHER, NONE, ((LONG_BEFORE, 2),)),
    ],
)
def test_a_body_is_hidden_that_may_have_had_another_transform(
    wanted: Transform | None, state: State | None, changes: tuple[tuple[int, int], ...]
) -> None:
    """The state can lack what the ledger has: its receiver was removed and made again, or it was restored."""
    found = transform_to_show(policy(wanted), state, recorded(*changes), STORED_AT)
    assert isinstance(found, HiddenBody)


def test_another_key_of_pseudonyms_hides_a_body() -> None:
    state, changes = adopted(2, NAMES, key_hash(KEY)), recorded((LONG_BEFORE, 2))
    assert transform_to_show(policy(NAMES, KEY), state, changes, STORED_AT) == NAMES
    other = policy(NAMES, KEY.replace("a", "b"))
    assert isinstance(transform_to_show(other, state, changes, STORED_AT), HiddenBody)


@pytest.mark.parametrize(
    "ledger",
    [
        LedgerLag(as_of="2023-11-14T00:00:00.000Z", behind_s=60.0, gaps=[]),
        LedgerLag(as_of="2023-11-15T00:00:00.000Z", behind_s=0.0, gaps=[(None, "2023-11-14T23:00:00.000Z")]),
    ],
)
def test_a_ledger_that_lacks_the_time_of_the_event_hides_its_body(ledger: LedgerLag) -> None:
    found = transform_to_show(policy(None), NONE, recorded(ledger=ledger), STORED_AT)
    assert isinstance(found, HiddenBody)


@pytest.mark.parametrize(
    "ledger",
    [
        LedgerLag(as_of="2023-11-15T00:00:00.000Z", behind_s=0.0, gaps=[(None, "2023-11-14T00:00:00.000Z")]),
        LedgerLag(as_of="2023-11-15T00:00:00.000Z", behind_s=0.0, gaps=[], kept_since="2023-11-14T00:00:00Z"),
    ],
)
def test_a_transform_before_that_may_be_missing_hides_a_body(ledger: LedgerLag) -> None:
    changes = recorded((AFTER, 2), ledger=ledger)
    assert isinstance(transform_to_show(policy(DROP), adopted(2, DROP), changes, STORED_AT), HiddenBody)
    assert transform_to_show(policy(DROP), adopted(2, DROP), recorded(ledger=ledger), STORED_AT) == DROP


def test_too_many_transforms_hide_a_body() -> None:
    changes = replace(recorded(), are_all=False)
    assert isinstance(transform_to_show(policy(None), NONE, changes, STORED_AT), HiddenBody)
