"""Shows the fleet: the live nodes, what each owns and should own, and how far each shard is behind."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from angarium.access import Access
from angarium.operations.failures import operation
from streams.bounded_gather import gather_bounded
from streams.control_requests.micro_service import refused_shards
from streams.fleet.live_members import live_members
from streams.fleet.members import Member
from streams.fleet.placement import LiveNode, wanted_owners
from streams.nats.errors import NotPermitted
from streams.observation.installation_status import (
    is_alive,
    owners,
    recorded_losses,
    unowned_among,
    unowned_since,
    unsettled_events,
)
from streams.observation.receiver_snapshots import shard_count


class NodeStatus(Struct, frozen=True, kw_only=True):
    """A live node; `ttl_s` is how long its heartbeat is valid.

    `shards_wanted` is how many shards it should own among the live nodes; a node that is `draining` hands its
    shards over to the others. With `outage`, it can connect to no host.
    """

    node: str
    version: str
    started_at: datetime
    ttl_s: float
    shards_owned: int
    shards_wanted: int
    draining: bool
    outage: bool


class FleetStatus(Struct, frozen=True, kw_only=True):
    """The live nodes, and a sentence for each node whose heartbeat is old or cannot be read.

    `shards_unowned`: how many shards no live node owns; `unowned_since`: since when, as far as that is known.
    """

    nodes: list[NodeStatus]
    problems: list[str]
    shards_unowned: int
    unowned_since: datetime | None


class ShardStatus(Struct, frozen=True, kw_only=True):
    """A shard and its recorded owner, which may be dead; `refused` says why no live node owns it.

    `waiting`: how many stored events its owner has neither settled, nor left in the stream for a receiver
    that has to wait; None if NATS does not permit this user to read them. `oldest_at`: when the oldest of
    them was stored.
    """

    shard: int
    node: str | None
    claimed_at: datetime | None
    alive: bool
    refused: str | None
    waiting: int | None
    oldest_at: datetime | None


@operation
async def nodes(access: Access) -> FleetStatus:
    """The live nodes, by name."""
    count = await shard_count(access.js, access.names)
    members, problems = await live_members(access.js, access.names)
    found = await owners(access.js, access.names, count)
    owned = Counter(owner.node for owner in found if owner is not None and is_alive(owner, members))
    unowned = unowned_among(found, members)
    wanted = Counter(wanted_owners(count, live_nodes(members)) if members else ())
    shown = [
        NodeStatus(
            node=each.node, version=each.version, started_at=_instant(each.started_at), ttl_s=each.ttl_s,
            shards_owned=owned[each.node], shards_wanted=wanted[each.node], draining=each.draining,
            outage=each.outage,
        )
        for each in members
    ]  # fmt: skip
    since = await unowned_since(access.js, access.names, unowned)
    return FleetStatus(
        nodes=shown,
        problems=problems,
        shards_unowned=len(unowned),
        unowned_since=_instant_or_none(since),
    )


@operation
async def shards(access: Access) -> list[ShardStatus]:
    """All shards, in order, with the refusals that are recorded for all nodes."""
    return await _shards(access, {})


@operation
async def shards_and_refusals(access: Access) -> list[ShardStatus]:
    """All shards, in order; each live node is asked which it refuses."""
    members, _ = await live_members(access.js, access.names)
    found = await gather_bounded(members, lambda each: refused_shards(access.js, access.names, each.node))
    return await _shards(access, {shard: why for each in found for shard, why in each.items()})


async def _shards(access: Access, refused: Mapping[int, str]) -> list[ShardStatus]:
    js, names = access.js, access.names
    count = await shard_count(js, names)
    members, _ = await live_members(js, names)
    losses = await recorded_losses(js, names, count)
    whys = {**refused, **{shard: loss.why for shard, loss in losses.items()}}

    async def waiting(shard: int) -> tuple[int | None, float | None]:
        try:
            return await unsettled_events(js, names, shard)
        except NotPermitted:
            return None, None

    behind = await gather_bounded(range(count), waiting)
    return [
        ShardStatus(
            shard=shard, node=owner.node if owner else None,
            claimed_at=_instant(owner.at) if owner else None,
            alive=is_alive(owner, members), refused=whys.get(shard),
            waiting=behind[shard][0], oldest_at=_instant_or_none(behind[shard][1]),
        )
        for shard, owner in enumerate(await owners(js, names, count))
    ]  # fmt: skip


def live_nodes(members: Sequence[Member]) -> tuple[LiveNode, ...]:
    """The nodes as the placement takes them."""
    return tuple(LiveNode(each.node, each.placement, each.draining) for each in members)


def _instant(at: float) -> datetime:
    """A time to the millisecond, as everywhere."""
    return datetime.fromtimestamp(round(at, 3), UTC)


def _instant_or_none(at: float | None) -> datetime | None:
    return None if at is None else _instant(at)
