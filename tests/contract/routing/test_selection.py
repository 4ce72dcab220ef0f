"""The router with regions and filters: who gets a copy, in which order, and what waits for whom."""

import itertools

import msgspec
import pytest

from actors.configuration.filters.evaluating import Filter, FilterAnswer
from actors.configuration.transform import Transform, transform_hash
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import DEAD_TRANSFORM
from streams.routing import tenants
from streams.routing.lanes import Lanes
from streams.routing.selection import receiver_selection
from tests.contract.support.faults import after
from tests.contract.support.routers import (
    PARTITION,
    OpenOwner,
    accepted,
    announce,
    copies,
    has_stored,
    settled,
    stored,
)
from tests.support.installation import SHARDS
from tests.support.waiting import until

A, B, C = "acme.a", "acme.b", "acme.c"
NEIGHBOUR = next(name for n in itertools.count() if partition_of(name := f"t{n}", SHARDS) == PARTITION)


async def put(js: JetStream, names: Names, receiver: str, **members: object) -> None:
    raw = msgspec.json.encode({"url": "https://example.com/hook"} | members)
    assert isinstance(await StoredConfigurations(js, names).put(receiver, raw), Stored)


def body(total: int) -> bytes:
    return b'{"total": %d}' % total


async def test_a_filter_lets_some_events_through_in_their_order(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await put(js, names, A, filter="total > `5`")
    await put(js, names, B)
    await put(js, names, C, filter="total <= `5`", events=["other"])
    owner = await open_owner()
    for total in range(10):
        await announce(js, names, body(total))
    await settled(js, names, 10)
    assert await stored(js, names, A) == [body(total) for total in range(6, 10)]
    assert await stored(js, names, B) == [body(total) for total in range(10)]
    assert await stored(js, names, C) == []
    selections = owner.totals.selections
    assert (owner.totals.copies, selections.filtered, owner.totals.unmatched) == (14, 6, 0)


async def test_an_event_that_no_filter_lets_through_is_routed(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await put(js, names, A, filter="total > `5`")
    owner = await open_owner()
    last = await announce(js, names, body(1))
    await settled(js, names, last)
    assert [each.copies for each in owner.routed] == [0]
    assert owner.totals.unmatched == 0


async def test_an_event_that_cannot_be_evaluated_is_counted_and_not_sent(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await put(js, names, A, filter="length(total) > `0`")
    owner = await open_owner()
    await announce(js, names, body(1))
    await announce(js, names, b"no json")
    last = await announce(js, names, b"[%s]" % b",".join([b"[]"] * 20_000))
    await settled(js, names, last)
    assert await stored(js, names, A) == []
    assert owner.totals.selections.failures == {"failed": 1, "not_json": 1, "too_costly": 1}


async def test_a_region_decides_who_gets_a_copy_and_the_copy_keeps_it(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await put(js, names, A, region="eu")
    await put(js, names, B, region=["eu", "us"])
    await put(js, names, C)
    owner = await open_owner()
    for region in ("eu", "us", "asia", ""):
        headers = {"Angarium-Region": region} if region else None
        await announce(js, names, region.encode(), headers=headers)
    last = await announce(js, names, b"bad", headers={"Angarium-Region": "E U"})
    await settled(js, names, last)
    assert await stored(js, names, A) == [b"eu", b""]
    assert await stored(js, names, B) == [b"eu", b"us", b""]
    assert await stored(js, names, C) == [b"eu", b"us", b"asia", b""]
    assert [each.headers.get("Angarium-Region", "") for each in await copies(js, names, C)] == [
        "eu", "us", "asia", "",
    ]  # fmt: skip
    assert (owner.totals.selections.outside_region, owner.totals.malformed) == (3, 1)


async def test_a_changed_filter_holds_for_later_events(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await put(js, names, A, filter="total > `5`")
    owner = await open_owner()
    await settled(js, names, await announce(js, names, body(9)))
    await put(js, names, A, filter="total < `5`")
    owner.clocks.turn(1.0)
    await settled(js, names, await announce(js, names, body(8)))
    await settled(js, names, await announce(js, names, body(1)))
    assert await stored(js, names, A) == [body(9), body(1)]
    await put(js, names, A)
    owner.clocks.turn(1.0)
    await settled(js, names, await announce(js, names, body(8)))
    assert await stored(js, names, A) == [body(9), body(1), body(8)]


async def test_an_event_that_is_routed_again_by_another_filter_keeps_the_order(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The second owner routes both again, and its filter lets the first one through, too: too late."""
    await put(js, names, A, filter="total > `5`")
    await put(js, names, B)
    owner = await open_owner()
    owner.js.faults[names.publish_to(B)].append(after(_never))
    await announce(js, names, body(1))
    await announce(js, names, body(9))
    await has_stored(js, names, A, [body(9)])
    await put(js, names, A)
    owner.clocks.turn(1.0)
    await owner.own_again()
    await settled(js, names, 2)
    assert await accepted(js, names, A) == [body(9)]


async def _never() -> None:
    await until(lambda: False)


async def test_selections_that_take_many_turns_keep_the_order_and_leave_turns_to_others(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_selection, "STEPS_A_TURN", 1)
    receivers = [f"acme.r{number}" for number in range(20)]
    for number, receiver in enumerate(receivers):
        await put(js, names, receiver, filter=f"total != `{number}`")
    await put(js, names, f"{NEIGHBOUR}.b")
    order = list[str]()
    evaluate, add = Filter.evaluate, Lanes.add

    def noted(given: Filter, decoded: object) -> FilterAnswer:
        order.append("evaluated")
        return evaluate(given, decoded)  # type: ignore[arg-type]

    def added(lanes: Lanes[object], lane: str, item: object) -> None:
        order.append(lane)
        add(lanes, lane, item)

    monkeypatch.setattr(Filter, "evaluate", noted)
    monkeypatch.setattr(Lanes, "add", added)
    for total in range(10):
        await announce(js, names, body(total))
    last = await announce(js, names, b"other", tenant=NEIGHBOUR)
    await open_owner()
    await settled(js, names, last)
    for number, receiver in enumerate(receivers):
        assert await stored(js, names, receiver) == [body(each) for each in range(10) if each != number]
    assert await stored(js, names, f"{NEIGHBOUR}.b") == [b"other"]
    assert order[: order.index(f"{NEIGHBOUR}.b")].count("evaluated") < 20


async def test_a_parked_tenant_is_filtered_like_others(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "EVENTS_MAX", 4)
    await put(js, names, A, filter="total >= `20`")
    await put(js, names, B, region=["us"])
    for total in range(40):
        await announce(js, names, body(total), headers={"Angarium-Region": "eu"})
    owner = await open_owner()
    await has_stored(js, names, A, [body(total) for total in range(20, 40)])
    await until(lambda: owner.record.routing == RoutingProgress(routed=40))
    assert await stored(js, names, B) == []


async def test_an_evicted_event_gets_letters_for_chosen_receivers_only(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "EVENTS_MAX", 2)
    await put(js, names, A, filter="total > `5`")
    await put(js, names, B, region=["us"])
    await put(js, names, C, transform={"drop": ["/name"]})
    owner = await open_owner()
    owner.js.faults[names.publish_to(C)].append(after(_never))
    for total in range(10):
        await announce(js, names, body(total), headers={"Angarium-Region": "eu"})
    await until(lambda: bool(owner.record.routing.parked_tenants))
    owner.router.evict_unrouted("acme", 11)
    await until(lambda: owner.totals.evicted >= 6)
    letters = await js.read(names.dead_letters, names.dead("acme.*"), 1, 100)
    found = {(each.subject.rpartition(".")[2], each.data) for each in letters.messages}
    evicted = {data for receiver, data in found if receiver == "c"}
    assert evicted
    assert {receiver for receiver, _ in found} == {"a", "c"}
    drop = transform_hash(Transform(drop=("/name",)), "")
    marks = {each.subject.rpartition(".")[2]: each.headers.get(DEAD_TRANSFORM) for each in letters.messages}
    assert marks == {"a": None, "c": f"{owner.configurations.revision(C)} {drop}"}
    assert {data for receiver, data in found if receiver == "a"} == evicted & {
        body(each) for each in range(6, 10)
    }
