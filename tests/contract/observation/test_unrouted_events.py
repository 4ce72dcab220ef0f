"""Tenants whose events wait to be routed, as the doctor, the receiver list and `angarium event` show them."""

import json
from collections import defaultdict
from collections.abc import Mapping

import pytest

from actors.configuration.policy import Rate
from actors.tenant_settings import TenantSettings
from angarium.access import Access
from angarium.operations import routing_delays
from angarium.operations.installation import sizing
from angarium.operations.installation.doctor import routing
from angarium.operations.installation.doctor.findings import Finding
from angarium.operations.installation.doctor.storage import UNROUTED_REMEDY, check_room
from angarium.operations.routing_delays import unrouted_notes, why_unrouted
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.envelope import encode_flush
from streams.journal.routing_progress import RoutingProgress
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire_names import KV_DELETED
from streams.observation import unrouted_events
from streams.observation.unrouted_events import unrouted_events_of, unrouted_tenants
from tests.support.installation import SHARDS, installation, node_settings

SLOW = TenantSettings(rate=Rate(limit=4, per="minute"))
PARTITION = partition_of("acme", SHARDS)


@pytest.fixture(autouse=True)
async def _node(js: JetStream, names: Names) -> None:
    """A node that is alive, and owns all shards."""
    member = {"v": 1, "node": "a", "started_at": 0.0, "version": "1", "heartbeat": 1, "ttl_s": 60.0}
    await js.publish(names.node("a"), json.dumps(member).encode())
    for shard in range(SHARDS):
        await js.publish(names.actor_keys.owner(shard), b'{"v":1,"node":"a","at":0.0}')


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is late as soon as it is stored."""
    monkeypatch.setattr(unrouted_events, "ROUTED_WITHIN_S", 0.0)


async def told(
    js: JetStream, names: Names, tenants: Mapping[str, TenantSettings] | None = None
) -> list[Finding]:
    return await routing.check_unrouted(js, installation(names.prefix), tenants or {})


async def publish(js: JetStream, names: Names, *tenants: str) -> None:
    for tenant in tenants:
        await js.publish(f"{names.prefix}.events.{tenant}.order", b"{}")


async def record(js: JetStream, names: Names, routed: int, parked: dict[str, int]) -> None:
    """Record in each tenant's partition that it is routed so far, except for the parked tenants."""
    partitions = defaultdict[int, dict[str, int]](dict)
    for tenant, position in parked.items():
        partitions[partition_of(tenant, SHARDS)][tenant] = position
    for partition, tenants in partitions.items():
        flush = encode_flush(
            node="a", epoch=1, flush=1, floor=0, at=0.0, unclean=None, facts=[],
            routing=RoutingProgress(routed=routed, parked_tenants=tenants),
        )  # fmt: skip
        await js.publish(names.journal_of(partition), flush)


async def test_the_tenant_whose_event_holds_the_stream_of_events_is_named(
    js: JetStream, names: Names
) -> None:
    await publish(js, names, "beta", "acme", "beta")
    for partition in range(SHARDS):
        parked = {"acme": 2} if partition == PARTITION else {}
        flush = encode_flush(
            node="a", epoch=1, flush=1, floor=0, at=0.0, unclean=None, facts=[],
            routing=RoutingProgress(routed=3, parked_tenants=parked),
        )  # fmt: skip
        await js.publish(names.journal_of(partition), flush)
    events = await stream_info(js, names.events)
    text = await sizing.holder_text(js, installation(names.prefix), events)
    assert text.startswith(f"acme (partition {PARTITION}) still needs messages from 2 on (stored ")


async def test_a_shard_that_has_just_begun_is_not_called_refused(js: JetStream, names: Names) -> None:
    journal, installed = await stream_info(js, names.journal), installation(names.prefix)
    assert await sizing.holder_text(js, installed, journal) == "shard 0 has written no snapshot yet"
    await js.publish(names.actor_keys.owner(0), b"", KV_DELETED)
    refused = await sizing.holder_text(js, installed, journal)
    assert refused.startswith("shard 0 needs everything in it: it is refused, or no node has run it")


async def test_short_room_for_events_is_a_problem_with_a_remedy_of_its_own(
    js: JetStream, names: Names
) -> None:
    await publish(js, names, "acme")
    events = await stream_info(js, names.events)
    await js.stream_update(events.config | {"max_bytes": events.bytes + 1})
    found = await check_room(js, installation(names.prefix), names.events, name_holder=False)
    assert (found.level, found.remedy) == ("problem", UNROUTED_REMEDY)


async def test_a_parked_tenant_is_named_with_what_waits(js: JetStream, names: Names) -> None:
    await publish(js, names, "acme", "beta", "acme", "acme")
    await record(js, names, 4, {"acme": 3})
    [finding] = await told(js, names)
    assert (finding.level, finding.subject) == ("warning", "tenants")
    assert finding.text.startswith(
        f"acme floods partition {PARTITION}: 2 events wait to be routed, the oldest for "
    )
    assert finding.remedy == routing.FLOOD_REMEDY
    await record(js, names, 4, {"acme": 4})
    [finding] = await told(js, names)
    assert ": 1 event waits to be routed, for " in finding.text


async def test_a_tenant_that_its_own_rate_holds_up_floods_nothing(js: JetStream, names: Names) -> None:
    await publish(js, names, "acme", "acme", "acme")
    await record(js, names, 3, {"acme": 2})
    for name in ("acme", "*"):
        [finding] = await told(js, names, {name: SLOW})
        assert finding.text.startswith("2 events of acme wait to be routed, the oldest for ")
        assert finding.text.endswith("s: the rate of acme is 4/minute")
        assert "find out" not in finding.sentence
    assert 'raise rate in [tenants."*"]' in finding.remedy


async def test_without_an_owner_or_room_these_are_the_reason(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(js, names, "acme")
    await record(js, names, 1, {"acme": 1})
    monkeypatch.setattr(routing_delays, "COPY_BYTES", 1 << 40)
    [finding] = await told(js, names, {"acme": SLOW})
    assert finding.text.endswith(f": {names.deliveries} is full")
    await js.publish(names.actor_keys.owner(PARTITION), b'{"v":1,"node":"gone","at":0.0}')
    [finding] = await told(js, names, {"acme": SLOW})
    assert finding.text.endswith(f": no live node owns partition {PARTITION}")
    assert finding.command == "angarium node"


async def test_events_that_no_router_has_parked_are_found_when_they_are_late(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(js, names, "acme", "acme")
    assert await unrouted_tenants(js, names, SHARDS) == []
    assert await unrouted_events_of(js, names, SHARDS, "acme") is None
    monkeypatch.setattr(unrouted_events, "ROUTED_WITHIN_S", 0.0)
    [found] = await unrouted_tenants(js, names, SHARDS)
    assert (found.tenant, found.count, found.parked) == ("acme", 2, False)
    assert await unrouted_events_of(js, names, SHARDS, "acme") == found
    assert await told(js, names, {"acme": SLOW}) == []  # They may be read ahead.
    [event] = (await js.read(names.events, names.event(PARTITION, "acme", ">"), 1, batch=1)).messages
    access = Access(js, node_settings(names))
    assert await why_unrouted(access, event, 0.0) == "it is not recorded yet that it is routed; ask again"
    await js.publish(names.actor_keys.owner(PARTITION), b'{"v":1,"node":"a","at":0.0,"released":0}')
    [finding] = await told(js, names)
    assert finding.text.startswith("2 events of acme wait to be routed")
    assert finding.text.endswith(f": no live node owns partition {PARTITION}")


async def test_a_tenant_that_has_caught_up_is_not_named(js: JetStream, names: Names) -> None:
    await publish(js, names, "acme")
    await record(js, names, 1, {"acme": 2})
    assert await told(js, names) == []


async def test_only_the_tenants_that_wait_longest_are_named(js: JetStream, names: Names) -> None:
    tenants = [f"t{number}" for number in range(routing.TENANTS_SHOWN_MAX + 2)]
    await publish(js, names, *tenants)
    await record(js, names, len(tenants), {tenant: at for at, tenant in enumerate(tenants, 1)})
    findings = await told(js, names)
    assert [each.text.split()[0] for each in findings[:-1]] == tenants[: routing.TENANTS_SHOWN_MAX]
    assert findings[-1].text == "events of 2 more tenants wait to be routed"


@pytest.mark.usefixtures("late")
async def test_an_event_that_waits_says_how_many_come_before_it(js: JetStream, names: Names) -> None:
    access = Access(js, node_settings(names))
    await publish(js, names, "acme", "beta", "acme", "acme", "acme")
    events = (await js.read(names.events, names.event(PARTITION, "acme", ">"), 1)).messages
    await record(js, names, 5, {"acme": events[1].position})
    said = [await why_unrouted(access, each, 0.0) for each in events]
    assert said == [
        "",
        "it waits to be routed: it is the next one of acme",
        "it waits to be routed: 1 event of acme comes before it",
        "it waits to be routed: 2 events of acme come before it",
    ]
    access.settings.tenants["acme"] = SLOW
    assert await why_unrouted(access, events[3], 0.0) == (
        f"{said[3]}; the rate of acme is 4/minute, so its turn comes in about 45s"
    )
    assert await why_unrouted(access, events[3], 60.0) == ""


async def test_notes_name_the_tenants_with_events_that_wait(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(js, node_settings(names))
    tenants = ["acme", "beta", "late"]
    await publish(js, names, *tenants)
    assert await unrouted_notes(access, None) == []
    await record(js, names, 3, {"acme": 1, "late": 3})
    monkeypatch.setattr(routing_delays, "TENANTS_NOTED_MAX", 1)
    one, more = await unrouted_notes(access, None)
    assert one.startswith("1 event of acme waits to be routed, for ")
    assert more == "events of 1 more tenant wait to be routed"
    [note] = await unrouted_notes(access, "late")
    assert note.startswith("1 event of late waits to be routed")
    assert await unrouted_notes(access, "other") == []
