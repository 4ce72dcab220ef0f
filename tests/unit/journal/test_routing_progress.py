"""The progress of routing: which events it covers, and what is left of it after a loss."""

from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress

PROGRESS = RoutingProgress(routed=10, parked_tenants={"acme": 4, "beta": 9})


def test_events_are_needed_from_the_first_that_is_not_routed() -> None:
    assert NOTHING_ROUTED.needed_from == 1
    assert RoutingProgress(routed=10).needed_from == 11
    assert PROGRESS.needed_from == 4


def test_an_event_of_a_parked_tenant_is_covered_below_its_position_only() -> None:
    assert [PROGRESS.covers("acme", position) for position in (3, 4, 10)] == [True, False, False]
    assert [PROGRESS.covers("cora", position) for position in (4, 10, 11)] == [True, True, False]


def test_routed_rises_alone_and_never_falls() -> None:
    assert PROGRESS.raised_to(9) == PROGRESS
    assert PROGRESS.raised_to(12) == RoutingProgress(routed=12, parked_tenants=PROGRESS.parked_tenants)


def test_after_a_loss_new_events_of_parked_tenants_are_routed_too() -> None:
    """The lost positions are used again: a tenant that waited from a lost one continues after the end."""
    lost = PROGRESS.limited_to(6)
    assert lost == RoutingProgress(routed=6, parked_tenants={"acme": 4, "beta": 7})
    assert not lost.covers("beta", 7)
    assert PROGRESS.limited_to(10) == PROGRESS
