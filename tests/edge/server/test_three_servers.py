"""Three nats-servers as one cluster, on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from angarium.operations.installation.doctor.all_checks import check_everything
from angarium.settings import Settings
from streams.installation.setup import setup
from streams.installation.topology import Installation
from streams.nats.answers import Stored
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.server.cluster import EmbeddedCluster
from tests.support.waiting import until_true


@asynccontextmanager
async def installed(cluster: EmbeddedCluster, of: Installation) -> AsyncIterator[JetStream]:
    """A connection to the cluster, with an installation there."""
    wire = await connect(ConnectOptions(servers=cluster.urls))
    js = JetStream(wire)
    await js.start()
    await setup(js, of)
    yield js
    await js.stop()
    await wire.close()


async def test_each_server_has_a_replica_of_every_stream(tmp_path: Path) -> None:
    of = Installation(shards=1, replicas=3, max_bytes=64 << 20)
    async with EmbeddedCluster(tmp_path) as cluster, installed(cluster, of) as js:

        async def is_stored() -> bool:
            return isinstance(await js.publish(of.names.publish_to("acme.billing"), b""), Stored)

        await until_true(is_stored)
        await cluster.servers[0].kill()
        await until_true(is_stored)
        await cluster.servers[0].start()
    stores = {server.directory / "jetstream" for server in cluster.servers}
    assert all(any(each.rglob("ANGARIUM_DELIVERIES")) for each in stores)


@pytest.mark.soak
async def test_doctor_names_the_streams_without_a_leader(tmp_path: Path) -> None:
    """Streams with one replica are on one server; the other two are enough for JetStream."""
    of = Installation(shards=1, replicas=1, max_bytes=64 << 20)
    async with EmbeddedCluster(tmp_path) as cluster:
        async with installed(cluster, of) as js:
            (holder,) = (each for each in cluster.servers if any(each.directory.rglob(of.names.events)))
            await holder.kill()
            await retry_until_answered(js.check)
        settings = Settings(nats=tuple(each.url for each in cluster.servers if each is not holder), shards=1)
        found = (await check_everything(settings))[-1]
    assert (found.subject, found.ok) == ("streams", False)
    assert found.text.startswith(f"these have no leader: {of.names.events}, {of.names.deliveries}")
