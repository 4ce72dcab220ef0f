"""Choosing what goes when the deliveries are full."""

from msgspec.structs import replace

from streams.nats.answers import StreamInfo
from streams.storage.eviction import (
    LOOKS_WITHOUT_EFFECT,
    EvictionOrder,
    EvictionOrders,
    Sample,
    eviction_order,
    settled_surplus,
)

FULL = StreamInfo(
    "D", "", first=1, last=100, messages=100, bytes=100, max_bytes=100, config={"max_msg_size": 1}
)


def sample(position: int, receiver: str, size: float, *, settled_to: int = 0) -> Sample:
    return Sample(position, f"p.deliver.0.{receiver}", size, settled_to)


def test_nothing_gives_way_if_enough_is_settled() -> None:
    samples = [
        sample(1, "quiet.a", 10),
        sample(2, "busy.a", 30, settled_to=9),
        sample(3, "busy.b", 5, settled_to=3),
    ]
    assert eviction_order(samples, 35) is None
    assert eviction_order(samples, 36) == EvictionOrder("quiet", 2)


def test_the_tenant_that_has_most_bytes_gives_way_with_its_oldest_events() -> None:
    """Another tenant has older events, and a third one has more events."""
    samples = [
        sample(1, "old.a", 10),
        *(sample(position, "many.a", 1) for position in range(2, 12)),
        sample(12, "large.a", 20), sample(13, "large.b", 20), sample(14, "large.a", 20),
    ]  # fmt: skip
    assert eviction_order(samples, 15) == EvictionOrder("large", 13)
    assert eviction_order(samples, 25) == EvictionOrder("large", 14)
    assert eviction_order(samples, 500) == EvictionOrder("large", 15)


def test_settled_messages_go_only_as_many_as_are_in_the_way() -> None:
    samples = [
        sample(1, "a.few", 1, settled_to=8),
        sample(2, "a.most", 5, settled_to=6),
        sample(4, "a.most", 5, settled_to=6),
        sample(7, "a.most", 50, settled_to=6),
    ]
    assert settled_surplus(samples, 10) == {"p.deliver.0.a.most": 6}
    assert settled_surplus(samples, 11) == {"p.deliver.0.a.most": 6, "p.deliver.0.a.few": 8}
    assert settled_surplus(samples, 0) == {}


def test_if_an_order_has_no_effect_all_tenants_give_way() -> None:
    samples = [sample(1, "few.a", 20), sample(2, "most.a", 80)]
    orders = EvictionOrders()
    found = [orders.next_order(samples, FULL) for _ in range(LOOKS_WITHOUT_EFFECT + 1)]
    assert {each.tenant for each in found[:-1] if each} == {"most"}
    assert found[-1] == EvictionOrder("", 2)
    purged = replace(FULL, messages=90)
    again = orders.next_order(samples, purged)
    assert again is not None
    assert again.tenant == "most"
