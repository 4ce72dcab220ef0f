"""Findings of the doctor about tenants that flood their partition of the events."""

from collections import defaultdict

from angarium.operations.installation import flooding_findings
from angarium.operations.installation.finding import Finding
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.envelope import encode_flush
from streams.nats.jetstream import JetStream
from streams.routing_progress import RoutingProgress
from tests.support.installation import SHARDS, installation


async def told(js: JetStream, names: Names) -> list[Finding]:
    return await flooding_findings.examine(js, installation(names.prefix))


async def publish(js: JetStream, names: Names, *tenants: str) -> None:
    for tenant in tenants:
        await js.publish(f"{names.prefix}.events.{tenant}.order", b"{}")


async def record(js: JetStream, names: Names, routed: int, parked: dict[str, int]) -> None:
    """Record in each tenant's partition that it is routed so far, but for the parked tenants."""
    partitions = defaultdict[int, dict[str, int]](dict)
    for tenant, position in parked.items():
        partitions[partition_of(tenant, SHARDS)][tenant] = position
    for partition, tenants in partitions.items():
        flush = encode_flush(
            node="a", epoch=1, flush=1, floor=0, at=0.0, unclean=None, facts=[],
            routing=RoutingProgress(routed=routed, parked_tenants=tenants),
        )  # fmt: skip
        await js.publish(names.journal_of(partition), flush)


async def test_a_parked_tenant_is_named_with_what_waits(js: JetStream, names: Names) -> None:
    await publish(js, names, "acme", "beta", "acme", "acme")
    await record(js, names, 4, {"acme": 3})
    [finding] = await told(js, names)
    assert (finding.level, finding.subject) == ("warning", "tenants")
    partition = partition_of("acme", SHARDS)
    assert finding.text.startswith(
        f"acme floods partition {partition}: 2 of its events wait to be routed, the oldest for "
    )


async def test_a_tenant_that_has_caught_up_is_not_named(js: JetStream, names: Names) -> None:
    await publish(js, names, "acme")
    await record(js, names, 1, {"acme": 2})
    assert await told(js, names) == []


async def test_only_so_many_are_named_those_that_wait_the_longest(js: JetStream, names: Names) -> None:
    tenants = [f"t{number}" for number in range(flooding_findings.TENANTS_SHOWN_MAX + 2)]
    await publish(js, names, *tenants)
    await record(js, names, len(tenants), {tenant: at for at, tenant in enumerate(tenants, 1)})
    findings = await told(js, names)
    assert [each.text.split()[0] for each in findings[:-1]] == tenants[: flooding_findings.TENANTS_SHOWN_MAX]
    assert findings[-1].text == "2 more flood their partitions"
