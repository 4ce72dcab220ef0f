"""Detects that a stream lost its tail, even if it has grown beyond its old end again.

A server that loses power may lose messages that it had not synced, and a stream may be restored from an older
backup. Until producers have filled it up again, its end shows the loss. After that, a position proves
nothing: new events would count as old ones that were settled long ago. So flushes and checkpoints contain
marks: the highest messages that the shard knows, each with the time at which the server stored it. Another
time means another message. Marks are compared at each claim, and by each reader before it begins and after
each gap.

A shard whose mark differs is refused, and that is recorded (`<shard>._refused`), until the message is there
again (the right stream was brought back), or an operator accepts the loss (`streams.repair`). Until then,
nothing that the shard may need is purged.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, field

from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored
from streams.nats.codes import WRONG_LAST_SEQUENCE
from streams.nats.errors import StreamRemade
from streams.nats.headers import EXPECTED, EXPECTED_SUBJECT, KV_DELETED
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, until_answered
from streams.versions import read_versioned

VERSION = 1
MISSING_FOR_S = 2.0
"""Time that a message below the end must be missing before it counts as deleted by hand."""
LOOK_AGAIN_AFTER_S = 0.25


class Mark(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message of a stream, and when the server stored it; 0.0 if only its position is known."""

    position: int = 0
    stored_at: float = 0.0


class Restart(Struct, frozen=True, gc=False, kw_only=True):
    """An accepted loss of events: `offset` is added to the sources of events above the position."""

    above: int
    offset: int


class Marks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The highest messages that a shard knows: of the deliveries, and of its partition of the events.

    `restarts` are the losses of events that were accepted, the lowest position first.
    """

    deliveries: Mark = Mark()
    events: Mark = Mark()
    restarts: tuple[Restart, ...] = ()

    def raised(self, other: "Marks") -> "Marks":
        """The higher marks of both, stream by stream; usually `self`, since the other has nothing higher."""
        rose = (
            other.deliveries.position > self.deliveries.position
            or other.events.position > self.events.position
            or (other.restarts and not self.restarts)
        )
        if not rose:
            return self
        return Marks(
            deliveries=higher(self.deliveries, other.deliveries),
            events=higher(self.events, other.events),
            restarts=self.restarts or other.restarts,
        )

    def source(self, position: int) -> int:
        """The source that copies of the event at that position carry; it is above all earlier ones.

        Lost positions are used again, and receivers may have seen the sources that belonged to them.
        """
        return position + max((each.offset for each in self.restarts if position > each.above), default=0)


UNKNOWN_MARKS = Marks()
NO_MARK = UNKNOWN_MARKS.deliveries
"""No message."""


def higher(one: Mark, other: Mark) -> Mark:
    """The mark with the higher position; the first if both are the same."""
    return other if other.position > one.position else one


class Loss(Struct, frozen=True):
    """A message that was read from `stream` and is no longer there. `why` is a sentence for people."""

    stream: str
    mark: Mark
    why: str


class RecordedLoss(Struct, frozen=True, kw_only=True):
    """The value of `_refused`: which message is missing from which stream, and which node found that."""

    v: int = VERSION
    node: str
    at: float
    stream: str
    mark: Mark = field(default_factory=Mark)
    why: str = ""


class LookResult(Struct, frozen=True):
    """The result of one look at a stream: whether the message is `gone`, and whether that is `certain`."""

    gone: bool
    certain: bool
    why: str = ""


_refusal = msgspec.json.Decoder(RecordedLoss)


async def find_loss(js: JetStream, stream: str, mark: Mark) -> Loss | None:
    """The loss of the message at `mark`; None if the stream has the message, or has purged it.

    Asks until that is certain, however long NATS is away. Raises `ApiError` if there is no such stream.
    """
    loop = asyncio.get_running_loop()
    before, since, began_at = LookResult(False, True), 0.0, loop.time()
    while mark.position:
        look = await until_answered(lambda: look_for(js, stream, mark, began_at))
        if look.gone != before.gone or before.certain:
            since = loop.time()
        if look.certain or (not look.gone and loop.time() - since >= MISSING_FOR_S):
            return Loss(stream, mark, look.why) if look.gone else None
        before = look
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    return None


async def look_for(js: JetStream, stream: str, mark: Mark, since: float) -> LookResult:
    """Compare once. The end is asked for first: a message that is stored later has another time in any case.

    A deposed leader may report an end that is too low, so a majority must have followed the leader since the
    time `since`.
    """
    asked_at = asyncio.get_running_loop().time()
    info = await js.existing_stream(stream)
    position = mark.position
    if position > info.last:
        why = f"it ends at {info.last}, but the message at {position} was read from it"
        return LookResult(True, asked_at - info.heard_s >= since, _remade(stream, why))
    message = None if position < info.first else await js.message(stream, position)
    if message is None:
        # It was purged, or deleted by hand; in both cases no other message can ever take its place.
        return LookResult(False, position < info.first)
    if mark.stored_at in (0.0, message.stored_at):
        return LookResult(False, True)
    old, new = _instant(mark.stored_at), _instant(message.stored_at)
    why = f"the message read at {position} was stored at {old}, the one there now at {new}"
    return LookResult(True, True, _remade(stream, why))


def _remade(stream: str, why: str) -> str:
    return f"{stream} was recreated, restored to an older state, or lost its tail: {why}; see angarium doctor"


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# ---- the recorded refusal


async def compare(
    js: JetStream, names: Names, shard: int, epoch: int, marks: Marks, refusal: RecordedLoss
) -> None:
    """Compare the known marks with the streams; `refusal` is blank except for the node and the time.

    An earlier recorded refusal is checked, too: it ends if the message is there again. Call this only as the
    owner that put `_owner` last, under `epoch`. Raises `StreamRemade`.
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
            raise StreamRemade(loss.why)
    if recorded is not None:
        if not await is_there(js, recorded.stream, recorded.mark):
            raise StreamRemade(recorded.why)
        await lift(js, names, shard, epoch)


async def check_record(js: JetStream, names: Names, shard: int) -> None:
    """Raise `StreamRemade` if the shard is recorded as refused, and the message is still missing."""
    recorded = await read_recorded_loss(js, names, shard)
    if recorded is not None and await is_missing(js, recorded):
        raise StreamRemade(recorded.why)


async def is_missing(js: JetStream, recorded: RecordedLoss) -> bool:
    """True if the message of a recorded refusal is still missing.

    If its position was purged since then, or is empty, that proves nothing: later messages are of the new
    tail.
    """
    if await find_loss(js, recorded.stream, recorded.mark) is not None:
        return True
    return not await is_there(js, recorded.stream, recorded.mark)


async def is_there(js: JetStream, stream: str, mark: Mark) -> bool:
    """True if the leader has any message at that position."""
    return await until_answered(lambda: js.message(stream, mark.position)) is not None


async def refuse(
    js: JetStream, names: Names, shard: int, epoch: int, loss: Loss, refusal: RecordedLoss
) -> bool:
    """Record the loss; returns False if another node owns the shard by now."""
    record = msgspec.structs.replace(refusal, stream=loss.stream, mark=loss.mark, why=loss.why)
    return await _put(js, names, shard, epoch, msgspec.json.encode(record))


async def lift(js: JetStream, names: Names, shard: int, epoch: int) -> bool:
    """End the refusal; returns False if another node owns the shard by now."""
    return await _put(js, names, shard, epoch, b"", KV_DELETED)


async def _put(
    js: JetStream, names: Names, shard: int, epoch: int, data: bytes, headers: dict[str, str] | None = None
) -> bool:
    fence = {EXPECTED: str(epoch), EXPECTED_SUBJECT: names.owner(shard)}
    pauses = Pauses()
    while True:
        match await js.publish(names.refusal(shard), data, {**(headers or {}), **fence}):
            case Stored():
                return True
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                return False
        await pauses.wait()


async def read_recorded_loss(js: JetStream, names: Names, shard: int) -> RecordedLoss | None:
    """The recorded refusal, from the leader. Raises `NewerVersion` and `NotOurs`."""
    subject = names.refusal(shard)
    message = await until_answered(lambda: js.last_message(names.actors, subject))
    if message is None or not message.data:
        return None
    return read_versioned(_refusal, message.data, VERSION, subject)
