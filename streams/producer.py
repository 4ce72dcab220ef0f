"""A producer as users write one, with nothing but nats-py: the demo publishes with it.

It uses no code of Angarium, so what the demo shows is true for any client. Angarium itself publishes with
`streams.nats.jetstream`, for the reasons given there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import nats.errors
from nats.js import JetStreamContext

from actors.errors import Unavailable
from streams.nats.wire_names import MESSAGE_ID


class Producer:
    """A publisher of events to JetStream, created by `producer`."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def publish(self, subject: str, body: bytes, *, event_id: str) -> int:
        """Publish an event and return its position. Raises Unavailable."""
        headers = {MESSAGE_ID: event_id}
        try:
            return (await self._js.publish(subject, body, headers=headers)).seq
        except nats.errors.Error as error:
            raise Unavailable(f"the event was not accepted: {error or type(error).__name__}") from error


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    """A producer with a connection of its own."""
    client = await nats.connect(url)
    try:
        yield Producer(client.jetstream())
    finally:
        await client.close()
