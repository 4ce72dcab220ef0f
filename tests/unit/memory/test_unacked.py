"""The floor, compared with a list of all messages ever handed out.

The floor is where a takeover begins to read, so it may never pass a message that no fact has released; and it
never falls, since what lies below it need not be handed out again.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.memory.unacked import ReceiverUnacked, ShardUnacked, UnackedMessage


class Shard(RuleBasedStateMachine):
    """Messages come, facts are decided and confirmed, messages are released by facts, flushes are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.index = self.cut_at = self.confirmed_index = 0
        self.handed_out: list[tuple[UnackedMessage, int]] = []
        self.highest_floor = 0

    @initialize(floor=st.integers(0, 3))
    def begin(self, floor: int) -> None:
        self.shard_unacked = ShardUnacked(floor)
        self.shard_unacked.spare_max = 2
        self.begun_at = self.received = self.highest_floor = floor

    def floor(self, index: int) -> int:
        """The floor that is right."""
        held = [
            each.position
            for each, _ in self.handed_out
            if each.release_index is None or each.release_index > index
        ]
        return max(self.highest_floor, min(held, default=self.received + 1) - 1)

    @property
    def unacked(self) -> list[UnackedMessage]:
        return [each for each, _ in self.handed_out if each.release_index is None]

    def hand_out(self, position: int) -> None:
        message = self.shard_unacked.add(position, "a.b", float(len(self.handed_out)))
        self.handed_out.append((message, self.highest_floor))
        self.received = max(self.received, position)

    @rule(gap=st.integers(1, 3))
    def a_message_comes(self, gap: int) -> None:
        self.hand_out(self.received + gap)

    @rule(back=st.integers(0, 9))
    def a_message_comes_again(self, back: int) -> None:
        position = self.received - back
        if position > self.begun_at and all(each.position != position for each in self.unacked):
            self.hand_out(position)

    @rule(facts=st.integers(1, 3))
    def facts_are_decided(self, facts: int) -> None:
        self.index += facts

    @precondition(lambda self: self.unacked)
    @rule(data=st.data())
    def a_message_is_released(self, data: st.DataObject) -> None:
        """By the fact that was decided last, or by an older one, as when its receiver is parked already."""
        self.shard_unacked.release(
            data.draw(st.sampled_from(self.unacked)), data.draw(st.integers(0, self.index))
        )

    @rule(data=st.data())
    def a_flush_is_cut(self, data: st.DataObject) -> None:
        self.cut_at = data.draw(st.integers(self.cut_at, self.index))
        floor = self.shard_unacked.floor(self.cut_at)
        assert floor == self.floor(self.cut_at)
        first_time = [
            each.position for each, floor_then in self.handed_out
            if each.position > floor_then and (each.release_index is None or each.release_index > self.cut_at)
        ]  # fmt: skip
        assert floor < min(first_time, default=self.received + 1)
        self.highest_floor = floor

    @rule(data=st.data())
    def a_flush_is_confirmed(self, data: st.DataObject) -> None:
        self.confirmed_index = data.draw(st.integers(self.confirmed_index, self.cut_at))
        self.shard_unacked.forget(self.confirmed_index)
        assert self.shard_unacked.floor(self.confirmed_index) == self.floor(self.confirmed_index)
        self.highest_floor = self.floor(self.confirmed_index)

    @rule(before=st.integers(0, 9))
    def it_is_asked_who_is_overdue(self, before: int) -> None:
        overdue = list(self.shard_unacked.overdue(float(before)))
        assert len(overdue) == sum(each.since < before for each in self.unacked)

    @invariant()
    def what_is_unacked_is_counted(self) -> None:
        if hasattr(self, "shard_unacked"):
            assert self.shard_unacked.unacked_count == len(self.unacked)
            assert self.shard_unacked.received == self.received


Shard.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
test_the_floor = Shard.TestCase


def test_the_floor_waits_for_the_lowest_message() -> None:
    shard_unacked = ShardUnacked(10)
    first, second = (shard_unacked.add(position, "a.b", 0.0) for position in (11, 14))
    shard_unacked.release(second, 1)
    assert shard_unacked.floor(1) == 10
    shard_unacked.release(first, 2)
    assert shard_unacked.floor(1) == 10
    assert shard_unacked.floor(2) == 14


def test_a_message_handed_out_again_does_not_let_the_floor_fall() -> None:
    shard_unacked = ShardUnacked(0)
    shard_unacked.release(shard_unacked.add(1, "a.b", 0.0), 1)
    shard_unacked.release(shard_unacked.add(2, "a.b", 0.0), 1)
    assert shard_unacked.floor(1) == 2
    again = shard_unacked.add(1, "a.b", 1.0)
    assert shard_unacked.floor(1) == 2
    shard_unacked.add(3, "a.b", 1.0)
    shard_unacked.release(again, 2)
    assert shard_unacked.floor(2) == 2


def test_a_message_may_be_bound_again_while_the_old_binding_is_still_kept() -> None:
    shard_unacked = ShardUnacked(0)
    shard_unacked.release(shard_unacked.add(1, "_unknown", 0.0), 0)
    again = shard_unacked.add(1, "acme.billing", 0.0)
    assert shard_unacked.floor(5) == 0
    shard_unacked.release(again, 5)
    assert shard_unacked.floor(5) == 1


def test_a_stream_without_messages_has_the_floor_that_it_began_with() -> None:
    assert ShardUnacked(7).floor(0) == 7


def test_overdue_receivers_are_listed_oldest_first_while_they_hold_a_message() -> None:
    shard_unacked = ShardUnacked(0)
    held = [shard_unacked.add(n, f"a.{n}", float(n)) for n in range(1, 5)]
    assert list(shard_unacked.overdue(4.0)) == ["a.1", "a.2", "a.3"]
    shard_unacked.release(held[1], 0)
    assert list(shard_unacked.overdue(4.0)) == ["a.1", "a.3"]
    shard_unacked.release(held[0], 0)
    assert list(shard_unacked.overdue(9.0)) == ["a.3", "a.4"]


def test_receivers_that_hold_a_message_are_counted_once_each() -> None:
    shard_unacked = ShardUnacked(0)
    first, second = ReceiverUnacked("a.1", shard_unacked), ReceiverUnacked("a.2", shard_unacked)
    assert [first.add(1, 0.0), first.add(2, 0.0), first.add(2, 0.0), second.add(3, 0.0)].count(True) == 3
    assert (shard_unacked.unacked_count, shard_unacked.holder_count) == (3, 2)
    first.release(1, 0)
    assert shard_unacked.holder_count == 2
    first.release(2, 0)
    first.release(2, 0)
    first.release_all(0)
    assert shard_unacked.holder_count == 1
    second.release_all(0)
    assert (shard_unacked.unacked_count, shard_unacked.holder_count) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["add", "release", "all", 1, 2, 4]))))
def test_messages_that_are_sent_together_are_counted(
    happenings: list[tuple[int, str | int]],
) -> None:
    """The counts are of those held behind the first of their receiver, and of those that still could be."""
    shard_unacked, position = ShardUnacked(0), 0
    receivers = [ReceiverUnacked(name, shard_unacked) for name in ("a.1", "a.2")]
    for number, happening in happenings:
        receiver = receivers[number]
        match happening:
            case "add":
                position += 1
                receiver.add(position, 0.0)
            case "release":
                receiver.release(receiver.first, 0)
            case "all":
                receiver.release_all(0)
            case int(count):
                receiver.set_batched_max(count)
        holding = [each for each in receivers if each.messages]
        joined = [min(len(each.messages), each.batched_max) - 1 for each in holding]
        room = sum(each.batched_max - 1 for each in holding)
        assert shard_unacked.joined_count == sum(joined)
        assert shard_unacked.joinable_count == room - sum(joined)


def test_released_messages_take_no_memory_until_the_next_flush() -> None:
    """A flood for a parked receiver brings about no fact, and so no flush."""
    shard_unacked = ShardUnacked(0)
    for position in range(1, 1001):
        shard_unacked.release(shard_unacked.add(position, "acme.billing", 0.0), 3)
    assert shard_unacked.floor(3) == 1000
    assert list(shard_unacked.overdue(1.0)) == []
    assert [len(shard_unacked._by_position), len(shard_unacked._by_age)] == [0, 0]


def test_one_message_that_is_held_for_long_keeps_nothing_of_the_others() -> None:
    shard_unacked = ShardUnacked(0)
    held = shard_unacked.add(1, "_unknown", 0.0)
    for position in range(2, 20_002):
        shard_unacked.release(shard_unacked.add(position, "acme.billing", 0.0), position)
        shard_unacked.forget(position)
    assert max(len(shard_unacked._by_position), len(shard_unacked._by_age)) <= ShardUnacked.spare_max + 4
    assert list(shard_unacked.overdue(1.0)) == ["_unknown"]
    assert shard_unacked.floor(20_001) == 0
    shard_unacked.release(held, 20_002)
    assert shard_unacked.floor(20_002) == 20_001
