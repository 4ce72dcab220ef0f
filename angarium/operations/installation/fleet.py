"""Shows the fleet: the live nodes, and the owner of each shard."""

from datetime import UTC, datetime

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from streams.observation.installation_status import owners, recorded_losses, seen_members
from streams.observation.receivers_seen import shard_count


class SeenNode(Struct, frozen=True, kw_only=True):
    """A live node; `ttl_s` is how long its heartbeat is valid."""

    node: str
    version: str
    started_at: datetime
    ttl_s: float


class SeenNodes(Struct, frozen=True, kw_only=True):
    """The live nodes, and a sentence for each node whose heartbeat is old or cannot be read."""

    nodes: list[SeenNode]
    problems: list[str]


class SeenShard(Struct, frozen=True, kw_only=True):
    """A shard and its recorded owner, which may be dead; `refused` says why no node runs it."""

    shard: int
    node: str | None
    claimed_at: datetime | None
    alive: bool
    refused: str | None


@operation
async def nodes(access: Access) -> SeenNodes:
    """The live nodes, by name."""
    members, problems = await seen_members(access.js, access.names)
    found = [
        SeenNode(node=each.node, version=each.version, started_at=_instant(each.started_at), ttl_s=each.ttl_s)
        for each in members
    ]
    return SeenNodes(nodes=found, problems=problems)


@operation
async def shards(access: Access) -> list[SeenShard]:
    """All shards, in order."""
    count = await shard_count(access.js, access.names)
    members, _ = await seen_members(access.js, access.names)
    alive = {each.node for each in members}
    losses = await recorded_losses(access.js, access.names, count)
    return [
        SeenShard(
            shard=shard,
            node=owner.node if owner else None,
            claimed_at=_instant(owner.at) if owner else None,
            alive=owner is not None and owner.node in alive,
            refused=losses[shard].why if shard in losses else None,
        )
        for shard, owner in enumerate(await owners(access.js, access.names, count))
    ]


def _instant(at: float) -> datetime:
    """A time to the millisecond, as everywhere."""
    return datetime.fromtimestamp(round(at, 3), UTC)
