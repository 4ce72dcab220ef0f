"""Stores the dead letters of an event that gives way before it is routed: one for each of its receivers.

They are what its copies would have become, so a receiver's letters can be sent again whatever the stage at
which its tenant gave way.
"""

from actors.machine.event import Event
from streams.dead_letters.bury import filed_under, store
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.headers import DEAD_ATTEMPTS, DEAD_REASON, EVENT_ID, EVENT_TYPE, MESSAGE_ID
from streams.nats.jetstream import JetStream


async def bury_unrouted(
    js: JetStream, names: Names, receiver: str, message: StoredMessage, event: Event
) -> str:
    """Store the receiver's letter of an event that was not routed; returns why it is not stored, or "".

    It has no number. `e` in its id means a position of the events stream, as in that of a malformed event.
    """
    why = await store(js, names, receiver, message, {
        EVENT_ID: event.id,
        MESSAGE_ID: f"{filed_under(receiver)}:e{event.position}",
        EVENT_TYPE: event.type,
        DEAD_REASON: "evicted",
        DEAD_ATTEMPTS: 0,
    })  # fmt: skip
    return why or ""
