"""Tenants of a partition, compared with a list that remembers every event."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.machine.bucket import RateLimit
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.routing import tenants as module
from streams.routing.read_requests import NO_END, ReadRequest
from streams.routing.tenants import Tenants
from tests.unit.worlds.partition import TENANTS, Waiting, World, bound_soon, flooded, limited

Act = tuple[Any, ...]


ACTS: tuple[Act, ...] = (
    *((World.publish, tenant) for tenant in TENANTS),
    (World.arrive,), (World.arrive,), (World.match,), (World.match_a_part,), (World.read,),
    (World.wait_too_long,), (World.record,),
    (World.take_over,), (World.shed, 1), (World.shed, 0), (World.waive,), (World.bury,), (World.bury,),
    *((World.evict, tenant, up_to) for tenant in TENANTS for up_to in (5, 20, 1000)),
    *((World.read_ahead, tenant, behind) for tenant in TENANTS for behind in (0, 2)),
    (World.route, 0), (World.route, 1), (World.route, 2),
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Bounds that are reached soon."""
    with pytest.MonkeyPatch.context() as patch:
        bound_soon(patch)
        yield


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(ACTS), min_size=60, max_size=120), st.sampled_from((2, 3)))
def test_no_event_is_lost_and_every_tenant_is_unparked_in_the_end(script: list[Act], events_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EVENTS_MAX", events_max)
        _run(script)


def _run(script: list[Act]) -> None:
    world = World()
    for act, *arguments in script:
        act(world, *arguments)
    world.rest()
    world.record()
    assert world.done == set(range(1, len(world.stream) + 1))
    assert world.recorded == RoutingProgress(routed=len(world.stream))


def test_a_tenant_with_too_many_events_is_parked_at_the_first_that_is_not_routed() -> None:
    world = flooded("beta")
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (5, {"acme": 1})
    world.match()
    world.route(0)
    assert world.tenants.progress.parked_tenants == {"acme": 2}


def test_events_in_memory_of_a_parked_tenant_are_not_read_again() -> None:
    world = flooded()
    assert world.tenants.next_read() is None
    world.match()
    world.route(0)
    request = world.tenants.next_read()
    assert request is not None
    assert (request.above, request.up_to, request.count_max) == (2, 5, 1)


def test_tenants_take_turns_to_be_matched() -> None:
    world = flooded("beta", "cora")
    matched = [event.tenant for _ in range(3) if (event := world.tenants.next_to_match(0.0)) is not None]
    assert matched == ["acme", "beta", "cora"]


def test_a_tenant_above_its_rate_waits_for_a_token_and_holds_no_other_up() -> None:
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(2.0, 1)))
    for tenant in ("acme", "acme", "beta"):
        world.publish(tenant)
        world.arrive()
    first = world.tenants.next_to_match(10.0)
    assert first == Waiting("acme", 1)
    assert world.tenants.next_token_at is None
    world.tenants.note_matched(first, 1)
    assert world.tenants.next_to_match(10.0) == Waiting("beta", 3)
    assert world.tenants.next_to_match(10.0) is None
    assert world.tenants.next_token_at == pytest.approx(10.5)
    assert world.tenants.next_to_match(10.4) is None
    assert world.tenants.next_to_match(10.6) == Waiting("acme", 2)


def test_a_tenant_takes_one_token_for_an_event_that_is_matched_in_parts() -> None:
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(2.0, 1)))
    for _ in range(2):
        world.publish("acme")
        world.arrive()
    first = world.tenants.next_to_match(10.0)
    assert first is not None
    world.tenants.match_later(first)
    assert world.tenants.next_to_match(10.0) == first
    world.tenants.note_matched(first, 1)
    assert world.tenants.next_to_match(10.0) is None
    assert world.tenants.next_to_match(10.6) == Waiting("acme", 2)


def test_tenants_above_their_rate_keep_one_event_and_get_the_rest_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 8)
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(1.0, 1)))
    for tenant in ("acme", "acme", "beta", "acme", "acme"):
        world.publish(tenant)
        world.arrive()
    world.match()
    world.route(0)
    assert world.tenants.shed(lambda _: True) == [], "none waits for a token"
    world.match()
    world.match()
    world.route(0)
    assert [each.position for each in world.tenants.shed(lambda _: True)] == [4, 5]
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (5, {"acme": 2})
    assert world.tenants.next_read() is None, "it has no use for more before it has a token"
    world.now = 20.0
    world.match()
    assert world.tenants.next_read() == ReadRequest("acme", 3, 5, 7)


def test_a_page_that_was_requested_before_its_tenant_shed_events_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page would follow events that the tenant no longer has in memory."""
    monkeypatch.setattr(module, "EVENTS_MAX", 4)
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(1.0, 1)))
    for _ in range(7):
        world.publish("acme")
        world.arrive()
    world.match()
    world.route(0)
    world.match()
    world.now = 20.0
    world.match()
    world.route(0)
    request = world.tenants.next_read()
    assert request == ReadRequest("acme", 4, 7, 2)
    assert world.tenants.next_to_match(world.now) is None
    assert [each.position for each in world.tenants.shed(lambda _: True)] == [4]
    page = [Waiting("acme", 5), Waiting("acme", 6)]
    assert not world.tenants.take_read(request, page, complete=False)
    assert list(world.tenants.by_name["acme"].events) == [3]


def test_events_read_ahead_that_do_not_follow_what_came_before_are_not_taken() -> None:
    """Events 3 and 4 were shed after the request, and are only in the stream."""
    tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
    tenants.add(Waiting("acme", 2))
    assert tenants.take_ahead(ReadRequest("acme", 4, NO_END, 2), [Waiting("acme", 5)]) == []
    assert [tenants.recognise("acme", position) for position in (3, 4, 5)] == [False, False, False]


def test_a_tenant_that_cannot_be_parked_sheds_nothing() -> None:
    world = World()
    world.tenants = Tenants(NOTHING_ROUTED, limited(acme=RateLimit(1.0, 1)))
    for tenant in ("acme", "acme", "acme"):
        world.publish(tenant)
        world.arrive()
    world.match()
    world.match()
    assert world.tenants.shed(lambda _: False) == []


def test_a_tenant_whose_copies_are_not_confirmed_waits_with_the_next_event() -> None:
    world = World()
    for tenant in ("acme", "acme", "beta"):
        world.publish(tenant)
        world.arrive()
    event = world.tenants.next_to_match(0.0)
    assert event is not None
    world.tenants.note_matched(event, 2)
    assert world.tenants.next_to_match(0.0) == Waiting("beta", 3)
    assert world.tenants.next_to_match(0.0) is None
    world.tenants.note_copy_stored(event)
    assert world.tenants.next_to_match(0.0) == Waiting("acme", 2)


def test_an_event_that_waits_too_long_keeps_others_back_no_more() -> None:
    world = World()
    for tenant in ("acme", "beta"):
        world.publish(tenant)
        world.arrive()
    world.match()
    world.match()
    world.route(1)
    assert world.tenants.routed == 0
    world.wait_too_long()
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (2, {"acme": 1})
    world.route(0)
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (2, {})


def read_ahead(world: World, tenant: str) -> None:
    for _ in range(3):
        world.read_ahead(tenant, 0)


def test_an_event_is_read_ahead_and_keeps_others_back_only_from_its_arrival_on() -> None:
    world = flooded()
    for tenant in ("acme", "beta"):
        world.publish(tenant)
    read_ahead(world, "beta")
    world.match()
    world.match()
    assert set(world.matched) == {1, 7}
    assert (world.tenants.routed, world.tenants.highest) == (5, 5)
    world.arrive()
    world.arrive()
    assert (world.tenants.routed, world.tenants.highest) == (6, 7)
    world.route(1)
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (7, {"acme": 1})


def test_an_event_that_was_read_ahead_and_routed_is_not_kept_again() -> None:
    world = flooded()
    world.publish("beta")
    read_ahead(world, "beta")
    world.match()
    world.match()
    world.route(1)
    world.arrive()
    assert (world.tenants.routed, world.done) == (6, {6})
    assert list(world.tenants.by_name) == ["acme"]


def test_no_parked_tenant_and_none_without_room_is_read_ahead() -> None:
    world = flooded("beta", "beta")
    assert world.tenants.next_ahead("acme") is None
    assert world.tenants.next_ahead("beta") is None
    assert world.tenants.next_ahead("cora") == ReadRequest("cora", 7, NO_END, 2)


def test_a_tenant_that_is_read_ahead_is_parked_only_up_to_what_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 3)
    world = World()
    for tenant in ("beta", "acme", "beta", "beta"):
        world.publish(tenant)
    world.arrive()
    read_ahead(world, "beta")
    world.wait_too_long()
    assert world.tenants.progress.parked_tenants == {"beta": 1}
    world.arrive()
    world.arrive()
    for _ in range(4):
        world.match()
    world.route(1)
    assert (world.tenants.routed, world.done) == (2, {2})
    world.wait_too_long()
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (3, {"beta": 1})
    world.route(0)
    world.route(0)
    assert (world.tenants.routed, world.tenants.progress.parked_tenants) == (3, {})


def test_events_that_were_requested_before_their_tenant_was_parked_are_not_taken() -> None:
    tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
    assert tenants.next_ahead("acme") is not None
    tenants.add(Waiting("acme", 1, size=module.BYTES_MAX))
    tenants.drop("acme", 2)
    request = ReadRequest("acme", 0, NO_END, 2)
    tenants.take_ahead(request, [Waiting("acme", position) for position in (1, 2, 3)])
    assert list(tenants.by_name["acme"].events) == [1]


def test_only_so_many_tenants_are_parked() -> None:
    world = World()
    for tenant in TENANTS * 5:
        world.publish(tenant)
        world.arrive()
    assert len(world.tenants.progress.parked_tenants) == module.PARKED_MAX
    assert world.tenants.routed == TENANTS.index("cora")


def test_a_tenant_that_cannot_be_read_by_its_subject_is_never_parked() -> None:
    tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
    for position in range(1, module.EVENTS_MAX + 5):
        assert tenants.admits("a$b", may_park=False)
        tenants.add(Waiting("a$b", position))
    assert not tenants.park("a$b", may_park=False)
    assert (tenants.routed, tenants.progress.parked_tenants) == (0, {})


def test_large_events_fill_a_tenant_sooner() -> None:
    tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
    tenants.add(Waiting("acme", 1, size=module.BYTES_MAX))
    assert not tenants.admits("acme", may_park=True)
    tenants.drop("acme", 2)
    assert tenants.progress.parked_tenants == {"acme": 1}
