"""Refuses a shard whose streams lost messages until they are there again, and records that.

A shard whose mark differs (`streams.lost_tails`) is refused, and that is recorded (`<shard>._refused`), until
the message is there again (the right stream was restored), or an operator accepts the loss
(`streams.repair`). Until then, nothing that the shard may need is purged.
"""

import msgspec
from msgspec import Struct, field

from streams.installation.topology import Names
from streams.lost_tails.comparison import Loss, find_loss, has_message
from streams.lost_tails.marks import Mark, Marks
from streams.nats.answers import Refused, Stored
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, retry_until_answered
from streams.nats.wire_names import EXPECTED, EXPECTED_SUBJECT, KV_DELETED, WRONG_LAST_SEQUENCE
from streams.versions import read_versioned

VERSION = 1


class RecordedLoss(Struct, frozen=True, kw_only=True):
    """The value of `_refused`: which message is missing from which stream, and which node found that."""

    v: int = VERSION
    node: str
    at: float
    stream: str
    mark: Mark = field(default_factory=Mark)
    why: str = ""


_refusal = msgspec.json.Decoder(RecordedLoss)


async def compare_or_refuse(
    js: JetStream, names: Names, shard: int, epoch: int, marks: Marks, refusal: RecordedLoss
) -> None:
    """Compare the known marks with the streams; `refusal` is blank except for the node and the time.

    An earlier recorded refusal is checked, too: it ends if the message is there again. Call this only as the
    owner that put `_owner` last, under `epoch`. Raises `StreamRecreated`.
    """
    recorded = await read_recorded_loss(js, names, shard)
    known = [(names.deliveries, marks.deliveries), (names.events, marks.events)]
    if recorded is not None:
        known.insert(0, (recorded.stream, recorded.mark))
    for stream, mark in known:
        loss = await find_loss(js, stream, mark)
        if loss is not None:
            if recorded is None:
                await refuse(js, names, shard, epoch, loss, refusal)
            raise StreamRecreated(loss.why)
    if recorded is not None:
        if not await has_message(js, recorded.stream, recorded.mark):
            raise StreamRecreated(recorded.why)
        await lift(js, names, shard, epoch)


async def check_record(js: JetStream, names: Names, shard: int) -> None:
    """Raise `StreamRecreated` if the shard is recorded as refused, and the message is still missing."""
    recorded = await read_recorded_loss(js, names, shard)
    if recorded is not None and await is_missing(js, recorded):
        raise StreamRecreated(recorded.why)


async def is_missing(js: JetStream, recorded: RecordedLoss) -> bool:
    """True if the message of a recorded refusal is still missing.

    If its position was purged since then, or is empty, that proves nothing: later messages are of the new
    tail.
    """
    if await find_loss(js, recorded.stream, recorded.mark) is not None:
        return True
    return not await has_message(js, recorded.stream, recorded.mark)


async def refuse(
    js: JetStream, names: Names, shard: int, epoch: int, loss: Loss, refusal: RecordedLoss
) -> bool:
    """Record the loss; returns False if another node owns the shard."""
    record = msgspec.structs.replace(refusal, stream=loss.stream, mark=loss.mark, why=loss.why)
    return await _put(js, names, shard, epoch, msgspec.json.encode(record))


async def lift(js: JetStream, names: Names, shard: int, epoch: int) -> bool:
    """End the refusal; returns False if another node owns the shard."""
    return await _put(js, names, shard, epoch, b"", KV_DELETED)


async def _put(
    js: JetStream, names: Names, shard: int, epoch: int, data: bytes, headers: dict[str, str] | None = None
) -> bool:
    fence = {EXPECTED: str(epoch), EXPECTED_SUBJECT: names.actor_keys.owner(shard)}
    pauses = Pauses()
    while True:
        match await js.publish(names.actor_keys.refusal(shard), data, {**(headers or {}), **fence}):
            case Stored():
                return True
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                return False
        await pauses.wait()


async def read_recorded_loss(js: JetStream, names: Names, shard: int) -> RecordedLoss | None:
    """The recorded refusal, from the leader. Raises `NewerVersion` and `NotOurs`."""
    subject = names.actor_keys.refusal(shard)
    message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
    if message is None or not message.data:
        return None
    return read_versioned(_refusal, message.data, VERSION, subject)
