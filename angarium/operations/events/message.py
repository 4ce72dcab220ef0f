"""Messages of new events: subject, headers and body, as JetStream stores them."""

import os

from msgspec import Struct

from actors.times_as_text import exact_instant_text
from streams.installation.topology import Names
from streams.nats.answers import Put
from streams.nats.wire_names import (
    CONTENT_TYPE,
    DELIVER_AT,
    EVENT_ID,
    EVENT_REGION,
    EVENT_TYPE,
    MESSAGE_ID,
    ONLY_FOR,
    TRACEPARENT,
    TRACESTATE,
)
from streams.reading.messages import CONTENT_TYPE_DEFAULT
from streams.timed.timing import AHEAD_MAX_S, TIME_TEXT, parsed_time


class NewEvent(Struct, frozen=True, kw_only=True):
    """A checked event to be published.

    - `name`: the receiver's name; empty if the event goes to all that subscribe.
    - `id`: if it is empty, a new one is made.
    - `deliver_at`: the time for which it waits, in seconds since the epoch; 0 if it does not.
    - `key`: by which a repeated publish is recognised; if it is empty, the id is used.
    """

    tenant: str
    type: str
    body: bytes = b""
    name: str = ""
    id: str = ""
    key: str = ""
    deliver_at: float = 0.0
    content_type: str = CONTENT_TYPE_DEFAULT
    traceparent: str = ""
    tracestate: str = ""
    region: str = ""

    @property
    def target(self) -> str:
        """The receiver, or the tenant."""
        return f"{self.tenant}.{self.name}" if self.name else self.tenant


class EventMessage(Struct, frozen=True, gc=False):
    """An event as it is published."""

    id: str
    stream: str
    put: Put


def message_of(names: Names, event: NewEvent) -> EventMessage:
    """The message of an event.

    JetStream compares message ids over all tenants and receivers, so the target is put before the id.
    """
    event_id = event.id or _new_id()
    headers = {EVENT_ID: event_id}
    target = event.target
    if event.deliver_at:
        # It gets its number when it is due, so it must not be among the receiver's deliveries before.
        subject, stream = names.publish_event(event.tenant, event.type), names.events
        headers[DELIVER_AT] = exact_instant_text(event.deliver_at)
        if event.name:
            headers[ONLY_FOR] = event.name
    elif event.name:
        subject, stream = names.publish_to(target), names.deliveries
        headers[EVENT_TYPE] = event.type
    else:
        subject, stream = names.publish_event(target, event.type), names.events
    headers[MESSAGE_ID] = f"{target}:{event.key or event_id}"
    if event.content_type != CONTENT_TYPE_DEFAULT:
        headers[CONTENT_TYPE] = event.content_type
    if event.traceparent:
        headers[TRACEPARENT] = event.traceparent
    if event.tracestate:
        headers[TRACESTATE] = event.tracestate
    if event.region:
        headers[EVENT_REGION] = event.region
    return EventMessage(event_id, stream, Put(subject, event.body, headers))


def delivery_time(text: str, now: float) -> float | str:
    """The time for which an event waits, or what is wrong with the text."""
    at = parsed_time(text)
    if at is None:
        return f"must be {TIME_TEXT}"
    if at > now + AHEAD_MAX_S:
        return "at most 30 days ahead"
    return at


def _new_id() -> str:
    """A new UUID of version 4; `uuid.uuid4` takes twice as long."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
