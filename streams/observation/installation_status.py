"""The status of an installation as seen from outside, for `doctor`, `fleet`, `repair` and the HTTP API.

Nothing is decided here: a claim finds out who owns a shard, and the members find out which nodes are alive.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import msgspec

from actors.errors import Unavailable
from streams.bounded_gather import gather_bounded
from streams.fleet.members import Member
from streams.installation.topology import Installation, Names, streams
from streams.journal import claim
from streams.journal.checkpoint import read_checkpoint
from streams.journal.claim import Owner, read_shard_record
from streams.journal.refusal import RecordedLoss, read_recorded_loss
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.versions import read_versioned

_owner = msgspec.json.Decoder(Owner)


BEHIND_FOR_S = 0.5
"""Time for which a replica lacks messages before it counts as behind: under load it always lacks some."""


async def servers_behind(js: JetStream, installation: Installation) -> dict[str, list[str]]:
    """The servers that lack messages, each with the streams and buckets concerned."""
    names = [config["name"] for config in streams(installation)]
    if not (first := await _behind(js, names)):
        return {}
    await asyncio.sleep(BEHIND_FOR_S)
    servers: dict[str, list[str]] = {}
    for server, name in sorted(first & await _behind(js, sorted({name for _, name in first}))):
        servers.setdefault(server, []).append(name)
    return servers


async def leaderless_streams(js: JetStream, installation: Installation) -> list[str]:
    """The streams and buckets about which no answer comes, though JetStream answers: they have no leader.

    They are asked twice, since a stream whose leader has died needs some seconds for the next one. Raises
    `Unavailable` if JetStream does not answer either, and `NotPermitted`.
    """
    names = [config["name"] for config in streams(installation)]
    for _ in range(2):
        answers = await gather_bounded(names, lambda name: _answers(js, name))
        names = [name for name, answered in zip(names, answers, strict=True) if not answered]
        if not names:
            return []
    await js.check()
    return names


async def _answers(js: JetStream, name: str) -> bool:
    try:
        await js.stream_info(name)
    except NotPermitted:
        raise
    except Unavailable:
        return False
    return True


async def _behind(js: JetStream, names: list[str]) -> set[tuple[str, str]]:
    return {(server, name) for name in names for server in (await stream_info(js, name)).behind}


async def owners(js: JetStream, names: Names, shards: int) -> list[Owner | None]:
    """The recorded owner of each shard; None if it has none.

    Raises `NewerVersion` and `NotOurs`.
    """
    return await owners_of(js, names, range(shards))


async def owners_of(js: JetStream, names: Names, shards: Iterable[int]) -> list[Owner | None]:
    """The recorded owners of these shards. Raises like `owners`."""

    async def owner(shard: int) -> Owner | None:
        message = await js.last_message(names.actors, names.actor_keys.owner(shard))
        if message is None or not message.data:
            return None
        found = read_versioned(_owner, message.data, claim.VERSION, names.actor_keys.owner(shard))
        return None if found.released is not None else found

    return await gather_bounded(shards, owner)


async def unowned_since(js: JetStream, names: Names, shards: Sequence[int]) -> float | None:
    """The time at which the first of these shards lost its owner, as far as that is known.

    A shard was released, or the heartbeat of its owner has expired, which leaves a marker.
    """

    async def since(shard: int) -> float | None:
        message = await js.last_message(names.actors, names.actor_keys.owner(shard))
        if message is None or not message.data:
            return None
        owner = read_versioned(_owner, message.data, claim.VERSION, names.actor_keys.owner(shard))
        if owner.released is not None:
            return message.stored_at
        heartbeat = await js.last_message(names.nodes, names.node(owner.node))
        return heartbeat.stored_at if heartbeat is not None and not heartbeat.data else None

    return min((at for at in await gather_bounded(shards, since) if at is not None), default=None)


async def unowned_shards(js: JetStream, names: Names, shards: int, members: Collection[Member]) -> list[int]:
    """The shards that none of these live nodes owns, by the owners' records. Raises like `owners`."""
    return unowned_among(await owners(js, names, shards), members) if members else list(range(shards))


def unowned_among(owners: Sequence[Owner | None], members: Collection[Member]) -> list[int]:
    """The shards that none of these live nodes owns, by the recorded owner of each shard."""
    return [shard for shard, owner in enumerate(owners) if not is_alive(owner, members)]


def is_alive(owner: Owner | None, members: Collection[Member]) -> bool:
    """True if the owner of a shard is one of these live nodes.

    A process that has taken the name of a dead one owns nothing of it: it has to claim like any other node.
    Older versions recorded only the name.
    """
    runs = [each.run for each in members if owner is not None and each.node == owner.node]
    return owner is not None and any(owner.run == run or not (owner.run and run) for run in runs)


async def recorded_losses(js: JetStream, names: Names, shards: int) -> dict[int, RecordedLoss]:
    """The shards that are recorded as refused, with the reason. Raises `NewerVersion` and `NotOurs`."""
    found = await gather_bounded(range(shards), lambda shard: read_recorded_loss(js, names, shard))
    return {shard: each for shard, each in enumerate(found) if each is not None}


async def recreated(js: JetStream, names: Names, shards: int) -> list[str]:
    """The streams and buckets that, according to the shards' checkpoints, were recreated.

    Raises `NewerVersion`, `NotOurs`, and `ApiError` if one is missing.
    """
    now = {name: (await stream_info(js, name)).created for name in names.streams}

    async def known(shard: int) -> dict[str, str]:
        checkpoint = await read_checkpoint(js, names, shard)
        return checkpoint.created if checkpoint else {}

    created = await gather_bounded(range(shards), known)
    return [name for name in names.streams if any(each.get(name, now[name]) != now[name] for each in created)]


async def unsettled_events(js: JetStream, names: Names, shard: int) -> tuple[int, float | None]:
    """The number of a shard's deliveries above the journal's floor, and when the oldest was stored.

    Its owner has not settled these, nor left them in the stream for a receiver that has to wait. Raises
    `NewerVersion`, `NotOurs` and `Unavailable`.
    """
    floor = (await read_shard_record(js, names, shard)).floor
    page = await js.read(names.deliveries, names.deliveries_of(shard), floor + 1, batch=1, max_bytes=1)
    if not page.messages:
        return 0, None
    return page.pending + len(page.messages), page.messages[0].stored_at
