"""Formats: an event as published, in an envelope, or as a CloudEvent (1.0, binary or structured).

The bytes depend on the event and its number alone, so that every attempt of it, from any node, sends the same
ones: no time of an attempt, no name of a node, and no limit that depends on a process enters them.
"""

import base64
import re
from collections.abc import Iterable
from typing import Any, Literal, assert_never

import msgspec
from msgspec import UNSET, Struct, UnsetType

from actors.ids import tenant_of
from actors.json_depth import is_deep
from actors.machine.event import Event
from actors.times_as_text import instant_text

Format = Literal["envelope", "cloudevents", "cloudevents-structured"]
"""The formats in which an event is not sent as it was published."""
CONTENT_TYPE_DEFAULT = "application/json"

_CLOUDEVENTS = "application/cloudevents"
"""The beginning of the types of bodies that have the attributes of the event in them."""
_decoder = msgspec.json.Decoder(msgspec.Raw)
_encoder = msgspec.json.Encoder()
_HEADER_ESCAPED = re.compile(r"[^!#$&-~]")


class FormattedEvent(Struct, frozen=True, gc=False):
    """An event in its format: the body, the type of the body, and the headers that belong to the format."""

    body: bytes
    content_type: str
    lines: tuple[bytes, ...] = ()


def format_event(body_format: Format, receiver: str, event: Event, sequence: int | None) -> FormattedEvent:
    """The event in that format. A ping has no `sequence`."""
    if body_format == "cloudevents" and event.content_type.lower().startswith(_CLOUDEVENTS):
        body_format = "cloudevents-structured"  # Receivers would read all attributes from the body.
    match body_format:
        case "envelope":
            return FormattedEvent(envelope([(event, sequence)]), CONTENT_TYPE_DEFAULT)
        case "cloudevents":
            attributes = _attributes(receiver, event, sequence)
            lines = tuple(
                b"ce-%b: %b" % (name.encode(), _escaped(value)) for name, value in attributes.items()
            )
            return FormattedEvent(event.body, event.content_type, lines)
        case "cloudevents-structured":
            members = _attributes(receiver, event, sequence)
            members["datacontenttype"] = event.content_type
            body = msgspec.json.encode(members | _data(event))
            return FormattedEvent(body, f"{_CLOUDEVENTS}+json")
        case _:
            assert_never(body_format)


class _Enveloped(Struct, frozen=True, gc=False):
    """An event in an envelope, with its members in their order; a ping has no `sequence`."""

    sequence: int | UnsetType
    id: str
    type: str
    timestamp: str
    again: str | UnsetType
    content_type: str | UnsetType
    data: msgspec.Raw | UnsetType
    data_base64: bytes | UnsetType


def envelope(events: Iterable[tuple[Event, int | None]]) -> bytes:
    """`{"events": […]}`: the events in their order, each with its number, which a ping has not."""
    return _encoder.encode({"events": [_enveloped(event, sequence) for event, sequence in events]})


def _enveloped(event: Event, sequence: int | None) -> _Enveloped:
    written = _json(event)
    return _Enveloped(
        UNSET if sequence is None else sequence, event.id, event.type, instant_text(event.accepted_at),
        event.again or UNSET,
        UNSET if event.content_type == CONTENT_TYPE_DEFAULT else event.content_type,
        UNSET if written is None else written, event.body if written is None else UNSET,
    )  # fmt: skip


def _attributes(receiver: str, event: Event, sequence: int | None) -> dict[str, str]:
    """The attributes of the CloudEvent, without the type of its data; Angarium's own begin with `angarium`.

    The number is a string: an integer of CloudEvents has 32 bits.
    """
    tenant = tenant_of(receiver)
    attributes = {
        "specversion": "1.0", "id": event.id, "source": f"/tenants/{tenant}", "type": event.type,
        "time": instant_text(event.accepted_at),
    }  # fmt: skip
    if sequence is not None:
        attributes["angariumsequence"] = str(sequence)
    if event.again:
        attributes["angariumagain"] = event.again
    if event.traceparent:
        attributes["traceparent"] = event.traceparent
    if event.tracestate:
        attributes["tracestate"] = event.tracestate
    return attributes


def _data(event: Event) -> dict[str, Any]:
    """The body as a member: the JSON that was published, byte for byte, or its base64."""
    written = _json(event)
    if written is None:
        return {"data_base64": base64.b64encode(event.body).decode()}
    return {"data": written}


def _json(event: Event) -> msgspec.Raw | None:
    """The body, if its type says JSON and it is JSON in UTF-8; None otherwise."""
    if event.content_type != CONTENT_TYPE_DEFAULT:
        kind = event.content_type.partition(";")[0].strip().lower()
        if kind != CONTENT_TYPE_DEFAULT and not kind.endswith("+json"):
            return None
    if is_deep(event.body):
        return None
    try:
        event.body.decode()
        return _decoder.decode(event.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _escaped(value: str) -> bytes:
    """The value of an attribute as a header of the HTTP binding: percent-encoded where that asks for it."""
    return _HEADER_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", value).encode("ascii")
