"""Accepts one event for a client that waits for the answer: it is stored, or the reason is returned at once.

`publish` repeats an unanswered event, since a command has time. Here the client repeats it, with the same id.
"""

from collections.abc import Sequence

from msgspec import Struct

from angarium.access import Access
from angarium.operations.events.message import EventMessage, NewEvent, message_of
from angarium.operations.events.repeats import repeat_problem
from angarium.operations.failures import OperationError, operation
from streams.bounded_gather import gather_bounded
from streams.nats.answers import Answer, Forbidden, NoResponders, Refused, Stored, Unanswered
from streams.nats.wire_names import IN_FLIGHT, MESSAGE_TOO_LARGE, NO_ROOM

ANSWER_TIMEOUT_S = 2.0
"""Time for JetStream's answer."""
UNSENT_MAX = 32 << 20
"""Bytes that may wait in the connection if NATS does not read them. Beyond that no event is added, since
events of clients that have already been told about the failure wait there, too."""


class AcceptedEvent(Struct, kw_only=True, omit_defaults=True):
    """The position of a stored event; for a `duplicate`, that of the first one.

    `matched`: the number of receivers that subscribe to it, if known.
    """

    id: str
    stream: str
    seq: int
    duplicate: bool
    matched: int | None = None


@operation
async def accept(access: Access, event: NewEvent) -> AcceptedEvent:
    """Store the event. Fails as too_large, full, refused, conflict, not_allowed and unanswered."""
    (done,) = await accept_all(access, [event])
    if isinstance(done, OperationError):
        raise done
    return done


async def accept_all(access: Access, events: Sequence[NewEvent]) -> list[AcceptedEvent | OperationError]:
    """Store events, sent in their order and answered each for itself, as `accept` does.

    Raises `OperationError` if none of them was sent.
    """
    check_unsent(access)
    messages = [message_of(access.names, event) for event in events]
    answers = await access.js.publish_all([each.put for each in messages], ANSWER_TIMEOUT_S)
    stored = [_meaning(each, answer) for each, answer in zip(messages, answers, strict=True)]
    duplicates = {
        number: each.seq
        for number, each in enumerate(stored)
        if isinstance(each, AcceptedEvent) and each.duplicate and events[number].deliver_at
    }
    problems = await gather_bounded(
        duplicates, lambda number: repeat_problem(access, events[number], duplicates[number])
    )
    for number, problem in zip(duplicates, problems, strict=True):
        if problem is not None:
            stored[number] = problem
    return stored


def check_unsent(access: Access) -> None:
    """Raise `OperationError` if NATS does not read the data that it was sent before."""
    if access.js.wire.unsent > UNSENT_MAX:
        raise OperationError("unavailable", "NATS is too slow, so nothing was published; send it again later")


def _meaning(message: EventMessage, answer: Answer) -> AcceptedEvent | OperationError:
    match answer:
        case Stored(position=position, duplicate=duplicate):
            return AcceptedEvent(id=message.id, stream=message.stream, seq=position, duplicate=duplicate)
        case Refused(code, text):
            return _refused(code, text)
        case Forbidden(why):
            return OperationError("not_allowed", why)
        case NoResponders(why):
            return OperationError(
                "unanswered", f"no stream takes the event ({why}), so it is not stored; send it again later"
            )
        case Unanswered(why):
            return OperationError(
                "unanswered",
                f"NATS did not confirm the event ({why}); it may be stored: send it again with the same "
                f"Angarium-Id, {message.id}, or the same Idempotency-Key",
            )


def _refused(code: int, text: str) -> OperationError:
    if code == MESSAGE_TOO_LARGE:
        return OperationError("too_large", "the event is larger than max_body; send less, or a link to it")
    if code in NO_ROOM:
        return OperationError("full", f"the stream has no room ({text}); send it again later", str(code))
    if code in IN_FLIGHT:
        return OperationError(
            "conflict", "the same event is being stored at this moment; send it again", str(code)
        )
    return OperationError("refused", f"NATS refused it: {text} (JetStream error {code})", str(code))
