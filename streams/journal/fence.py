"""The fence: appends a message only after a known one. All safety depends on it.

Every writer of a shard says which message it expects to be the last of the subject. So if two of them believe
that they own the shard, one fails, for any state of clocks and connections. A refusal looks the same as
our own append whose acknowledgement was lost, so one question decides: is the subject's last message exactly
ours?
"""

import logging

from msgspec import Struct

from streams.nats.answers import Forbidden, Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog, retry_until_answered
from streams.nats.wire_names import EXPECTED, IN_FLIGHT, MESSAGE_ID, WRONG_LAST_SEQUENCE

log = logging.getLogger(__name__)


class Appended(Struct, frozen=True):
    """A successful append: the message is at `position`."""

    position: int


class Overtaken(Struct, frozen=True):
    """A refused append: the subject's last message is this one (None: there is none) and not ours.

    If the answer was lost, ours may be before it; otherwise it can no longer be stored.
    """

    last: StoredMessage | None


def predecessor_position(message: StoredMessage) -> int:
    """The message after which this one was appended; 0 if it was the first, or is not Angarium's."""
    expected = message.headers.get(EXPECTED, "")
    return int(expected) if expected.isascii() and expected.isdigit() else 0


async def append(
    js: JetStream, stream: str, subject: str, data: bytes, *, expected: int, message_id: str = ""
) -> Appended | Overtaken:
    """Store `data` as the message after the one at `expected` (0: as the first) in its subject.

    The same `data` must never have been stored there before. Unless the server stores it, or refuses it
    because of the expectation, the same bytes are published again under the same id until that is decided. If
    it is cancelled, the result is unknown. Raises `NotPermitted` for a command whose user may not publish
    there.
    """
    headers = {EXPECTED: str(expected)}
    if message_id:
        headers[MESSAGE_ID] = message_id
    pauses, reason_log = Pauses(js), ReasonLog(js, log, "append.refused", subject=subject)
    while True:
        answer = await js.publish(subject, data, headers)
        match answer:
            case Stored(position):
                return Appended(position)
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                last = await retry_until_answered(lambda: js.last_message(stream, subject))
                ours = last is not None and last.data == data
                return Appended(last.position) if last is not None and ours else Overtaken(last)
            case Forbidden(why) if js.for_command:
                raise NotPermitted(why, final=True)
            case Refused(code=code, text=text) if code not in IN_FLIGHT:
                reason_log.log_once(f"{text} ({code})")
            case Refused() | Unanswered():
                log.debug("append.repeated", extra={"subject": subject, "answer": str(answer)})
        await pauses.wait()
