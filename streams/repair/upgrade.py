"""Upgrades an installation whose streams have version 1 once, while all its nodes are stopped.

Builds before 0.1.0 made such streams. They read through durable consumers, one for each shard and stream,
and only the consumers of the events knew how far these were routed. The journals record that now, so it is
appended there, as another flush of the last owner. Then the consumers are deleted, and the streams get the
new version. Any step may be repeated.
"""

from msgspec import UNSET
from msgspec.structs import replace

from streams.fleet.live_members import live_members
from streams.installation.setup import check_server
from streams.installation.topology import STAMP_SHARDS, STAMP_VERSION, VERSION, Installation, Names, streams
from streams.journal.checkpoint import decode_checkpoint, encode_checkpoint
from streams.journal.envelope import decode_flush, encode_flush
from streams.journal.fence import Overtaken, append
from streams.journal.routing_progress import RoutingProgress
from streams.nats.answers import StreamInfo
from streams.nats.errors import SetupError
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered

OLD = "1"
"""The version that builds before 0.1.0 stamped on their streams."""


async def upgrade(js: JetStream, installation: Installation) -> list[str]:
    """Upgrade streams of version 1; returns a line for each change, none if there was nothing to do.

    Raises `SetupError` if a node is alive; `Unavailable` and `ApiError`.
    """
    await check_server(js)
    names, old = installation.names, list[StreamInfo]()
    for config in streams(installation):
        info = await js.stream_info(config["name"])
        if info is not None and info.config.get("metadata", {}).get(STAMP_VERSION) == OLD:
            old.append(info)
    stamped = {each.config["metadata"].get(STAMP_SHARDS) for each in old}
    if stamped != {str(installation.shards)}:
        return []  # There is nothing old, or `setup` reports the problem.
    if await js.stream_info(names.nodes) is not None:
        await _check_stopped(js, names)
    done = []
    floors = {each.name: each.ack_floor for each in await js.consumers(names.events)}
    recorded = [
        shard
        for shard in range(installation.shards)
        if await _record_routed(js, names, shard, floors.get(f"route-{shard}", 0))
    ]
    if recorded:
        done.append(f"how far events are routed, in the journals of {len(recorded)} shards")
    for stream, kind in ((names.deliveries, "shard"), (names.events, "route")):
        there = {each.name for each in await js.consumers(stream)}
        unused = [name for shard in range(installation.shards) if (name := f"{kind}-{shard}") in there]
        for name in unused:
            await js.consumer_deleted(stream, name)
        if unused:
            done.append(f"deleted {len(unused)} consumers of {stream}, which are no longer used")
    for info in old:
        stamp = info.config["metadata"] | {STAMP_VERSION: str(VERSION)}
        await js.stream_update(info.config | {"metadata": stamp})
    return [*done, f"upgraded {len(old)} streams from version {OLD} to {VERSION}"]


async def _check_stopped(js: JetStream, names: Names) -> None:
    live, strange = await live_members(js, names)
    if live or strange:
        who = ", ".join(each.node for each in live) or strange[0]
        raise SetupError(
            f"{names.prefix} was made by a build before 0.1.0 and has to be upgraded, but nodes are running "
            f"({who}): "
            f"stop all of them, and run it again"
        )


async def _record_routed(js: JetStream, names: Names, shard: int, routed: int) -> bool:
    """Record how far the partition is routed, unless its record says so; returns whether it had to.

    A shard without any record begins with the first event.
    """
    subject = names.journal_of(shard)
    last = await retry_until_answered(lambda: js.last_message(names.journal, subject))
    if last is None:
        return await _record_in_checkpoint(js, names, shard, routed)
    flush = decode_flush(last.data, f"message {last.position} of {names.journal}")
    if flush.routed is not UNSET:
        return False
    data = encode_flush(
        node=flush.node,
        epoch=flush.epoch,
        flush=flush.flush + 1,
        floor=flush.floor,
        routing=RoutingProgress(routed=routed),
        at=flush.at,
        unclean=flush.unclean,
        marks=flush.marks,
        facts=[],
    )
    _hold(await append(js, names.journal, subject, data, expected=last.position), shard)
    return True


async def _record_in_checkpoint(js: JetStream, names: Names, shard: int, routed: int) -> bool:
    """Write `routed` into the checkpoint, since the whole journal has aged out."""
    subject = names.actor_keys.checkpoint(shard)
    message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
    if message is None or not message.data:
        return False
    checkpoint = decode_checkpoint(message.data, subject)
    if checkpoint.routed is not UNSET:
        return False
    data = encode_checkpoint(replace(checkpoint, v=type(checkpoint)().v, routed=routed))
    _hold(await append(js, names.actors, subject, data, expected=message.position), shard)
    return True


def _hold(done: object, shard: int) -> None:
    if isinstance(done, Overtaken):
        raise SetupError(f"a node writes to shard {shard}: stop all nodes, and run it again")
