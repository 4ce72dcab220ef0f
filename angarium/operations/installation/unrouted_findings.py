"""The tenants whose events wait to be routed, as `angarium doctor` names them."""

from collections.abc import Mapping

from actors.errors import Unusable
from actors.tenant_settings import TenantSettings
from angarium.operations.installation.finding import Finding, problem, warning
from angarium.operations.routing_delays import RoutingDelay, routing_delays
from angarium.quantities import count_text
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream

TENANTS_SHOWN_MAX = 10
FLOOD_REMEDY = "they are routed in turns with other tenants'; find out what publishes them"


async def unrouted_findings(
    js: JetStream, installation: Installation, tenants: Mapping[str, TenantSettings]
) -> list[Finding]:
    """Examine the tenants; there is no line if nothing waits. Raises `Unavailable` and `ApiError`."""
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
