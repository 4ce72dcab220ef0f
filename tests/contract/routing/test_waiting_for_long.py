"""Events that keep `routed` back for too long: their tenants are parked, one after the other."""

import asyncio
from itertools import count, islice

import pytest

from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress
from streams.nats.jetstream import JetStream
from streams.routing import router, tenants
from streams.routing.read_requests import WaitingEvent
from streams.routing.tenants import Tenants
from tests.contract.support.faults import after
from tests.contract.support.routers import PARTITION, OpenOwner, Owner, announce, subscribe
from tests.support.installation import SHARDS
from tests.support.waiting import until

WAITING_S = 0.05

_names = (f"t{number}" for number in count())
FIRST, SECOND = islice((each for each in _names if partition_of(each, SHARDS) == PARTITION), 2)
IMPOSSIBLE = next(name for n in count() if partition_of(name := f"1st{n}", SHARDS) == PARTITION)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WAITING_MAX_S", WAITING_S)


@pytest.fixture
async def owner(js: JetStream, names: Names, open_owner: OpenOwner) -> Owner:
    """A router whose clock stands, and which has no lease yet; no copy of `FIRST` or `SECOND` arrives."""
    owner = await open_owner(within_lease=False)
    for receiver in (f"{FIRST}.a", f"{SECOND}.a"):
        await subscribe(js, names, receiver)
        owner.js.faults[names.publish_to(receiver)].append(after(asyncio.Event().wait))
    return owner


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants that the router has tried to park, as it goes on."""
    park, tried = Tenants.park, list[str]()

    def noted(of: Tenants[WaitingEvent], name: str, *, may_park: bool) -> bool:
        tried.append(name)
        return park(of, name, may_park=may_park)

    monkeypatch.setattr(Tenants, "park", noted)
    return tried


async def expect_recorded(owner: Owner, routed: int, **parked: int) -> None:
    await until(lambda: owner.record.routing == RoutingProgress(routed=routed, parked_tenants=parked))


async def test_a_tenant_whose_event_keeps_routed_back_is_parked(
    js: JetStream, names: Names, owner: Owner
) -> None:
    owner.within_lease = True
    await announce(js, names, tenant=FIRST)
    last = await announce(js, names)
    await until(lambda: owner.totals.events == 2)
    assert owner.record.routing == RoutingProgress(routed=0)
    owner.clocks.turn(WAITING_S)
    await expect_recorded(owner, last, **{FIRST: 1})


async def test_a_tenant_whose_event_came_later_is_parked_later(
    js: JetStream, names: Names, owner: Owner
) -> None:
    """Nothing arrives any more that would have the router look."""
    owner.within_lease = True
    await announce(js, names, tenant=FIRST)
    await until(lambda: owner.totals.events == 1)
    owner.clocks.turn(WAITING_S / 2)
    last = await announce(js, names, tenant=SECOND)
    await until(lambda: owner.totals.events == 2)
    owner.clocks.turn(WAITING_S / 2)
    await expect_recorded(owner, 1, **{FIRST: 1})
    owner.clocks.turn(WAITING_S / 2)
    await expect_recorded(owner, last, **{FIRST: 1, SECOND: last})


@pytest.mark.parametrize("why", ["its name is impossible", "as many are parked as may be"])
async def test_after_one_that_cannot_be_parked_others_are_looked_at_again(
    js: JetStream, names: Names, owner: Owner, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    tried, may_go = looked_at(monkeypatch), asyncio.Event()
    if why == "its name is impossible":
        first, room = IMPOSSIBLE, tenants.PARKED_MAX
        owner.js.faults[names.dead(f"{IMPOSSIBLE}._events")].append(after(may_go.wait))
    else:
        first, room = "acme", 0
        await subscribe(js, names, "acme.a")
        owner.js.faults[names.publish_to("acme.a")].append(after(may_go.wait))
    monkeypatch.setattr(tenants, "PARKED_MAX", room)
    owner.within_lease = True
    await announce(js, names, tenant=first)
    last = await announce(js, names, tenant=SECOND)
    await until(lambda: owner.totals.events == 2)
    owner.clocks.turn(WAITING_S)
    await until(lambda: tried == [first] * len(tried) and len(tried) > 1)
    assert owner.record.routing == RoutingProgress(routed=0)
    monkeypatch.setattr(tenants, "PARKED_MAX", 1)
    may_go.set()
    await expect_recorded(owner, last, **{SECOND: last})
