"""No tenant takes the places of other tenants' traces."""

import pytest

from angarium.telemetry import known_traces
from angarium.telemetry.known_traces import Key, KnownTrace, KnownTraces
from angarium.telemetry.trace_ids import TraceContext

TRACE = KnownTrace(TraceContext(1, 0, 1), "https://example.com", [])


def kept(of: KnownTraces, *keys: Key) -> list[Key]:
    """The events among these whose traces are known."""
    return [key for key in keys if of.get(key)]


def test_a_tenant_beyond_its_share_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_traces, "TENANT_TRACES_MAX", 2)
    keys = [("quiet.one", 1), ("loud.one", 1), ("loud.two", 1), ("loud.one", 2)]
    held = KnownTraces()
    for key in keys:
        held.put(key, TRACE)
        held.put(key, TRACE)  # The next attempt of the same event takes no second place.
    assert kept(held, *keys) == [("quiet.one", 1), ("loud.two", 1), ("loud.one", 2)]
    assert (len(held), held.dropped) == (3, 1)


def test_if_all_places_are_taken_the_tenant_with_the_most_gives_one_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_traces, "TRACES_MAX", 4)
    keys = [("quiet.one", 1), ("a.one", 1), ("a.one", 2), ("b.one", 1), ("c.one", 1), ("b.one", 2)]
    held = KnownTraces()
    for key in keys:
        held.put(key, TRACE)
    assert kept(held, *keys) == [("quiet.one", 1), ("a.one", 2), ("c.one", 1), ("b.one", 2)]
    assert (len(held), held.dropped) == (4, 2)


def test_the_traces_of_a_receiver_that_is_gone_are_forgotten_without_being_counted() -> None:
    held = KnownTraces()
    keys = [("a.one", 1), ("a.one", 2), ("a.one", 3), ("a.two", 1), ("b.one", 1)]
    for key in keys:
        held.put(key, TRACE)
    held.forget_receiver("a.one", 3)
    assert kept(held, *keys) == keys[2:]
    held.forget_receivers(lambda receiver: receiver.endswith(".one"))
    assert kept(held, *keys) == [("a.two", 1)]
    assert (len(held), held.dropped) == (1, 0)


def test_a_settled_event_leaves_nothing() -> None:
    held = KnownTraces()
    held.put(("a.one", 1), TRACE)
    assert held.pop(("a.one", 1)) == TRACE
    assert held.pop(("a.one", 1)) is None
    assert not held
