"""The fleet, for its operators: nodes, shards and alerts."""

from litestar import get

from angarium.api.admission.gate import needs
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.fleet import (
    LIST_ALERTS,
    LIST_NODES,
    LIST_SHARDS,
    AlertsAndFindings,
    FoundProblem,
    Shards,
)
from angarium.api.problems import result_of
from angarium.operations.installation import fleet
from angarium.operations.installation.fleet import FleetStatus


@get("/v1/nodes", opt=needs("operate"), **LIST_NODES)
async def list_nodes(access: InjectedAccess) -> FleetStatus:
    """List the live nodes."""
    return result_of(await fleet.nodes(access))


@get("/v1/alerts", opt=needs("operate"), **LIST_ALERTS)
async def list_alerts(api: InjectedApi) -> AlertsAndFindings:
    """List the raised alerts, and what is wrong. The answer is cached for a few seconds."""
    seen = await api.recent_findings.get()
    found = [
        FoundProblem(
            level="warning" if each.ok else "problem", subject=each.subject, text=each.text,
            remedy=each.remedy, receiver=each.receiver, condition=each.condition,
        )
        for each in seen.findings
    ]  # fmt: skip
    receivers = seen.receivers
    return AlertsAndFindings(
        as_of=seen.at, alerts=receivers.alerts, alerts_total=receivers.total, findings=found
    )


@get("/v1/shards", opt=needs("operate"), **LIST_SHARDS)
async def list_shards(access: InjectedAccess) -> Shards:
    """List the shards and their owners."""
    return Shards(result_of(await fleet.shards(access)))
