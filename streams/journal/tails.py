"""Tells a stream that lost its tail from one that has grown again beyond the old end.

A server that loses its power may lose what it had not synced, and a stream may be restored older. Until
producers have filled it up again, its end tells. After that a position tells nothing: new events would count
as those that were settled long ago. So flushes and checkpoints hold marks: the highest messages that the
shard knows, each with the server's time of it. Another time means another message. Marks are compared at
each claim, and by each reader before it begins and after each gap.

A shard whose mark differs is refused, on record (`<shard>._refused`), until the message is there again (the
right stream was brought back), or an operator accepts the loss (`streams.repair`). Until then nothing is
purged that the shard may need.
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
"""A message that is missing below the end has to be missing for this long, to count as deleted by hand."""
LOOK_AGAIN_AFTER_S = 0.25


class Mark(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message of a stream, and the server's time of it; 0.0 where only its position is known."""

    position: int = 0
    stored_at: float = 0.0


class Restart(Struct, frozen=True, gc=False, kw_only=True):
    """An accepted loss of events: those above the position have sources that are higher by the offset."""

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
        """The higher of both, stream by stream; itself, as mostly, where the other one has nothing higher."""
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
        """The source that copies of the event at that position name: each above all earlier ones.

        Positions that were lost are given again. Receivers may have seen the sources that they stood for.
        """
        return position + max((each.offset for each in self.restarts if position > each.above), default=0)


UNKNOWN_MARKS = Marks()
NO_MARK = UNKNOWN_MARKS.deliveries
"""No message."""


def higher(one: Mark, other: Mark) -> Mark:
    """The mark with the higher position; of two at one position, the first."""
    return other if other.position > one.position else one


class Loss(Struct, frozen=True):
    """A message that was read from `stream` and is not there any more. `why` is a sentence for people."""

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


class _Look(Struct, frozen=True):
    """One look at a stream: is the message `gone`, and is that `certain` already?"""

    gone: bool
    certain: bool
    why: str = ""


_refusal = msgspec.json.Decoder(RecordedLoss)


async def find_loss(js: JetStream, stream: str, mark: Mark) -> Loss | None:
    """The loss of the message at `mark`, or None where the stream has it, or has purged it.

    Goes on until that is certain, however long NATS is away. Raises `ApiError` where there is no such stream.
    """
    loop = asyncio.get_running_loop()
    before, since, began_at = _Look(False, True), 0.0, loop.time()
    while mark.position:
        look = await until_answered(lambda: _look(js, stream, mark, began_at))
        if look.gone != before.gone or before.certain:
            since = loop.time()
        if look.certain or (not look.gone and loop.time() - since >= MISSING_FOR_S):
            return Loss(stream, mark, look.why) if look.gone else None
        before = look
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)
    return None


async def _look(js: JetStream, stream: str, mark: Mark, since: float) -> _Look:
    """Compare once. The end is asked for first: what is stored after that has another time in any case.

    An end that lies too low may be told by a leader that was deposed; a majority has to have followed it
    since the instant `since`.
    """
    asked_at = asyncio.get_running_loop().time()
    info = await js.existing_stream(stream)
    position = mark.position
    if position > info.last:
        why = f"it ends at {info.last}, but the message at {position} was read from it"
        return _Look(True, asked_at - info.heard_s >= since, _remade(stream, why))
    message = None if position < info.first else await js.message(stream, position)
    if message is None:
        # Purged; or deleted by hand, so that no other message can ever take its place.
        return _Look(False, position < info.first)
    if mark.stored_at in (0.0, message.stored_at):
        return _Look(False, True)
    old, new = _instant(mark.stored_at), _instant(message.stored_at)
    why = f"the message read at {position} was stored at {old}, the one there now at {new}"
    return _Look(True, True, _remade(stream, why))


def _remade(stream: str, why: str) -> str:
    return f"{stream} was recreated, restored to an older state, or lost its tail: {why}; see angarium doctor"


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# ---- the refusal, on record


async def compare(
    js: JetStream, names: Names, shard: int, epoch: int, marks: Marks, refusal: RecordedLoss
) -> None:
    """Compare what is known with the streams; `refusal` is blank except for the node and the time.

    What was refused on record before is looked at, too: the refusal ends where the message is there again.
    To be called by who put `_owner` last, under `epoch`. Raises `StreamRemade`.
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
    """Raise `StreamRemade` where the shard is refused on record, and the message is still missing."""
    recorded = await read_recorded_loss(js, names, shard)
    if recorded is not None and await is_missing(js, recorded):
        raise StreamRemade(recorded.why)


async def is_missing(js: JetStream, recorded: RecordedLoss) -> bool:
    """True if the message of a recorded refusal is still missing.

    That its place was purged since, or is empty, proves nothing: what lies behind it is of the new tail.
    """
    if await find_loss(js, recorded.stream, recorded.mark) is not None:
        return True
    return not await is_there(js, recorded.stream, recorded.mark)


async def is_there(js: JetStream, stream: str, mark: Mark) -> bool:
    """Ask the leader for any message at that place."""
    return await until_answered(lambda: js.message(stream, mark.position)) is not None


async def refuse(
    js: JetStream, names: Names, shard: int, epoch: int, loss: Loss, refusal: RecordedLoss
) -> bool:
    """Put the loss on record, unless `_owner` is another one's by now; False then."""
    record = msgspec.structs.replace(refusal, stream=loss.stream, mark=loss.mark, why=loss.why)
    return await _put(js, names, shard, epoch, msgspec.json.encode(record))


async def lift(js: JetStream, names: Names, shard: int, epoch: int) -> bool:
    """End the refusal, unless `_owner` is another one's by now; False then."""
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
    """The refusal on record, from the leader. Raises `NewerVersion` and `NotOurs`."""
    subject = names.refusal(shard)
    message = await until_answered(lambda: js.last_message(names.actors, subject))
    if message is None or not message.data:
        return None
    return read_versioned(_refusal, message.data, VERSION, subject)
