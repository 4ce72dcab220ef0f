"""Stores the dead letters of an event that is evicted before it is routed: one for each of its receivers.

Its copies would have become the same letters, so they can be redriven like all others.
"""

from collections.abc import Mapping

from streams.dead_letters.bury import filed_under, store
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import DEAD_ATTEMPTS, DEAD_REASON, DEAD_TRANSFORM, MESSAGE_ID


async def bury_unrouted(
    js: JetStream, names: Names, receiver: str, message: StoredMessage, headers: Mapping[str, str],
    transform: str = "",
) -> str:  # fmt: skip
    """Store the receiver's letter of an event that was not routed; returns why it is not stored, or "".

    `headers`: those of its copies. By its source, a letter that comes late is erased with its event.
    `transform`: the mark of the receiver's transform, so that the original is never shown; empty without one.
    It has no number. `e` in its id means a position of the events stream, as in that of a malformed event.
    """
    why = await store(js, names, receiver, message, {
        **headers,
        MESSAGE_ID: f"{filed_under(receiver)}:e{message.position}",
        DEAD_REASON: "evicted",
        DEAD_ATTEMPTS: 0,
        DEAD_TRANSFORM: transform or None,
    })  # fmt: skip
    return why or ""
