"""Purging what nobody needs any more: by sequence, which the server does quickly while others hardly notice.

What a shard still needs of a stream only moves forward, since checkpoints only grow and what is settled stays
settled. So whoever purges up to a place that was right once is never wrong later, however long it slept in
between, and no fence is needed (docs/decisions/journal-purge.md). Anybody might do it; the owner of shard 0
does, so that it is one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from streams.answers import StreamInfo
from streams.checkpoint import Checkpoint, read_checkpoint
from streams.jetstream import JetStream
from streams.repeat import stream_info, until_answered
from streams.topology import Names

ASKED_AT_ONCE = 32
JOURNAL_SHARE = 0.5
"""The journal is kept up to this part of its room, for those who want to read what was decided."""

T = TypeVar("T")


class Held(Struct, frozen=True):
    """Who needs the stream from `position` on, and from nowhere below. Nothing is known where it is 0."""

    position: int
    shard: int


async def purge_journal(js: JetStream, names: Names, shards: int) -> Held | None:
    """Purge the journal where it takes more than its share of the room; returns who holds it, if looked at.

    Each shard keeps what lies behind its checkpoint, and its last message in any case: a claim that does not
    find it cannot know that the shard was released in order, nor a node whose lease has lapsed that nobody
    else owned the shard. Raises what reading does.
    """
    info = await stream_info(js, names.journal)
    enough = surplus_end(info, JOURNAL_SHARE)
    if enough <= info.first:
        return None
    held = await journal_held(js, names, shards, info)
    below = min(held.position, enough)
    if below > info.first:
        await js.purge(names.journal, below)
    return held


async def journal_held(js: JetStream, names: Names, shards: int, journal: StreamInfo) -> Held:
    """Up to where no shard needs the journal any more.

    A shard without a message or a checkpoint, or with one that speaks of another stream, holds all of it:
    nothing is known of what it needs.
    """

    async def needs(shard: int) -> int:
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        if checkpoint.created.get(names.journal) != journal.created:
            return 0
        last = await until_answered(lambda: js.last_message(names.journal, names.journal_of(shard)))
        return 0 if last is None else min(checkpoint.sequence + 1, last.sequence)

    return lowest(await for_each_shard(shards, needs))


def surplus_end(info: StreamInfo, share: float) -> int:
    """The place below which about as much lies as the stream holds beyond that share of its room.

    It takes all messages for equally large; the next look corrects that.
    """
    surplus = info.bytes - share * info.max_bytes
    if info.max_bytes <= 0 or surplus <= 0:
        return 0
    return info.first + round((info.last + 1 - info.first) * surplus / info.bytes)


def lowest(positions: list[int]) -> Held:
    """Who holds the stream, of the shards in their order."""
    position = min(positions)
    return Held(position, positions.index(position))


async def for_each_shard(shards: int, ask: Callable[[int], Awaitable[T]]) -> list[T]:
    """The same question about each shard, some at a time."""
    turn = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(shard: int) -> T:
        async with turn:
            return await ask(shard)

    return await asyncio.gather(*(one(shard) for shard in range(shards)))
