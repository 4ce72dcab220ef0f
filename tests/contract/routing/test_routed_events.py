"""The router tells of each routed event once: when the journal holds that it is routed."""

import asyncio

from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.support.faults import after
from tests.contract.support.routers import OpenOwner, announce, has_stored, settled, subscribe
from tests.support.waiting import until

A, B = "acme.a", "acme.b"


async def test_an_event_is_reported_as_routed_once_all_its_copies_are_stored(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    for receiver in (A, B):
        await subscribe(js, names, receiver, "order.>")
    owner = await open_owner()
    may_store = asyncio.Event()
    owner.js.faults[names.publish_to(B)] += [after(may_store.wait)]
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = {"Angarium-Id": "order-7", "traceparent": traceparent}
    position = await announce(js, names, b"1", "order.created", headers=sent)
    await has_stored(js, names, A, [b"1"])
    assert not owner.routed
    may_store.set()
    unmatched = await announce(js, names, b"2", "other")
    await settled(js, names, unmatched)
    told = {each.source: (each.id, each.type, each.traceparent, each.copies) for each in owner.routed}
    assert told.pop(position) == ("order-7", "order.created", traceparent, 2)
    assert [copies for *_, copies in told.values()] == [0]


async def test_an_event_whose_owner_died_before_its_record_is_reported_once(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    owner.record.epoch += 1  # Nothing more is recorded, as after its death.
    position = await announce(js, names, b"1")
    await until(lambda: owner.router.progress.routed == position)
    assert not owner.routed
    await owner.own_again()
    await settled(js, names, position)
    assert [each.source for each in owner.routed] == [position]
