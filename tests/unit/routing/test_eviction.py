"""Tenants that are above their rate while room is short: in memory, and in the stream of events."""

from collections.abc import Iterator

import pytest

from actors.machine.bucket import RateLimit
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.routing import tenants as module
from streams.routing.read_requests import Evicted, ReadRequest
from streams.routing.tenants import Tenants
from tests.unit.worlds.partition import Waiting, World, bound_soon, flooded, limited


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Bounds that are reached soon."""
    with pytest.MonkeyPatch.context() as patch:
        bound_soon(patch)
        yield


def limited_world(count: int, events_max: int, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which `acme` has had so many events, and a token for the first, which is in flight."""
    monkeypatch.setattr(module, "EVENTS_MAX", events_max)
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(1.0, 1)))
    for _ in range(count):
        world.publish("acme")
        world.arrive()
    world.match()
    world.match()
    assert set(world.matched) == {1}
    return world


def test_a_tenant_above_its_rate_has_nothing_in_memory_if_events_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = limited_world(4, 8, monkeypatch)
    world.shed(1)
    assert set(world.kept) == {1, 2}
    world.shed(0)
    world.route(0)
    assert not world.kept
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (4, {"acme": 2})
    assert world.tenants.next_read() is None, "it has no token"
    world.now = 20.0
    world.match()
    assert world.tenants.is_read_again
    assert world.tenants.next_read() == ReadRequest("acme", 1, 4, 1)


def test_tokens_are_waived_only_for_what_an_unparkable_tenant_has_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = limited_world(3, 8, monkeypatch)
    assert not world.tenants.waive_tokens(0.0, lambda _: True), "it can be parked"
    monkeypatch.setattr(module, "PARKED_MAX", 0)
    assert not world.tenants.waive_tokens(-1.0, lambda _: True), "none has waited since then"
    assert not world.tenants.park("acme", may_park=True)
    assert world.tenants.waive_tokens(0.0, lambda _: True)
    world.publish("acme")
    world.arrive()
    for _ in range(5):
        event = world.tenants.next_to_match(world.now)
        if event is not None:
            world.tenants.note_matched(event, 0)
    assert [each.position for each in world.tenants.by_name["acme"].unmatched] == [4]
    assert world.tenants.next_token_at is not None


def test_a_tenant_that_can_be_parked_gets_no_event_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    world = limited_world(3, 8, monkeypatch)
    world.wait_too_long()
    assert not world.tenants.waive_tokens(1.0, lambda _: True)


def test_events_in_flight_are_routed_though_their_tenant_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = limited_world(6, 3, monkeypatch)
    assert [each.position for each in world.tenants.evict("acme", 5)] == [2, 3]
    request = world.tenants.next_to_evict()
    assert request == ReadRequest("acme", 1, 4, 3)
    assert world.tenants.next_read() is None, "the next events become letters"
    assert world.tenants.note_buried(request, 3, 2) is None
    assert world.tenants.progress.parked_tenants == {"acme": 1}, "the first is not routed yet"
    world.route(0)
    assert world.tenants.progress.parked_tenants == {"acme": 4}
    request = world.tenants.next_to_evict()
    assert request == ReadRequest("acme", 3, 4, 3)
    assert world.tenants.note_buried(request, 4, 1) == Evicted("acme", 4, 3)
    assert world.tenants.next_to_evict() is None
    world.now = 20.0
    world.match()
    assert world.tenants.next_read() == ReadRequest("acme", 4, 6, 3)


def test_a_page_that_was_requested_before_its_tenant_is_evicted_is_not_taken() -> None:
    world = flooded()
    world.match()
    world.match()
    world.route(0)
    world.route(0)
    request = world.tenants.next_read()
    assert request == ReadRequest("acme", 2, 5, 2)
    page = [Waiting("acme", 3), Waiting("acme", 4)]
    assert world.tenants.evict("acme", 5) == []
    assert not world.tenants.take_read(request, page, complete=False)
    world.bury()
    world.bury()
    assert not world.tenants.take_read(request, page, complete=False), "they have their letters"


def test_only_parked_tenants_are_evicted_and_only_up_to_the_order() -> None:
    tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
    tenants.add(Waiting("acme", 1))
    assert (tenants.evict("acme", 2), tenants.next_to_evict()) == ([], None)
    world = flooded()
    assert (world.tenants.evict("acme", 1), world.tenants.next_to_evict()) == ([], None)


def test_a_tenant_that_was_evicted_completely_is_parked_no_more() -> None:
    world = flooded()
    world.evict("acme", 1000)
    for _ in range(6):
        world.bury()
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (5, {})
    world.match()
    assert not world.tenants.by_name
