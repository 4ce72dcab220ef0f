"""Purging what is not needed any more: by sequence, which the server does quickly while others hardly notice.

What a shard still needs of a stream only moves forward, since checkpoints only grow and what is settled stays
settled. So a purge up to a place that was right once is never wrong later, however long its process slept in
between, and no fence is needed (docs/decisions/journal-purge.md). Any node could do it; the owner of shard 0
does, so that it is one.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.envelope import decode_flush
from streams.journal.tails import Marks, find_loss, read_recorded_loss
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info, until_answered

QUESTIONS_AT_ONCE = 32
JOURNAL_SHARE = 0.5
"""The journal is kept up to this part of its room, for those who want to read what was decided."""

WINDOW_SHARE = 0.8
"""Unneeded deliveries and events are kept for replays, up to this part of the room."""

SPARE_SHARE = 0.05
"""If less than this part of the room is free, the oldest waiting events are given up, until twice that is."""

PURGED_PART = 100
"""A purge takes one part of so many at least."""

_ANYWHERE = 1 << 62
"""Beyond the end of every stream."""


class Held(Struct, frozen=True):
    """The need of a shard, or of a receiver in it, for the stream from `position` on.

    Nothing is known of what the shard needs where it is 0.
    """

    position: int
    shard: int = 0
    receiver: str = ""


async def purge_journal(js: JetStream, names: Names, shards: int) -> Held | None:
    """Purge the journal where it takes more than its share of the room; returns who holds it, if looked at.

    Each shard keeps what lies behind its checkpoint, and its last message in any case: a claim that does not
    find it cannot know that the shard was released in order, nor a node whose lease has expired that no
    other node owned the shard. Raises what reading does.
    """
    info = await stream_info(js, names.journal)
    enough = surplus_end(info, JOURNAL_SHARE * info.max_bytes)
    if enough <= info.first:
        return None
    held = await journal_held(js, names, shards, info)
    await _purge(js, info, min(held.position, enough))
    return held


async def journal_held(js: JetStream, names: Names, shards: int, journal: StreamInfo) -> Held:
    """Finds the last message of the journal that no shard needs any more.

    A shard without a message or a checkpoint, or with one that names another stream, holds all of it:
    nothing is known of what it needs.
    """

    async def needs(shard: int) -> Held:
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        last = await until_answered(lambda: js.last_message(names.journal, names.journal_of(shard)))
        if last is None or checkpoint.created.get(names.journal) != journal.created:
            return Held(0, shard)
        return Held(min(checkpoint.sequence + 1, last.sequence), shard)

    return await lowest(shards, needs)


async def purge_deliveries(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, keep_since: float, settled_end: int
) -> None:
    """Purge what is settled: what was stored before the instant `keep_since`, and more where room is short.

    `settled_end` is an end that the stream had some time ago; see `_first`.
    """
    enough = await _dispensable_end(js, deliveries, keep_since)
    if enough > deliveries.first:
        held = await deliveries_held(js, names, shards, deliveries, settled_end)
        await _purge(js, deliveries, min(held.position, enough))


async def purge_events(
    js: JetStream, names: Names, shards: int, events: StreamInfo, keep_since: float, settled_end: int
) -> None:
    """Purge the routed events that are not needed any more.

    Here the server's own ack floor tells, since an ack by anyone follows the confirmation of every copy.
    """
    enough = await _dispensable_end(js, events, keep_since)
    if enough > events.first:
        held = await events_held(js, names, shards, settled_end)
        await _purge(js, events, min(held.position, enough))


async def events_held(js: JetStream, names: Names, partitions: int, settled_end: int = 0) -> Held:
    """Finds the last event that no router needs any more; `shard` is the partition that needs the next."""

    async def needs(partition: int) -> Held:
        same_end = await _same_end(js, names, partition, names.events)
        consumer = names.route_consumer(partition)
        found = await until_answered(lambda: js.consumer_info(names.events, consumer))
        if found is None or not same_end:
            return Held(0, partition)
        subject, needed = names.events_of(partition), min(found.ack_floor + 1, same_end)
        return Held(await _first(js, names.events, subject, needed, settled_end), partition)

    return await lowest(partitions, needs)


async def deliveries_held(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, settled_end: int = 0
) -> Held:
    """Finds the last delivery that no shard needs any more, by the checkpoints."""

    async def needs(shard: int) -> Held:
        same_end = await _same_end(js, names, shard, deliveries.name)
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        if not same_end or checkpoint.created.get(deliveries.name) != deliveries.created:
            return Held(0, shard)
        subject, needed = names.deliveries_of(shard), min(checkpoint.needed, same_end)
        first = await _first(js, deliveries.name, subject, needed, settled_end)
        return Held(first, shard, checkpoint.holder)

    return await lowest(shards, needs)


async def _same_end(js: JetStream, names: Names, shard: int, stream: str) -> int:
    """The place below which `stream` is the one that the shard's records name; 0 where it is another.

    A checkpoint or an ack floor of a stream that lost its tail names positions that new events have now.
    To be asked before these are read: after a repair, older ones would be believed by its newer marks. Where
    no mark is known (an older Angarium wrote none), the records are believed.
    """
    if await read_recorded_loss(js, names, shard) is not None:
        return 0
    marks = await _marks(js, names, shard)
    mark = marks.events if stream == names.events else marks.deliveries
    if await find_loss(js, stream, mark) is not None:
        return 0
    return mark.position + 1 if mark.position else _ANYWHERE


async def _marks(js: JetStream, names: Names, shard: int) -> Marks:
    """The newest marks of the shard: of its last flush, or of its checkpoint if the journal has none."""
    subject = names.journal_of(shard)
    last = await until_answered(lambda: js.last_message(names.journal, subject))
    if last is not None:
        return decode_flush(last.data, f"message {last.sequence} of {names.journal}").marks
    return (await read_checkpoint(js, names, shard) or Checkpoint()).known


async def _first(js: JetStream, stream: str, subject: str, needed: int, settled_end: int) -> int:
    """Finds the first message that may be needed: of the subject, and not below `needed`.

    If the leader has none, none is needed of what was stored when it was asked. How far that is it does not
    say, and another question may be answered by another leader, which was deposed and does not know it yet;
    so an end of some time ago has to do, longer than a leader believes in itself alone.
    """
    message = await until_answered(lambda: js.next_message(stream, subject, needed))
    return max(needed, settled_end + 1) if message is None else message.sequence


async def _dispensable_end(js: JetStream, info: StreamInfo, keep_since: float) -> int:
    """The place below which nothing is kept for those who do not need it."""
    if not info.messages:
        return 0
    kept = await until_answered(lambda: js.first_since(info.name, ">", keep_since))
    return max(info.last + 1 if kept is None else kept.sequence, surplus_end(info, _window(info)))


async def _purge(js: JetStream, info: StreamInfo, below: int) -> None:
    """Purge, if it is worth it: that is a part of the stream, or anything where room is short."""
    if below - info.first > (0 if is_short(info) else (info.last - info.first) // PURGED_PART):
        await js.purge(info.name, below)


def eviction_end(deliveries: StreamInfo) -> int:
    """The place below which nothing may wait any more, since the stream is full; 0 while it is not.

    Every node finds the same, and again until something is purged, so that no message between nodes is
    needed. If more than that is below the horizon, no receiver waits there, and no event is given up.
    """
    spare = _spare(deliveries)
    full = 0 < deliveries.max_bytes < deliveries.bytes + spare
    return surplus_end(deliveries, deliveries.max_bytes - 2 * spare) if full else 0


def is_short(info: StreamInfo) -> bool:
    """True if there is no room for what is not needed."""
    return info.max_bytes > 0 and _window(info) < info.bytes


def _window(info: StreamInfo) -> float:
    """The bytes of the stream that may be of no need: fewer than make it full."""
    return min(WINDOW_SHARE * info.max_bytes, info.max_bytes - 3 * _spare(info))


def _spare(info: StreamInfo) -> float:
    """The bytes that are kept free: room for the largest message, or the stream could be full unseen."""
    largest: int = info.config["max_msg_size"]
    return max(SPARE_SHARE * info.max_bytes, min(largest, info.max_bytes / 3))


def surplus_end(info: StreamInfo, room: float) -> int:
    """The place below which about as much lies as the stream holds beyond that room, in bytes.

    It takes all messages for equally large; the next look corrects that.
    """
    surplus = info.bytes - room
    if info.max_bytes <= 0 or surplus <= 0:
        return 0
    return info.first + round((info.last + 1 - info.first) * surplus / info.bytes)


async def lowest(shards: int, needs: Callable[[int], Awaitable[Held]]) -> Held:
    """Finds the lowest need among the shards, asking for some at a time."""
    turn = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def one(shard: int) -> Held:
        async with turn:
            return await needs(shard)

    held = await asyncio.gather(*(one(shard) for shard in range(shards)))
    return min(held, key=lambda each: each.position)
