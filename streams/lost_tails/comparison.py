"""Detects that a stream lost its tail, even if it has grown beyond its old end again.

A server that loses power may lose messages that it had not synced, and a stream may be restored from an older
backup. Until producers have filled it up again, its end shows the loss. After that, a position proves
nothing: new events would count as old ones that were settled long ago. So flushes and checkpoints contain
marks: the highest messages that the shard knows, each with the time at which the server stored it. Another
time means another message. Marks are compared at each claim, and by each reader before it begins and after
each gap.
"""

import asyncio
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from msgspec import Struct

from streams.lost_tails.marks import Mark
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered

MISSING_FOR_S = 2.0
"""Time that a message below the end must be missing before it counts as deleted by hand."""
COMPARE_AGAIN_AFTER_S = 0.25
DELETED_MARKS_MAX = 1024
"""Deleted messages that are remembered over one connection to NATS."""
_deleted = WeakKeyDictionary[JetStream, dict[tuple[str, Mark], None]]()


class Loss(Struct, frozen=True):
    """A message that was read from `stream` and is no longer there. `why` is a sentence for people."""

    stream: str
    mark: Mark
    why: str


class Comparison(Struct, frozen=True):
    """The result of one comparison: whether the message is `gone`, and whether that is `certain`."""

    gone: bool
    certain: bool
    why: str = ""


async def find_loss(js: JetStream, stream: str, mark: Mark) -> Loss | None:
    """The loss of the message at `mark`; None if the stream has the message, or has purged it.

    Asks until that is certain, even if NATS is away for long. Raises `ApiError` if there is no such stream.

    Without its message, the mark says no more, and it stays until the shard reads a newer message. So what
    was missing for long enough once need not be again: no message can come back to its position.
    """
    deleted = _deleted.setdefault(js, {})
    loop = asyncio.get_running_loop()
    before, since, began_at = Comparison(False, True), 0.0, loop.time()
    while mark.position:
        found = await retry_until_answered(lambda: compare_once(js, stream, mark, began_at))
        if found.gone != before.gone or before.certain:
            since = loop.time()
        if found.certain:
            return Loss(stream, mark, found.why) if found.gone else None
        if not found.gone and ((stream, mark) in deleted or loop.time() - since >= MISSING_FOR_S):
            if len(deleted) >= DELETED_MARKS_MAX:
                deleted.clear()
            deleted[stream, mark] = None
            return None
        before = found
        await asyncio.sleep(COMPARE_AGAIN_AFTER_S)
    return None


async def compare_once(js: JetStream, stream: str, mark: Mark, since: float) -> Comparison:
    """Compare once. The end is asked for first: a message that is stored later has another time in any case.

    A deposed leader may report an end that is too low, so a majority must have followed the leader since the
    time `since`.
    """
    asked_at = asyncio.get_running_loop().time()
    info = await js.existing_stream(stream)
    position = mark.position
    if position > info.last:
        why = f"it ends at {info.last}, but the message at {position} was read from it"
        return Comparison(True, asked_at - info.heard_s >= since, _recreated(stream, why))
    message = None if position < info.first else await js.message(stream, position)
    if message is None:
        # It was purged, or deleted by hand; in both cases no other message can ever take its place.
        return Comparison(False, position < info.first)
    if mark.stored_at in (0.0, message.stored_at):
        return Comparison(False, True)
    old, new = _instant(mark.stored_at), _instant(message.stored_at)
    why = f"the message read at {position} was stored at {old}, the one there now at {new}"
    return Comparison(True, True, _recreated(stream, why))


def _recreated(stream: str, why: str) -> str:
    return f"{stream} was recreated, restored to an older state, or lost its tail: {why}; see angarium doctor"


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


async def has_message(js: JetStream, stream: str, mark: Mark) -> bool:
    """True if the leader has any message at that position."""
    return await retry_until_answered(lambda: js.message(stream, mark.position)) is not None
