"""A whole installation for a test, small enough to be created quickly."""

import angarium.settings
from streams.installation.partitions import shard_of
from streams.installation.setup import setup
from streams.installation.topology import Installation, Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream

SHARDS = 4


def installation(prefix: str) -> Installation:
    return Installation(prefix=prefix, shards=SHARDS, max_bytes=16 << 20)


def node_settings(names: Names) -> angarium.settings.Settings:
    """The settings of a node `a` with the shortest lease that is allowed."""
    return angarium.settings.Settings(prefix=names.prefix, shards=SHARDS, node="a", ttl_s=2.0)


async def install(js: JetStream, prefix: str) -> Names:
    await setup(js, installation(prefix))
    return Names(prefix)


def shard(receiver: str) -> int:
    tenant, _, name = receiver.partition(".")
    return shard_of(tenant, name, SHARDS)


async def publish(
    js: JetStream, names: Names, receiver: str, body: bytes = b"{}", headers: dict[str, str] | None = None
) -> int:
    """Publish to one receiver, as a producer does; returns the position."""
    answer = await js.publish(names.publish_to(receiver), body, headers)
    assert isinstance(answer, Stored), answer
    return answer.position
