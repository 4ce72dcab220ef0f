"""The raised alerts in the snapshots of receivers, which are read once for them and for the findings."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.errors import NewerVersion
from actors.machine.state import Alert, State
from angarium.access import Access
from angarium.operations.failures import NotDone
from angarium.operations.installation.doctor import raised_alerts, receivers
from angarium.operations.installation.doctor.raised_alerts import (
    CheckedReceivers,
    GatheredAlerts,
    checked_receivers,
)
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.observation import receiver_snapshots
from streams.observation.receiver_snapshots import ReceiverSnapshot
from tests.contract.observation.snapshots import put
from tests.contract.support.servers import RealServer, Server
from tests.support.installation import SHARDS, node_settings

SHOP = "acme.shop"
DISABLED = Alert(kind="disabled", raised_at=1.7e9, raised=True)
RAISED = State(receiver=SHOP, opened=True, alerts=(DISABLED,), disabled="gone")


@pytest.fixture
def server(nats_url: str) -> Server:
    """Only the real server has consumers that read the newest message of each subject."""
    return RealServer(nats_url)


@pytest.fixture
def access(js: JetStream, names: Names) -> Access:
    return Access(js, node_settings(names))


async def examined(access: Access) -> CheckedReceivers:
    found = await checked_receivers(access)
    assert not isinstance(found, NotDone)
    return found


async def test_one_pass_over_the_snapshots_finds_alerts_and_unhealthy_receivers(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(access.js, access.names, RAISED)
    passes = 0

    async def counted(*args: Any) -> AsyncIterator[ReceiverSnapshot]:
        nonlocal passes
        passes += 1
        async for each in receiver_snapshots.receiver_snapshots(*args):
            yield each

    for module in (raised_alerts, receivers):
        monkeypatch.setattr(module, "receiver_snapshots", counted)
    found = await examined(access)
    assert passes == 1
    assert [(each.receiver, each.alert) for each in found.alerts] == [(SHOP, "disabled")]
    assert [each.condition for each in found.findings if each.receiver] == ["disabled"]
    assert found.total == 1


async def test_raised_alerts_are_listed_though_the_progress_of_a_shard_cannot_be_read(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of a newer version may have written it."""
    await put(access.js, access.names, RAISED)

    async def unreadable(*_: Any) -> None:
        raise NewerVersion(f"a checkpoint of {SHARDS} is newer")

    monkeypatch.setattr(receivers, "shard_progress", unreadable)
    found = await examined(access)
    assert [(each.receiver, each.alert) for each in found.alerts] == [(SHOP, "disabled")]
    assert [each.level for each in found.findings] == ["problem"]


def test_an_older_snapshot_of_a_receiver_raises_no_alert() -> None:
    """One may come twice, if it was written during the pass."""
    gathered = GatheredAlerts()
    for state in (RAISED, State(receiver=SHOP, opened=True)):
        gathered.add(ReceiverSnapshot(SHOP, 0, state))
    assert (gathered.latest, gathered.total) == ([], 0)
