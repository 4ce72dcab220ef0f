"""The list of parked receivers: small parts, each written only when it changes."""

import msgspec
import pytest

from actors.machine.state import State
from streams.journal import parked_receivers
from streams.journal.parked_receivers import PART_BYTES_MAX, WAKE_UP_TOLERANCE_S, ParkedPart, ParkedReceivers


def state(receiver: str, at: float = 0.0, *, is_parked: bool = True) -> State:
    return State(receiver=receiver, parked=is_parked, backoff_until=at)


def stored(listed: ParkedReceivers, sequence: int) -> list[ParkedPart]:
    """The bucket once all is written, as far as the checkpoint names it."""
    count = len(listed.as_of(sequence))
    listed.written(sequence)
    return [msgspec.json.decode(listed.encode(number, sequence), type=ParkedPart) for number in range(count)]


def test_parked_receivers_are_listed_and_others_are_not() -> None:
    listed = ParkedReceivers()
    listed.update([state("acme.a", 5.0), state("acme.b"), state("acme.c", is_parked=False)])
    assert listed.receivers() == {"acme.a": 5.0, "acme.b": 0.0}
    listed.update([state("acme.a", is_parked=False)])
    assert listed.receivers() == {"acme.b": 0.0}


def test_only_changed_parts_are_written() -> None:
    listed = ParkedReceivers()
    listed.update(state(f"acme.r{number}") for number in range(1000))
    assert len(listed.changed) > 3
    assert listed.as_of(7) == (7,) * len(listed.changed)
    listed.written(7)
    listed.update([state("acme.r0", is_parked=False), state("acme.r1")])
    assert (listed.changed, listed.as_of(9)[:2]) == ({0}, (9, 7))


def test_a_wake_up_that_hardly_moves_changes_nothing() -> None:
    listed = ParkedReceivers()
    listed.add("acme.a", 1000.0)
    listed.written(1)
    listed.add("acme.a", 1000.0 + WAKE_UP_TOLERANCE_S)
    assert not listed.changed
    listed.add("acme.a", 1001.0 + WAKE_UP_TOLERANCE_S)
    assert listed.changed
    listed.written(2)
    listed.add("acme.a", None)
    assert listed.changed


def test_a_list_that_was_read_is_written_unchanged() -> None:
    before = ParkedReceivers()
    before.update(state(f"acme.r{number}", float(number)) for number in range(1000))
    parts = stored(before, 7)
    after = ParkedReceivers()
    after.read(parts[:2])
    after.read(parts[2:])
    assert after.receivers() == before.receivers()
    assert (after.changed, after.as_of(9)) == (set(), before.as_of(9))
    after.update([state("acme.new")])
    assert after.changed == {len(parts) - 1}


def test_a_receiver_that_is_read_twice_stays_in_one_part() -> None:
    """A write moved him, and was never finished."""
    listed = ParkedReceivers()
    old = ParkedPart(as_of=7, receivers={"acme.a": 4.0, "acme.b": None})
    listed.read([ParkedPart(as_of=9, receivers={"acme.a": 5.0}), old])
    assert listed.receivers() == {"acme.a": 5.0, "acme.b": None}
    assert listed.changed == {1}
    listed.update([state("acme.a", is_parked=False)])
    assert stored(listed, 11) == [
        ParkedPart(as_of=11, receivers={}),
        ParkedPart(as_of=11, receivers={"acme.b": None}),
    ]


def test_room_that_was_left_is_used_again() -> None:
    listed = ParkedReceivers()
    everybody = [f"acme.r{number}" for number in range(1000)]
    listed.update(map(state, everybody))
    count = len(listed.as_of(1))
    for _ in range(5):
        listed.update(state(each, is_parked=False) for each in everybody)
        assert listed.as_of(2) == ()
        listed.update(map(state, reversed(everybody)))
        assert len(listed.as_of(3)) == count


def test_a_part_that_is_empty_is_written_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would name receivers that are no longer parked, once the list is as long again."""
    monkeypatch.setattr(parked_receivers, "PART_BYTES", 1)
    listed = ParkedReceivers()
    listed.update([state("acme.a"), state("acme.b")])
    listed.written(1)
    listed.update([state("acme.b", is_parked=False)])
    assert (listed.changed, listed.as_of(2)) == ({1}, (1,))


def test_very_many_with_the_longest_names_take_few_parts_and_small_ones() -> None:
    listed = ParkedReceivers()
    listed.update(state(f"{number:064}.{number:064}") for number in range(100_000))
    sizes = [len(listed.encode(number, 10**12)) for number in range(len(listed.as_of(1)))]
    assert max(sizes) < PART_BYTES_MAX
    assert len(sizes) < 1500
    assert sum(sizes) < 20e6
