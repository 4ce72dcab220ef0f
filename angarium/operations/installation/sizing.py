"""Sizing: an installation's room, the traffic that it allows, and the shard that takes most of it."""

from msgspec import Struct

from actors.errors import Unusable
from actors.times_as_text import instant_text
from streams.installation.topology import Installation
from streams.journal.checkpoint import read_checkpoint
from streams.journal.claim import read_owner
from streams.nats.answers import StreamInfo
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage.purge import deliveries_needed_from, events_needed_from, journal_needed_from

EVENT_BYTES = 1200
"""Bytes of an event of 1 KiB with its subject and headers, to estimate how many fit into a stream."""
DAY_S = 86_400
_KEEPS = (
    ("events", "events to be routed, and a day of routed ones"),
    ("deliveries", "waiting events, and a day of settled ones"),
    ("journal", "what nodes need to recover"),
    ("dead_letters", "dead letters, for 30 days"),
    ("later", "timed events"),
)


class StreamRoom(Struct, frozen=True):
    """The room of one stream, in bytes (-1: no limit of its own), and its purpose."""

    stream: str
    max_bytes: int
    keeps: str


async def rooms(js: JetStream, installation: Installation) -> list[StreamRoom]:
    """The streams that grow with the traffic, as they are."""
    return [
        StreamRoom(name, (await stream_info(js, name)).max_bytes, keeps)
        for name, keeps in ((getattr(installation.names, kind), keeps) for kind, keeps in _KEEPS)
    ]


class Capacity(Struct, frozen=True):
    """The events of 1 KiB that a stream takes, and how many a second fill it in a day."""

    stream: str
    events: int
    per_second: float


def capacity(rooms: list[StreamRoom]) -> Capacity | None:
    """The capacity of the deliveries; None if they have no limit of their own."""
    deliveries = rooms[1]
    if deliveries.max_bytes <= 0:
        return None
    events = deliveries.max_bytes // EVENT_BYTES
    return Capacity(deliveries.stream, events, events / DAY_S)


async def holder_text(js: JetStream, installation: Installation, info: StreamInfo) -> str:
    """A sentence: which shard, receiver or tenant needs the stream, from which position, and since when."""
    names, shards = installation.names, installation.shards
    try:
        if info.name == names.deliveries:
            needed_from = await deliveries_needed_from(js, names, shards, info, info.last)
        elif info.name == names.events:
            needed_from = await events_needed_from(js, names, shards, info.last)
        else:
            needed_from = await journal_needed_from(js, names, shards, info)
    except Unusable as error:
        return f"the reason is not known ({error})"
    except NotPermitted:
        return "this user may not see what needs it"
    what = "partition" if info.name == names.events else "shard"
    if not needed_from.position:
        if await _has_just_begun(js, installation, needed_from.shard):
            return f"{what} {needed_from.shard} has written no snapshot yet"
        why = "it is refused, or no node has run it since the stream was created"
        return f"{what} {needed_from.shard} needs everything in it: {why}"
    message = await js.message(info.name, needed_from.position)
    since = f" (stored {instant_text(message.stored_at)})" if message else ""
    if needed_from.position > info.last:
        return "nothing in it is needed"
    whose = needed_from.receiver
    if message and info.name == names.events and (address := names.partition_and_tenant(message.subject)):
        whose = address[1]
    owner = f"{what} {needed_from.shard}"
    named = f"{whose} ({owner})" if whose else owner
    return f"{named} still needs messages from {needed_from.position} on{since}"


async def _has_just_begun(js: JetStream, installation: Installation, shard: int) -> bool:
    """True if a node owns the shard and has not written its first snapshot, which takes some seconds."""
    owner, _ = await read_owner(js, installation.names, shard)
    owned = owner is not None and owner.released is None
    return owned and await read_checkpoint(js, installation.names, shard) is None
