"""The alerts about receivers that are raised."""

from datetime import UTC, datetime
from heapq import nlargest

from msgspec import Struct

from actors.machine.facts import AlertKind
from angarium.connecting import Access
from angarium.operations.failures import operation
from streams.observation.receivers_seen import receiver_snapshots

RAISED_SHOWN_MAX = 1000


class RaisedAlert(Struct, frozen=True):
    """An alert about a receiver that is not over."""

    receiver: str
    alert: AlertKind
    raised_at: datetime


class RaisedAlerts(Struct, frozen=True):
    """The alerts that are not over, the latest first, and the number of all of them."""

    alerts: list[RaisedAlert]
    total: int


@operation
async def raised_alerts(access: Access) -> RaisedAlerts:
    """The raised alerts about receivers, by their snapshots, which nodes write every five seconds."""
    raised: dict[str, list[tuple[float, str, AlertKind]]] = {}
    async for snapshot in receiver_snapshots(access.js, access.names):
        receiver, alerts = snapshot.receiver, snapshot.state.alerts if snapshot.state else ()
        if found := [(each.raised_at, receiver, each.kind) for each in alerts if each.raised]:
            raised[receiver] = found
        else:
            raised.pop(receiver, None)
    total = sum(map(len, raised.values()))
    latest = nlargest(RAISED_SHOWN_MAX, (each for found in raised.values() for each in found))
    return RaisedAlerts(
        [RaisedAlert(receiver, kind, datetime.fromtimestamp(at, UTC)) for at, receiver, kind in latest],
        total,
    )
