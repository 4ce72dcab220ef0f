"""The tenants that flood their partition, as `angarium doctor` names them."""

import time

from actors.errors import Unusable
from angarium.operations.installation.finding import Finding, problem, warning
from angarium.quantities import age_text
from streams.fleet.flooding_tenants import flooding_tenants
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream

TENANTS_SHOWN_MAX = 10
REMEDY = "they are routed in turns with other tenants'; find out what publishes them"


async def examine(js: JetStream, installation: Installation) -> list[Finding]:
    """Examine the tenants; there is no line if none floods. Raises `Unavailable` and `ApiError`."""
    try:
        found = await flooding_tenants(js, installation.names, installation.shards)
    except Unusable as error:
        return [problem("tenants", str(error))]
    now = time.time()
    findings = [
        warning(
            "tenants",
            f"{each.tenant} floods partition {each.partition}: {each.waiting:,} of its events wait to be "
            f"routed, the oldest for {age_text(max(now - each.oldest_at, 0.0))}",
            REMEDY,
        )
        for each in found[:TENANTS_SHOWN_MAX]
    ]
    if len(found) > TENANTS_SHOWN_MAX:
        findings.append(warning("tenants", f"{len(found) - TENANTS_SHOWN_MAX} more flood their partitions"))
    return findings
