"""The fence: appends only after a known message. All safety rests on it.

Every writer of a shard says which message of the subject it expects to be the last. So of two that believe
they own the shard one fails, whatever clocks and connections did. The server's refusal and our lost
acknowledgement look alike, so one question tells them apart: is the subject's last message
exactly ours?
"""

import logging

from msgspec import Struct

from streams.nats.answers import Refused, Stored, StoredMessage, Unanswered
from streams.nats.codes import IN_FLIGHT, WRONG_LAST_SEQUENCE
from streams.nats.headers import EXPECTED, MESSAGE_ID
from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint, Pauses, until_answered

log = logging.getLogger(__name__)


class Appended(Struct, frozen=True):
    """Success: it is the message at `sequence`."""

    sequence: int


class Overtaken(Struct, frozen=True):
    """A refused append: the subject's last message is this one (None: there is none) and not ours.

    Ours may lie before it, if its answer was lost, and else cannot be stored any more.
    """

    last: StoredMessage | None


def follows(message: StoredMessage) -> int:
    """The message of its subject after which this one was appended; 0: as the only one, or not by us."""
    expected = message.headers.get(EXPECTED, "")
    return int(expected) if expected.isascii() and expected.isdigit() else 0


async def append(
    js: JetStream, stream: str, subject: str, data: bytes, *, expected: int, message_id: str = ""
) -> Appended | Overtaken:
    """Store `data` as the message that follows the one at `expected` (0: as the only one) of its subject.

    Nothing like `data` may ever have been stored there. Whatever is neither stored nor refused for its
    expectation is repeated, the same bytes under the same id, until it is decided. Cancelled, it is
    undecided.
    """
    headers = {EXPECTED: str(expected)}
    if message_id:
        headers[MESSAGE_ID] = message_id
    pauses, complaint = Pauses(js), Complaint(js, log, "append.refused", subject=subject)
    while True:
        answer = await js.publish(subject, data, headers)
        match answer:
            case Stored(sequence):
                return Appended(sequence)
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                last = await until_answered(lambda: js.last_message(stream, subject))
                ours = last is not None and last.data == data
                return Appended(last.sequence) if last is not None and ours else Overtaken(last)
            case Refused(code=code, text=text) if code not in IN_FLIGHT:
                complaint.tell(f"{text} ({code})")
            case Refused() | Unanswered():
                log.debug("append.repeated", extra={"subject": subject, "answer": str(answer)})
        await pauses.wait()
