"""Redacted flushes: copies, without answers, of the messages of the journal that erasures have deleted.

JetStream cannot change a message, and a flush has facts of many receivers, also of other tenants. So before
an erasure deletes the flush with an answer, it stores this copy in the bucket of the actors. Readers that
have not come so far read the copy in place of the message, and miss no fact. It has no answer to any event,
so no later erasure concerns it. It is dropped once the journal is purged beyond its position, and by a
repair, after which positions may have other messages.
"""

import asyncio
from bisect import bisect_left

import msgspec
from msgspec import Struct

from actors.errors import Unavailable
from actors.machine.facts import AnyFact, AttemptFailed
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush, reencode_flush
from streams.journal.leadership import subjects_since
from streams.nats.answers import Refused, Stored, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.versions import read_versioned

VERSION = 1
COPIES_MAX = 16_384
"""The newest copies that are kept, so that a tenant that erases all the time cannot fill the disk."""


class RedactedFlush(Struct, frozen=True, kw_only=True):
    """The copy of a message of the journal that was created at `created`: its flush without answers."""

    v: int = VERSION
    created: str
    subject: str
    stored_at: float
    flush: msgspec.Raw


_decoder = msgspec.json.Decoder(RedactedFlush)


async def store_redacted(js: JetStream, names: Names, message: StoredMessage) -> None:
    """Store the copy of a message of the journal. Raises `Unavailable` and `ApiError`."""
    info = await js.existing_stream(names.journal)
    flush = decode_flush(message.data, f"message {message.position} of {names.journal}")
    data = reencode_flush(msgspec.structs.replace(flush, facts=tuple(map(_without_answer, flush.facts))))
    copy = RedactedFlush(
        created=info.created, subject=message.subject, stored_at=message.stored_at, flush=msgspec.Raw(data)
    )
    match await js.publish(names.actor_keys.redacted_flush(message.position), msgspec.json.encode(copy)):
        case Stored():
            return
        case Refused(text=why) | Unanswered(why=why):
            raise Unavailable(
                f"the copy of message {message.position} of the journal cannot be stored: {why}"
            )


def _without_answer(fact: AnyFact) -> AnyFact:
    if isinstance(fact, AttemptFailed) and fact.answer:
        return msgspec.structs.replace(fact, answer="")
    return fact


async def first_redacted(
    js: JetStream, names: Names, created: str, first: int, last: int
) -> StoredMessage | None:
    """The first copy of a message at `first` to `last` of the journal created then. Waits for NATS.

    A deposed leader may not know a copy, so another answer than the copy at `first` needs a proof.
    """
    since = asyncio.get_running_loop().time()
    if (copy := await _copy(js, names, created, first)) is not None:
        return copy
    subjects = await subjects_since(js, names.actors, names.actor_keys.redacted_flushes, since)
    for position in sorted(map(names.actor_keys.position_of_redacted, subjects)):
        if first <= position <= last and (copy := await _copy(js, names, created, position)) is not None:
            return copy
    return None


async def _copy(js: JetStream, names: Names, created: str, position: int) -> StoredMessage | None:
    subject = names.actor_keys.redacted_flush(position)
    found = await retry_until_answered(lambda: js.last_message(names.actors, subject))
    if found is None:
        return None
    copy = read_versioned(_decoder, found.data, VERSION, subject)
    if copy.created != created:
        return None
    return StoredMessage(copy.subject, position, copy.stored_at, {}, bytes(copy.flush))


async def drop_redacted(js: JetStream, names: Names, first: int) -> None:
    """Drop the copies of messages that were purged, and the oldest others if there are too many.

    `first` is the first message of the journal. It moves past erased messages, too, whose copies lie right
    before it without a hole: they stay, since a reader may not have come so far. Raises `Unavailable` and
    `ApiError`.
    """
    keys, position_of = names.actor_keys, names.actor_keys.position_of_redacted
    positions = sorted(map(position_of, await js.subjects(names.actors, keys.redacted_flushes)))
    if _purged(positions, first):
        # A leader that was deposed may not know one of those right before `first`.
        since = asyncio.get_running_loop().time()
        found = await subjects_since(js, names.actors, keys.redacted_flushes, since)
        positions = sorted(map(position_of, found))
    for position in positions[: max(_purged(positions, first), len(positions) - COPIES_MAX)]:
        await js.purge_subject(names.actors, keys.redacted_flush(position))


def _purged(positions: list[int], first: int) -> int:
    """The number of copies, the oldest first, that are not in the unbroken run right before `first`."""
    count = bisect_left(positions, first)
    while count and positions[count - 1] == first - 1:
        count, first = count - 1, first - 1
    return count
