"""Stores malformed events, which cannot be sent to any receiver, among their tenant's dead letters.

Such a dead letter has a receiver name that no receiver can have. It contains the producer's message, and says
what is wrong with it.
"""

from actors.errors import Unavailable
from actors.machine.event import Event
from streams.dead_letters.bury import BODY_GONE, filed_under, store
from streams.installation.topology import Names
from streams.journal.leadership import message_at
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import (
    DEAD_ATTEMPTS,
    DEAD_BODY,
    DEAD_PROBLEM,
    DEAD_REASON,
    EVENT_ID,
    EVENT_TYPE,
    MESSAGE_ID,
)
from streams.reading.messages import TYPE_CHECKED_MAX

MALFORMED_RECEIVER = "_events"
"""Takes the place of a receiver's name, which never begins with `_`."""


async def bury_malformed(js: JetStream, names: Names, receiver: str, event: Event) -> str:
    """Store the dead letter of a malformed event; returns the reason why it is not stored, or an empty text.

    `receiver` is `<tenant>._events`. Burying again adds nothing within the stream's duplicate window, and
    after it an identical second letter. `e` in its id means a position of the events stream. `p` means one of
    the deliveries stream, where a producer may address `<tenant>._events`, too.
    """
    try:
        message = await message_at(js, names.events, event.position)
    except (Unavailable, ApiError) as error:
        return str(error)
    why = await store(js, names, receiver, message, {
        EVENT_ID: event.id,
        MESSAGE_ID: f"{filed_under(receiver)}:e{event.position}",
        EVENT_TYPE: event.type[:TYPE_CHECKED_MAX],
        DEAD_REASON: "malformed",
        DEAD_ATTEMPTS: 0,
        DEAD_PROBLEM: event.malformed,
        DEAD_BODY: None if message else BODY_GONE,
    })  # fmt: skip
    return why or ""
