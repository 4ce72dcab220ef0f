"""The alerts about receivers that are raised, and the unhealthy receivers: one pass over all snapshots."""

from datetime import UTC, datetime
from heapq import nlargest

from msgspec import Struct
from msgspec.structs import replace

from actors.ids import check_tenant
from actors.machine.facts import AlertKind
from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.installation.doctor.findings import Finding, if_permitted
from angarium.operations.installation.doctor.receivers import check_receivers
from streams.observation.receiver_snapshots import ReceiverSnapshot, receiver_snapshots, shard_count

RAISED_SHOWN_MAX = 1000


class RaisedAlert(Struct, frozen=True):
    """An alert about a receiver that is not over."""

    receiver: str
    alert: AlertKind
    raised_at: datetime


class CheckedReceivers(Struct, frozen=True):
    """The findings about receivers that are not ok, and the alerts that are not over, the latest first.

    `total`: the number of all of these alerts.
    """

    findings: list[Finding]
    alerts: list[RaisedAlert]
    total: int


class GatheredAlerts:
    """The raised alerts in the snapshots that were seen so far."""

    def __init__(self) -> None:
        self.snapshots = 0
        self._raised: dict[str, list[tuple[float, str, AlertKind]]] = {}

    def add(self, snapshot: ReceiverSnapshot) -> None:
        """Take a snapshot; a receiver may have two, the newer of which comes later."""
        self.snapshots += 1
        receiver, alerts = snapshot.receiver, snapshot.state.alerts if snapshot.state else ()
        if found := [(each.raised_at, receiver, each.kind) for each in alerts if each.raised]:
            self._raised[receiver] = found
        else:
            self._raised.pop(receiver, None)

    @property
    def total(self) -> int:
        """The number of the raised alerts."""
        return sum(map(len, self._raised.values()))

    @property
    def latest(self) -> list[RaisedAlert]:
        """The alerts that were raised last, the latest first."""
        latest = nlargest(RAISED_SHOWN_MAX, (each for found in self._raised.values() for each in found))
        return [RaisedAlert(receiver, kind, datetime.fromtimestamp(at, UTC)) for at, receiver, kind in latest]


class TenantAlerts(Struct, frozen=True):
    """The alerts about receivers of a tenant that are not over, the latest first; `total` counts all."""

    alerts: list[RaisedAlert]
    total: int


@operation
async def tenant_alerts(access: Access, tenant: str) -> TenantAlerts:
    """Find the alerts about a tenant's receivers, by their snapshots."""
    check_tenant(tenant)
    gathered = GatheredAlerts()
    async for snapshot in receiver_snapshots(access.js, access.names, tenant):
        gathered.add(snapshot)
    return TenantAlerts(gathered.latest, gathered.total)


@operation
async def checked_receivers(access: Access) -> CheckedReceivers:
    """Check the receivers by their snapshots, which nodes write every five seconds."""
    js, gathered = access.js, GatheredAlerts()
    installed = replace(access.installation, shards=await shard_count(js, access.names))
    findings = await if_permitted("receivers", check_receivers(js, installed, gathered.add))
    if not gathered.snapshots:  # The progress of the shards could not be read; the snapshots may be.
        async for snapshot in receiver_snapshots(js, access.names):
            gathered.add(snapshot)
    unhealthy = [each for each in findings if each.level != "ok"]
    return CheckedReceivers(unhealthy, gathered.latest, gathered.total)
