"""Purges messages that are no longer needed: by position, which is quick and hardly affects other requests.

The position from which a shard needs a stream only moves forward, since checkpoints only grow and a settled
event stays settled. So a purge up to a position that was right once is never wrong later, even if its process
slept in between, and no fence is needed (docs/decisions/purging-the-journal.md). Any node could purge; the
owner of shard 0 does, so that only one does.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from streams.bounded_gather import gather_bounded
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.claim import read_shard_record
from streams.journal.refusal import read_recorded_loss
from streams.lost_tails.comparison import find_loss
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered, stream_info

JOURNAL_SHARE = 0.5
"""Part of its room up to which the journal is kept, for those who read it: the ledger, `tail`, operators."""

WINDOW_SHARE = 0.8
"""Part of the room up to which settled deliveries and events are kept, for replays."""

SPARE_SHARE = 0.05
"""If less than this part of the room is free, waiting events are evicted until twice as much is free."""

PURGED_PART = 100
"""A purge removes at least this fraction (1/n) of the stream."""

ANY_POSITION = 1 << 62
"""A position beyond the end of every stream."""


class NeededFrom(Struct, frozen=True):
    """A shard, or a receiver in it, that needs the stream from `position` on.

    If `position` is 0, it is not known what the shard needs.
    """

    position: int
    shard: int = 0
    receiver: str = ""


async def purge_journal(js: JetStream, names: Names, shards: int) -> NeededFrom | None:
    """Purge the journal if it exceeds its share of the room; returns what keeps messages, if it looked.

    Each shard keeps the messages after its checkpoint, and always its last message: without it, a claim could
    not know that the shard was released cleanly, and a node whose lease has expired could not know that no
    other node owned the shard. Raises the errors of reading.
    """
    info = await stream_info(js, names.journal)
    dispensable_to = surplus_end(info, JOURNAL_SHARE * info.max_bytes)
    if dispensable_to <= info.first:
        return None
    needed_from = await journal_needed_from(js, names, shards, info)
    await _purge(js, info, min(needed_from.position, dispensable_to))
    return needed_from


async def journal_needed_from(js: JetStream, names: Names, shards: int, journal: StreamInfo) -> NeededFrom:
    """The first message of the journal that some shard still needs, and that shard.

    A shard without a message or a checkpoint, or with a checkpoint that names another stream, keeps all of
    it, since its needs are unknown.
    """

    async def needs(shard: int) -> NeededFrom:
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        last = await retry_until_answered(lambda: js.last_message(names.journal, names.journal_of(shard)))
        if last is None or checkpoint.created.get(names.journal) != journal.created:
            return NeededFrom(0, shard)
        return NeededFrom(min(checkpoint.journal_position + 1, last.position), shard)

    return await lowest_need(shards, needs)


async def purge_deliveries(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, keep_since: float, certain_end: int
) -> None:
    """Purge settled deliveries that were stored before the time `keep_since`, and more if room is short.

    `certain_end` is an end that the stream had some time ago; see `_first_needed`.
    """
    dispensable_to = await _dispensable_end(js, deliveries, keep_since)
    if dispensable_to > deliveries.first:
        needed_from = await deliveries_needed_from(js, names, shards, deliveries, certain_end)
        below = min(needed_from.position, dispensable_to)
        if _is_worthwhile(deliveries, below):
            await _purge_around_strays(js, names, below)


async def purge_events(
    js: JetStream,
    names: Names,
    shards: int,
    events: StreamInfo,
    keep_since: float,
    certain_end: int,
    kept_from: int = ANY_POSITION,
) -> None:
    """Purge the routed events that are no longer needed.

    What the journal says is routed decides, not what the routers have acked. A parked tenant needs its events
    from its position on. Nothing goes from `kept_from` on.
    """
    dispensable_to = await _dispensable_end(js, events, keep_since)
    if dispensable_to > events.first:
        needed_from = await events_needed_from(js, names, shards, certain_end)
        await _purge(js, events, min(needed_from.position, dispensable_to, kept_from))


async def events_needed_from(
    js: JetStream, names: Names, partitions: int, certain_end: int = 0
) -> NeededFrom:
    """The first event that some router still needs; `shard` is its partition."""

    async def needs(partition: int) -> NeededFrom:
        trusted_end = await trusted_end_of(js, names, partition, names.events)
        record = await read_shard_record(js, names, partition)
        if record.routing is None or not trusted_end:
            return NeededFrom(0, partition)
        needed = min(record.routing.needed_from, trusted_end)
        subject = names.events_of(partition)
        return NeededFrom(await _first_needed(js, names.events, subject, needed, certain_end), partition)

    return await lowest_need(partitions, needs)


async def deliveries_needed_from(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, certain_end: int = 0
) -> NeededFrom:
    """The first delivery that some shard still needs, by the checkpoints."""

    async def needs(shard: int) -> NeededFrom:
        trusted_end = await trusted_end_of(js, names, shard, deliveries.name)
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        if not trusted_end or checkpoint.created.get(deliveries.name) != deliveries.created:
            return NeededFrom(0, shard)
        subject, needed = names.deliveries_of(shard), min(checkpoint.needed, trusted_end)
        first = await _first_needed(js, deliveries.name, subject, needed, certain_end)
        return NeededFrom(first, shard, checkpoint.holder)

    return await lowest_need(shards, needs)


async def trusted_end_of(js: JetStream, names: Names, shard: int, stream: str) -> int:
    """The position below which `stream` is the one that the shard's records refer to; 0 if it is another.

    If a stream lost its tail, a checkpoint or a flush refers to positions that new events have now. Call
    this before reading them: after a repair, its newer marks would confirm older ones. If no mark is known
    (an older Angarium wrote none), the records are trusted.
    """
    if await read_recorded_loss(js, names, shard) is not None:
        return 0
    marks = (await read_shard_record(js, names, shard)).marks
    mark = marks.events if stream == names.events else marks.deliveries
    if await find_loss(js, stream, mark) is not None:
        return 0
    return mark.position + 1 if mark.position else ANY_POSITION


async def _first_needed(js: JetStream, stream: str, subject: str, needed: int, certain_end: int) -> int:
    """Find the first message of the subject that may be needed, at or above `needed`.

    If the leader has none, nothing that was stored at that moment is needed. The leader does not say how far
    its stream reached then, and the next request may be answered by a deposed leader. So an older end is
    used: older than the time for which a leader may continue without followers.
    """
    message = await retry_until_answered(lambda: js.next_message(stream, subject, needed))
    return max(needed, certain_end + 1) if message is None else message.position


async def _dispensable_end(js: JetStream, info: StreamInfo, keep_since: float) -> int:
    """The position below which settled messages are no longer kept."""
    if not info.messages:
        return 0
    kept = await retry_until_answered(lambda: js.first_since(info.name, ">", keep_since))
    return max(info.last + 1 if kept is None else kept.position, surplus_end(info, _window(info)))


async def _purge(js: JetStream, info: StreamInfo, below: int) -> None:
    if _is_worthwhile(info, below):
        await js.purge(info.name, below)


def _is_worthwhile(info: StreamInfo, below: int) -> bool:
    """True if a purge removes a certain part of the stream, or anything if room is short."""
    return below - info.first > (0 if is_short(info) else (info.last - info.first) // PURGED_PART)


async def _purge_around_strays(js: JetStream, names: Names, below: int) -> None:
    """Purge deliveries, except those that belong to no shard: no checkpoint names them.

    Where there are some, the others go by subject, which is slower. A leader that does not know the newest
    ones does not know the end of the stream either.
    """
    strays, listed = await js.subjects_and_info(names.deliveries, names.stray_deliveries)
    if strays:
        await js.purge_subject(names.deliveries, names.deliveries_to("*.*"), below - 1)
    else:
        await js.purge(names.deliveries, min(below, listed.last + 1))


def surplus(deliveries: StreamInfo) -> float:
    """The bytes that have to go from a stream that is full, so that it has room for a while; else 0."""
    spare = _spare(deliveries)
    full = 0 < deliveries.max_bytes < deliveries.bytes + spare
    return deliveries.bytes - (deliveries.max_bytes - 2 * spare) if full else 0.0


def is_full(info: StreamInfo) -> bool:
    """True if the largest message may have no room."""
    return 0 < info.max_bytes < info.bytes + _largest(info)


def is_short(info: StreamInfo) -> bool:
    """True if there is no room for messages that are not needed."""
    return info.max_bytes > 0 and _window(info) < info.bytes


def _window(info: StreamInfo) -> float:
    """The size up to which the stream may keep settled messages; it is smaller than the full size."""
    return min(WINDOW_SHARE * info.max_bytes, info.max_bytes - 3 * _spare(info))


def _spare(info: StreamInfo) -> float:
    """The bytes that stay free: room for the largest message, or the stream could be full unnoticed."""
    return max(SPARE_SHARE * info.max_bytes, _largest(info))


def _largest(info: StreamInfo) -> float:
    largest: int = info.config["max_msg_size"]
    return min(largest, info.max_bytes / 3)


def surplus_end(info: StreamInfo, room: float) -> int:
    """The position below which there is about as much data as the stream has in excess of `room` bytes.

    It assumes that all messages have the same size; the next call corrects that.
    """
    surplus = info.bytes - room
    if info.max_bytes <= 0 or surplus <= 0:
        return 0
    return info.first + round((info.last + 1 - info.first) * surplus / info.bytes)


async def lowest_need(shards: int, needs: Callable[[int], Awaitable[NeededFrom]]) -> NeededFrom:
    """Find the lowest need among the shards, asking for some at a time."""
    return min(await gather_bounded(range(shards), needs), key=lambda each: each.position)
