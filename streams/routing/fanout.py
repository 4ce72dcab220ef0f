"""Fan-out: reads the message of a published event, and makes the headers of its copies in the deliveries.

The type is in the subject. A message that cannot be passed on as it was published makes a malformed event, as
in `streams.reading.messages`.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from actors.errors import InvalidName
from actors.ids import check_tenant, event_id, is_alert_type
from actors.machine.event import Event
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.wire_names import (
    CONTENT_TYPE,
    EVENT_ABOUT,
    EVENT_AGAIN,
    EVENT_ID,
    EVENT_PUBLISHED,
    EVENT_REGION,
    EVENT_SOURCE,
    EVENT_TYPE,
    MESSAGE_ID,
    TRACEPARENT,
    TRACESTATE,
)
from streams.reading import messages
from streams.timed.timing import TIMING_HEADERS, timing_of

_NOT_THE_EVENT = frozenset({EVENT_TYPE, EVENT_SOURCE, EVENT_PUBLISHED}) | TIMING_HEADERS
"""Headers that have a meaning in the deliveries stream only, and those that are read apart."""


def published_event(
    position: int, stored_at: float, address: str, headers: Mapping[str, str] | None, body: bytes
) -> Event:
    """The event in the message at `position`, whose subject ends in `address`: `<tenant>.<type>`."""
    tenant, _, event_type = address.partition(".")
    given = {name: value for name, value in (headers or {}).items() if name not in _NOT_THE_EVENT}
    if not (given.get(EVENT_ID) or given.get(MESSAGE_ID)):
        # Direct sends are in another stream, with positions of its own, but share the dedup window.
        given[EVENT_ID] = event_id(None, f"e{position}", stored_at)
    event = messages.event_of(position, stored_at, given, body)
    checked = event_type[: messages.TYPE_CHECKED_MAX]
    about = given.get(EVENT_ABOUT, "")
    is_ours = about != "" and is_alert_type(checked) and about.startswith(f"{tenant}.")
    problem = _tenant_problem(tenant) or event.malformed or messages.type_problem(checked, is_ours=is_ours)
    timing = timing_of(headers or {}, tenant, stored_at)
    if problem or timing.problem:
        return replace(event, type=event_type, malformed=problem or timing.problem)
    return replace(
        event, type=event_type, malformed="", about=about if is_ours else "",
        deliver_at=timing.deliver_at, due=timing.due, only_for=timing.only_for,
    )  # fmt: skip


def event_of_message(names: Names, message: StoredMessage) -> Event:
    """The event in a message of the events stream, even in one that is in no partition."""
    is_stray = names.partition_and_tenant(message.subject) is None
    address = names.published_to(message.subject) if is_stray else names.address_of_event(message.subject)
    return published_event(message.position, message.stored_at, address, message.headers, message.data)


def copy_headers(event: Event, source: int | None = None) -> dict[str, str]:
    """The headers of a copy: those that are passed on, its time, and its source, unless it is sent again.

    `source`: given if it is not the event's position (`streams.lost_tails.marks.Marks.source`).
    """
    headers = {EVENT_ID: event.id, EVENT_TYPE: event.type, EVENT_PUBLISHED: f"{event.stored_at:.3f}"}
    if event.again:
        headers[EVENT_AGAIN] = event.again
    else:
        headers[EVENT_SOURCE] = str(event.position if source is None else source)
    if event.content_type != messages.CONTENT_TYPE_DEFAULT:
        headers[CONTENT_TYPE] = event.content_type
    if event.region:
        headers[EVENT_REGION] = event.region
    if event.traceparent:
        headers[TRACEPARENT] = event.traceparent
    if event.tracestate:
        headers[TRACESTATE] = event.tracestate
    return headers


def _tenant_problem(tenant: str) -> str:
    try:
        check_tenant(tenant[: messages.RECEIVER_CHECKED_MAX])
    except InvalidName as error:
        return str(error)
    return ""
