"""Leadership: which answers can be trusted if the leader that gives them may have been deposed.

A server that is cut off from the others continues answering for a stream, with its old knowledge, for some 12
seconds (nats-server 2.15.1). The messages that it returns exist. But a message that it does not return may
exist, too: "no message" and "the end" count only with a proof that the server knows enough to say so. Writes
need no proof: a deposed leader acknowledges nothing.
"""

import asyncio

from actors.errors import Unavailable
from streams.installation.topology import has_wildcard
from streams.nats.answers import Page, Refused, Stored, StoredMessage, StreamInfo
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import Pauses, retry_until_answered, stream_info
from streams.nats.wire_names import EXPECTED, EXPECTED_SUBJECT, WRONG_LAST_SEQUENCE

SUBJECTS_MAX = 512
"""Subjects whose last messages are requested at a time; nats-server refuses more than 1,024 (2.15.1)."""
ANSWER_BYTES_MAX = 32 << 20
"""Size of the answer to such a request, in bytes. The server stops at some 64 MiB."""


def is_replicated(info: StreamInfo) -> bool:
    """True if the stream may have had another leader."""
    return int(info.config.get("num_replicas", 1)) > 1


async def info_since(js: JetStream, stream: str, since: float) -> StreamInfo:
    """The state of a stream that includes everything stored before `since`, by this event loop's clock.

    Asks until a leader says that a majority has followed it since then. Replicas answer its heartbeats once a
    second, and every message. Raises `ApiError` if there is no such stream.
    """
    loop, pauses = asyncio.get_running_loop(), Pauses()
    while True:
        asked_at = loop.time()
        info = await stream_info(js, stream)
        if asked_at - info.heard_s >= since:
            return info
        await pauses.wait()


async def subjects_since(js: JetStream, stream: str, subject: str, since: float) -> list[str]:
    """The subjects that match, with all that were stored before `since`, by this event loop's clock.

    The proof is that of `info_since`. Waits for NATS; raises `ApiError` if there is no such stream.
    """
    loop, pauses = asyncio.get_running_loop(), Pauses()
    while True:
        asked_at = loop.time()
        subjects, info = await retry_until_answered(lambda: js.subjects_and_info(stream, subject))
        if asked_at - info.heard_s >= since:
            return subjects
        await pauses.wait()


async def message_at(js: JetStream, stream: str, position: int) -> StoredMessage | None:
    """The message at `position`, or None if it is gone. Raises `Unavailable` if that is not certain."""
    message = await js.next_message(stream, ALL_SUBJECTS, position)
    if message is None:
        await _ensure_beyond(js, stream, position)
        return None
    return message if message.position == position else None


async def ensure_no_message(js: JetStream, stream: str, subject: str, after: int, up_to: int) -> None:
    """Return if the stream certainly has no message of `subject` above `after` and up to `up_to`.

    The subject may be a wildcard. The proof is a replica that has the stream up to `up_to`, and whose newest
    message of each matching subject is outside this range. Raises `Unavailable` if there is no proof.
    """
    newest = await (_newest_of_many if has_wildcard(subject) else _newest)(js, stream, subject, up_to)
    for last in newest:
        if after < last <= up_to:
            raise Unavailable(f"{stream}: the leader does not know the message at {last}")
    if (last := max(newest, default=0)) > up_to:
        # The leader that is asked now may be another one, which knows more.
        found = await js.next_message(stream, subject, after + 1)
        if found is None or found.position <= up_to:
            unknown = last if found is None else found.position
            raise Unavailable(f"{stream}: the leader does not know the message at {unknown}")


async def _newest(js: JetStream, stream: str, subject: str, up_to: int) -> list[int]:
    """The position of the newest message of one subject, from a replica that has the stream up to `up_to`."""
    page = await last_messages(js, stream, subject, up_to)
    if page is None:
        return []
    _ensure_reached(stream, page, up_to)
    return [each.position for each in page.messages if each.subject == subject]


async def _newest_of_many(js: JetStream, stream: str, pattern: str, up_to: int) -> list[int]:
    """The positions of the newest messages of all subjects that match, a few subjects at a time.

    The server answers for 1,024 subjects at most, and with some 64 MiB. The server that is asked for the
    subjects may be a deposed leader: if it has the stream up to `up_to`, it still knows all of them.
    """
    subjects, info = await js.subjects_and_info(stream, pattern)
    if info.last < up_to:
        raise Unavailable(f"{stream}: the leader ends at {info.last}, and {up_to} was there")
    newest: list[int] = []
    count = max(1, min(SUBJECTS_MAX, ANSWER_BYTES_MAX // js.wire.max_payload))
    for start in range(0, len(subjects), count):
        page = await js.last_of(stream, subjects[start : start + count])
        _ensure_reached(stream, page, up_to)
        newest += [each.position for each in page.messages]
    return newest


def _ensure_reached(stream: str, page: Page, up_to: int) -> None:
    """Raise `Unavailable` if the page is incomplete, or comes from a replica that lags."""
    if page.pending:
        # The newest messages are missing.
        raise Unavailable(
            f"{stream}: the last messages of some subjects are too many bytes to be read at once"
        )
    if page.up_to < up_to:
        raise Unavailable(f"{stream}: a replica ends at {page.up_to}, and {up_to} was there")


async def last_messages(js: JetStream, stream: str, subject: str, up_to: int) -> Page | None:
    """Read the last message of a subject, from a replica that says how far it has the stream.

    The page may contain others. None if everything up to `up_to` was purged. Raises `Unavailable`.
    """
    page = await js.last_of(stream, [subject])
    if page.messages:
        return page
    # A replica says how far it has the stream only with a message; one of any subject will do.
    oldest = await js.next_message(stream, ALL_SUBJECTS, 1)
    if oldest is None:
        await _ensure_beyond(js, stream, up_to)
        return None
    return await js.last_of(stream, [subject, oldest.subject])


async def _ensure_beyond(js: JetStream, stream: str, position: int) -> None:
    """Return if everything up to `position` was purged. Raises `Unavailable` otherwise."""
    info = await js.existing_stream(stream)
    if info.first <= position and is_replicated(info):
        raise Unavailable(
            f"{stream}: the leader has nothing at {position} or after it, its end is {info.last}"
        )


async def is_last(js: JetStream, proof: str, subject: str, position: int) -> bool:
    """True if the newest message of `subject` is the one at `position` (0: there is none); waits for NATS.

    To prove it, an empty message is stored on the subject `proof` of the same stream under that condition,
    which only the leader can do.
    """
    pauses = Pauses()
    while True:
        answer = await js.publish(proof, b"", {EXPECTED: str(position), EXPECTED_SUBJECT: subject})
        match answer:
            case Stored():
                return True
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                return False
        await pauses.wait()
