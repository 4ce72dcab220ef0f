"""The choice of what to evict when the deliveries are full."""

from msgspec.structs import replace

from streams.nats.answers import StreamInfo
from streams.storage.eviction import (
    ROUNDS_EXCLUDED,
    ROUNDS_WITHOUT_EFFECT,
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
    return Sample(position, receiver.partition(".")[0], f"p.deliver.0.{receiver}", size, settled_to)


def test_nothing_is_evicted_if_enough_is_settled() -> None:
    samples = [
        sample(1, "quiet.a", 10),
        sample(2, "busy.a", 30, settled_to=9),
        sample(3, "busy.b", 5, settled_to=3),
    ]
    assert eviction_order(samples, 35) is None
    assert eviction_order(samples, 36) == EvictionOrder("quiet", 2)


def test_the_oldest_events_of_the_tenant_with_the_most_bytes_are_evicted() -> None:
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


def orders_of(orders: EvictionOrders, samples: list[Sample], rounds: int) -> list[EvictionOrder]:
    """The different orders of so many rounds without effect, in turn."""
    found = list[EvictionOrder]()
    for _ in range(rounds):
        order = orders.next_order(samples, FULL)
        if order is not None and order not in found[-1:]:
            found.append(order)
    return found


def test_if_an_order_has_no_effect_the_next_tenant_is_evicted_and_then_all() -> None:
    samples = [sample(1, "few.a", 20), sample(2, "most.a", 80)]
    orders = EvictionOrders()
    found = [orders.next_order(samples, FULL) for _ in range(ROUNDS_WITHOUT_EFFECT + 1)]
    assert {each.tenant for each in found[:-1] if each} == {"most"}
    assert found[-1] == EvictionOrder("few", 2)
    assert orders_of(orders, samples, ROUNDS_WITHOUT_EFFECT) == [
        EvictionOrder("few", 2),
        EvictionOrder("", 2),
    ]
    assert orders_of(orders, samples, ROUNDS_WITHOUT_EFFECT)[-1] == EvictionOrder("most", 3)


def test_the_tenant_whose_events_can_go_is_chosen_again_at_once() -> None:
    samples = [sample(1, "few.a", 20), sample(2, "most.a", 80)]
    orders = EvictionOrders()
    orders_of(orders, samples, ROUNDS_WITHOUT_EFFECT + 1)
    for messages in (90, 80):
        assert orders.next_order(samples, replace(FULL, messages=messages)) == EvictionOrder("few", 2)


def test_a_tenant_whose_events_could_not_go_is_tried_again_in_the_end() -> None:
    samples = [sample(1, "few.a", 20), sample(2, "most.a", 80)]
    orders = EvictionOrders()
    orders_of(orders, samples, ROUNDS_WITHOUT_EFFECT + 1)
    found = [orders.next_order(samples, replace(FULL, messages=-n)) for n in range(ROUNDS_EXCLUDED + 1)]
    assert [each.tenant for each in found if each][-1] == "most"


def test_old_events_that_cannot_go_do_not_keep_newer_ones_from_it() -> None:
    """`few` has its oldest events in a shard that is refused: more and more of it are to go."""
    samples = [sample(position, "few.a", 1) for position in range(1, 101)]
    found = orders_of(EvictionOrders(), samples, 8 * ROUNDS_WITHOUT_EFFECT)
    assert [each.below for each in found if each.tenant == "few"] == [11, 21, 41, 81]


def test_a_tenant_that_cannot_be_evicted_does_not_protect_others() -> None:
    samples = [
        *(sample(position, "most.a", 1) for position in range(1, 91)),
        *(sample(position, "few.a", 1) for position in range(91, 101)),
    ]
    found = orders_of(EvictionOrders(), samples, 2 * ROUNDS_WITHOUT_EFFECT)
    assert found == [EvictionOrder("most", 11), EvictionOrder("few", 101)]
