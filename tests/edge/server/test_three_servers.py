"""Three nats-servers as one cluster, on loopback."""

from pathlib import Path

from streams.installation.setup import setup
from streams.installation.topology import Installation
from streams.nats.answers import Stored
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.cluster import EmbeddedCluster
from tests.support.waiting import until_true


async def test_each_server_has_a_replica_of_every_stream(tmp_path: Path) -> None:
    of = Installation(shards=1, replicas=3, max_bytes=64 << 20)
    async with EmbeddedCluster(tmp_path) as cluster:
        wire = await connect(ConnectOptions(servers=cluster.urls))
        js = JetStream(wire)
        await js.start()
        await setup(js, of)

        async def is_stored() -> bool:
            return isinstance(await js.publish(of.names.publish_to("acme.billing"), b""), Stored)

        await until_true(is_stored)
        await cluster.servers[0].kill()
        await until_true(is_stored)
        await cluster.servers[0].start()
        await js.stop()
        await wire.close()
    stores = {server.directory / "jetstream" for server in cluster.servers}
    assert all(any(each.rglob("ANGARIUM_DELIVERIES")) for each in stores)
