"""Messages of the deliveries stream: their headers, parsed once into the event that actors know.

A message reaches a node in two ways: the consumer hands it out, or it is read from the stream. Both make
exactly the same event of it, since actors recognise events that they have numbered by id and position. A
message that cannot be passed on to a receiver as it was published makes a malformed event, which says why;
the invalid parts are left out. Only invalid trace headers are dropped silently, as W3C Trace Context demands.

Header names are case-sensitive: NATS keeps their case (ADR-4).
"""

import re
from functools import lru_cache

from actors.configuration.problems import REGION_TEXT, is_region
from actors.errors import InvalidName
from actors.ids import OUR_TYPES, check_type, event_id, is_alert_type, split_receiver
from actors.machine.event import Event
from streams.nats.answers import StoredMessage
from streams.nats.protocol import BLOCK_BYTES_MAX, LINES_MAX
from streams.nats.wire_names import (
    CONTENT_TYPE,
    DELIVER_AT,
    EVENT_AGAIN,
    EVENT_ID,
    EVENT_PUBLISHED,
    EVENT_REGION,
    EVENT_SOURCE,
    EVENT_TYPE,
    MESSAGE_ID,
    TRACEPARENT,
    TRACESTATE,
    UNREAD,
)

TYPE_DEFAULT = "message"
CONTENT_TYPE_DEFAULT = "application/json"

_NONE_GIVEN = dict.fromkeys(
    (
        EVENT_TYPE, CONTENT_TYPE, EVENT_AGAIN, EVENT_SOURCE, EVENT_PUBLISHED, TRACEPARENT, TRACESTATE,
        EVENT_ID, MESSAGE_ID, EVENT_REGION, DELIVER_AT,
    ),
    "",
)  # fmt: skip
DIRECT_WITHOUT_TIME = (
    f"{DELIVER_AT}: publish to angarium.events.<tenant>.<type> with the header Angarium-To: <name> instead"
)
HEADERS_UNREAD = f"headers: at most {LINES_MAX}, and {BLOCK_BYTES_MAX >> 10} KiB of them"
TYPE_CHECKED_MAX = 256
"""Characters of a type that are checked. No valid type has more, and results are cached."""
RECEIVER_CHECKED_MAX = 256
"""Characters of a receiver's id that are checked; a valid one has at most 129."""
_SOURCE = re.compile(r"[1-9][0-9]{0,18}\Z")
PUBLISHED_APART_S = 0.01
"""If an event waited longer than this for its copy, its facts say when it was published."""
PUBLISHED_AGE_MAX_S = 7 * 86400.0
"""Age of the oldest event of which there may be a copy, by default. A producer can write the header, too."""
_AGAIN = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")
_CONTENT_TYPE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]{0,254}[\x21-\x7e])?\Z")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")
_TRACESTATE = re.compile(r"[\t\x20-\x7e]{0,512}\Z")


@lru_cache(maxsize=1 << 16)
def receiver_problem(receiver: str) -> str:
    """The reason why no receiver can have this id, or an empty text. Cached: a few get most messages."""
    try:
        split_receiver(receiver)
    except InvalidName as error:
        return str(error)
    return ""


def stored_event(message: StoredMessage) -> Event:
    """The event in a message as it was read from the stream."""
    return event_of(message.position, message.stored_at, message.headers, message.data)


def event_of(position: int, stored_at: float, headers: dict[str, str] | None, body: bytes) -> Event:
    """The event in the message at `position`; an empty header counts as none."""
    if not headers:
        return Event(
            position=position, id=event_id(None, position, stored_at), stored_at=stored_at, body=body
        )
    if UNREAD in headers:
        own_id = event_id(headers.get(EVENT_ID), position, stored_at)
        return Event(position=position, id=own_id, stored_at=stored_at, body=body, malformed=HEADERS_UNREAD)
    given = _NONE_GIVEN | headers
    event_type = given[EVENT_TYPE] or TYPE_DEFAULT
    content_type = given[CONTENT_TYPE] or CONTENT_TYPE_DEFAULT
    again = given[EVENT_AGAIN]
    source = given[EVENT_SOURCE]
    malformed = ""
    # Only a router, a replay or a redrive sends a copy of an event about an alert.
    is_ours = (source != "" or again != "") and is_alert_type(event_type)
    if event_type != TYPE_DEFAULT and (
        problem := type_problem(event_type[:TYPE_CHECKED_MAX], is_ours=is_ours)
    ):
        event_type, malformed = TYPE_DEFAULT, f"{EVENT_TYPE}: {problem}"
    if content_type != CONTENT_TYPE_DEFAULT and not _CONTENT_TYPE.match(content_type):
        content_type, malformed = (
            CONTENT_TYPE_DEFAULT,
            f"{CONTENT_TYPE}: at most 256 printable ASCII characters",
        )
    if again and not _AGAIN.match(again):
        again, malformed = "", f"{EVENT_AGAIN}: set by replays and redrives only; leave it out"
    if source and not _SOURCE.match(source):
        source, malformed = "", f"{EVENT_SOURCE}: set by the router only; leave it out"
    if (region := given[EVENT_REGION]) and not is_region(region):
        region, malformed = "", f"{EVENT_REGION}: one label, {REGION_TEXT}"
    if given[DELIVER_AT]:
        malformed = DIRECT_WITHOUT_TIME  # Here it has its place among the numbers already.
    published_at = 0.0
    if (source or again) and given[EVENT_PUBLISHED]:
        try:
            published_at = float(given[EVENT_PUBLISHED])
        except ValueError:
            published_at = 0.0  # Only a router sets it.
        if not stored_at - PUBLISHED_AGE_MAX_S < published_at < stored_at - PUBLISHED_APART_S:
            published_at = 0.0
    traceparent = given[TRACEPARENT]
    if traceparent and not _TRACEPARENT.match(traceparent):
        traceparent = ""
    tracestate = traceparent and given[TRACESTATE]
    return Event(
        position=position,
        id=event_id(given[EVENT_ID] or given[MESSAGE_ID] or None, position, stored_at),
        stored_at=stored_at,
        body=body,
        type=event_type,
        again=again,
        # An event that is sent again does not come from a router, so a source would be wrong here.
        source=int(source) if source and not again else 0,
        content_type=content_type,
        traceparent=traceparent,
        tracestate=tracestate if tracestate and _TRACESTATE.match(tracestate) else "",
        malformed=malformed,
        published_at=published_at,
        region=region,
    )


def is_content_type(text: str) -> bool:
    """True if an event's `Content-Type` can be passed on."""
    return _CONTENT_TYPE.match(text) is not None


def valid_trace_headers(traceparent: str, tracestate: str) -> tuple[str, str]:
    """The two trace headers as they are passed on: empty if they are not valid W3C Trace Context."""
    if not _TRACEPARENT.match(traceparent):
        return "", ""
    return traceparent, tracestate if _TRACESTATE.match(tracestate) else ""


@lru_cache(maxsize=1 << 12)
def type_problem(event_type: str, *, is_ours: bool = False) -> str:
    """The reason why no producer may publish this type, or an empty text. Cached: there are few types.

    `is_ours`: Angarium itself published it.
    """
    if event_type.startswith(OUR_TYPES) and not is_ours:
        return f"types that begin with {OUR_TYPES} are Angarium's own; choose another"
    try:
        check_type(event_type)
    except InvalidName as error:
        return str(error)
    return ""
