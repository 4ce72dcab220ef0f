"""Dead letters: what could not be delivered, kept with its body, its headers and the reason.

The message is read again from the deliveries stream, so that a dead letter is what the producer published and
not what an actor made of it. Its event's id stands in `Angarium-Id`, wherever it came from, so that a redrive
keeps it. The id of the publish is made of receiver and number: burying again adds nothing within the stream's
duplicate window, and after it a second letter that says the same.
"""

import logging
import re

from actors.facts import Burial
from streams import messages
from streams.answers import Refused, Stored, StoredMessage, Unanswered
from streams.errors import ApiError, Unavailable
from streams.jetstream import JetStream
from streams.repeat import Pauses
from streams.topology import Names

log = logging.getLogger(__name__)

REASON = "Angarium-Reason"
SEQUENCE = "Angarium-Sequence"
ATTEMPTS = "Angarium-Attempts"
STATUS = "Angarium-Status"
PROBLEM = "Angarium-Problem"
"""Of a malformed event: what is wrong with it, in a sentence."""
BODY = "Angarium-Body"
BODY_GONE = "gone"
"""The message had left the stream before it could be buried; there is nothing to redrive."""

_SERVERS = "nats-"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class Graveyard:
    """See `actors.ports.Graveyard`. It does not give up: a full stream or a lost connection delays it."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names

    async def bury(self, receiver: str, burial: Burial) -> None:
        pauses, said = Pauses(), ""
        while (why := await self._try(receiver, burial)) is not None:
            if why != said:
                place = {"receiver": receiver, "position": burial.position}
                log.warning("dead_letter.waiting", extra=place | {"why": why})
                said = why
            await pauses.wait()

    async def _try(self, receiver: str, burial: Burial) -> str | None:
        """None once it is stored, else why it is not."""
        try:
            message = await self._js.message(self._names.deliveries, burial.position)
        except (Unavailable, ApiError) as error:
            return str(error)
        if message is not None and not message.subject.endswith(f".{receiver}"):
            message = None
        headers = _headers(receiver, burial, message)
        answer = await self._js.publish(self._names.dead(receiver), message.data if message else b"", headers)
        match answer:
            case Stored():
                return None
            case Refused(code, text):
                return f"{text} (JetStream error {code})"
            case Unanswered(why):
                return why


def _headers(receiver: str, burial: Burial, message: StoredMessage | None) -> dict[str, str]:
    """The original headers, and why the message is here, which nobody else may have said."""
    event = messages.stored_event(message) if message else None
    number = f"p{burial.position}" if burial.sequence is None else str(burial.sequence)
    ours = {
        messages.ID: event.id if event else None,
        messages.MESSAGE_ID: f"{receiver}:{number}",
        REASON: burial.reason,
        SEQUENCE: burial.sequence,
        ATTEMPTS: burial.attempts,
        STATUS: burial.status,
        PROBLEM: messages.receiver_problem(receiver) or (event.malformed if event else "") or None,
        BODY: None if event else BODY_GONE,
    }
    headers = (passed_on(message.headers) if message else {}) | ours
    return {name: str(value) for name, value in headers.items() if value is not None}


def passed_on(headers: dict[str, str]) -> dict[str, str]:
    """What may stand in another stream.

    The server's own (`Nats-Expected-…`, `Nats-TTL`, `Nats-Rollup`, …) would act again there; and a name that
    our client does not take cannot be published at all.
    """
    return {
        name: value
        for name, value in headers.items()
        if _NAME.match(name) and not name.lower().startswith(_SERVERS)
    }
