"""Checks for events that are not routed: those that wait, and those that belong to no partition."""

from collections.abc import Mapping

from actors.errors import Unusable
from actors.tenant_settings import TenantSettings
from angarium.operations.installation.doctor.findings import Finding, are, problem, warning
from angarium.operations.routing_delays import RoutingDelay, routing_delays
from angarium.quantities import count_text
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream
from streams.storage.strays import count_stray_events

TENANTS_SHOWN_MAX = 10
FLOOD_REMEDY = "find out what publishes them; they are routed in turns with those of other tenants"
STRAY_REMEDY = "find out what publishes to subjects with a token * or >: such events reach no receiver"


async def check_unrouted(
    js: JetStream, installation: Installation, tenants: Mapping[str, TenantSettings]
) -> list[Finding]:
    """Find the tenants whose events wait to be routed. Raises `Unavailable` and `ApiError`."""
    try:
        found = await routing_delays(js, installation.names, installation.shards, tenants, None)
    except Unusable as error:
        return [problem("tenants", str(error))]
    findings = [_finding(each) for each in found[:TENANTS_SHOWN_MAX]]
    if len(found) > TENANTS_SHOWN_MAX:
        more = count_text(len(found) - TENANTS_SHOWN_MAX, "more tenant")
        findings.append(warning("tenants", f"events of {more} wait to be routed"))
    return findings


def _finding(delay: RoutingDelay) -> Finding:
    if delay.why:
        return warning("tenants", delay.text, delay.remedy, delay.command)
    floods = f"{delay.events.tenant} floods partition {delay.events.partition}"
    return warning("tenants", f"{floods}: {delay.waiting_text()}", FLOOD_REMEDY)


async def check_strays(js: JetStream, installation: Installation) -> list[Finding]:
    """Count the events that belong to no partition. Raises `Unavailable` and `ApiError`."""
    count = await count_stray_events(js, installation.names, installation.shards)
    if not count:
        return []
    text = f"{are(count, 'event')} in no partition, so that no node routes them"
    return [warning("events", text, STRAY_REMEDY)]
