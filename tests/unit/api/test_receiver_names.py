"""The names of receivers in order: after the first sorting, a change costs its own place."""

import pytest

from angarium.api.receiver_names import PLACED_ONE_BY_ONE_MAX, ReceiverNames, tenant_range


class World:
    """The receivers that exist, and how often that was asked."""

    def __init__(self, *receivers: str) -> None:
        self.there = {*receivers}
        self.asked = 0
        self.names = ReceiverNames(self.exists)
        for each in receivers:
            self.names.note(each)

    def exists(self, receiver: str) -> bool:
        self.asked += 1
        return receiver in self.there

    def put(self, receiver: str) -> None:
        self.there.add(receiver)
        self.names.note(receiver)

    def remove(self, receiver: str) -> None:
        self.there.discard(receiver)
        self.names.note(receiver)


@pytest.mark.parametrize("count", [PLACED_ONE_BY_ONE_MAX, 5 * PLACED_ONE_BY_ONE_MAX])
def test_names_are_in_order_after_few_and_after_many_changes(count: int) -> None:
    world = World("b.one", "a.two", "a-b.one", "a.one")
    assert [*world.names.in_order()] == ["a-b.one", "a.one", "a.two", "b.one"]
    for number in range(count - 2):
        world.put(f"a.r{number:03}")
    world.put("a.one")
    world.remove("b.one")
    world.remove("never.there")
    assert [*world.names.in_order()] == sorted(world.there)


def test_only_what_has_changed_is_looked_at() -> None:
    world = World(*(f"a.r{number}" for number in range(1000)))
    world.names.in_order()
    world.asked = 0
    world.put("a.new")
    assert len(world.names.in_order()) == 1001
    assert world.names.in_order() is world.names.in_order()
    assert world.asked == 1


def test_the_names_of_a_tenant_are_those_before_the_point() -> None:
    world = World("a.one", "a-b.one", "a_.one", "ab.one", "a.two")
    assert world.names.of_tenant("a") == ["a.one", "a.two"]
    assert world.names.of_tenant("b") == []
    assert len(world.names.of_tenant(None)) == 5
    assert tenant_range(world.names.in_order(), "ab") == (4, 5)
