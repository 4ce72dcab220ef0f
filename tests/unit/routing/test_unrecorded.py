"""Calls for routed events wait until the journal holds that these are routed."""

import pytest

from streams.journal.routing_progress import RoutingProgress
from streams.routing import routed_events
from streams.routing.routed_events import UnrecordedRoutings


class Told:
    """Routed events that wait, and the positions of those whose calls were made."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.routings = UnrecordedRoutings()

    def add(self, tenant: str, position: int) -> None:
        self.routings.add(tenant, position, lambda: self.positions.append(position))


def test_a_routed_event_waits_only_until_the_journal_covers_it() -> None:
    told = Told()
    for tenant, position in (("parked", 3), ("quiet", 4), ("quiet", 7)):
        told.add(tenant, position)
    told.routings.recorded(RoutingProgress(routed=2))
    assert told.positions == []
    told.routings.recorded(RoutingProgress(routed=5, parked_tenants={"parked": 2}))
    assert told.positions == [4]
    told.routings.recorded(RoutingProgress(routed=7))
    told.routings.recorded(RoutingProgress(routed=8))
    assert told.positions == [4, 3, 7]


def test_waiting_events_take_a_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed_events, "UNRECORDED_MAX", 2)
    told = Told()
    for position in (1, 2, 3):
        told.add("acme", position)
    assert told.positions == [1]
    told.routings.recorded(RoutingProgress(routed=3))
    assert told.positions == [1, 2, 3]
