"""Spans as values, made from a recorded fact and the trace of its event. Pure.

A span has the names, kinds and attributes of OpenTelemetry's conventions for HTTP clients and messaging. Of a
URL it shows scheme, host and port: a path or a query may hold a secret. It shows no header, no body, no
answer, and no error text beyond its first word.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from actors.ids import is_tenant, tenant_of
from actors.machine.facts import AttemptFailed, DeadLettered, Delivered, OutcomeFact, Throttled
from actors.machine.numbering import Numbered
from angarium.telemetry.trace_ids import DELIVERY_ORDINAL, TraceContext, route_span_id, span_id
from streams.routing.routed_events import RoutedEvent

Value = str | int


class SpanKind(Enum):
    """The kinds of spans that are made."""

    CLIENT = "client"
    CONSUMER = "consumer"


class Moment(Struct, frozen=True, gc=False):
    """Something that happened within a span, at a time in seconds since the epoch."""

    name: str
    at: float


class SpanName(NamedTuple):
    """The ids by which a span is known."""

    trace: int
    span: int


class Span(Struct, frozen=True, kw_only=True):
    """A finished span. Times are in seconds since the epoch; `parent` is 0 for the root of a trace.

    `links`: spans of other traces that belong together with it.
    """

    name: str
    kind: SpanKind
    trace: int
    span: int
    parent: int
    start: float
    end: float
    attributes: dict[str, Value]
    moments: tuple[Moment, ...] = ()
    links: tuple[SpanName, ...] = ()
    failed: bool = False


def attempt_span(fact: OutcomeFact, event: Numbered, context: TraceContext, url: str) -> Span:
    """The span of a recorded attempt to deliver this event to `url`."""
    failed = not isinstance(fact, Delivered)
    return Span(
        name="POST", kind=SpanKind.CLIENT, trace=context.trace, failed=failed,
        attributes=_post_attributes(fact, url),
        span=span_id(fact.receiver, event.sequence, fact.attempt, event.id),
        parent=span_id(fact.receiver, event.sequence, DELIVERY_ORDINAL, event.id),
        start=fact.at - fact.latency_ms / 1000, end=fact.at,
    )  # fmt: skip


def batch_span(fact: OutcomeFact, post: SpanName, url: str, events: Sequence[SpanName]) -> Span:
    """The span of a recorded POST of a batch to `url`, with links to the deliveries of its `events`."""
    failed = not isinstance(fact, Delivered)
    return Span(
        name="POST", kind=SpanKind.CLIENT, trace=post.trace, span=post.span, parent=0, failed=failed,
        attributes=_post_attributes(fact, url) | {"messaging.batch.message_count": len(fact.events)},
        start=fact.at - fact.latency_ms / 1000, end=fact.at, links=tuple(events),
    )  # fmt: skip


def delivery_name(receiver: str, event: Numbered, context: TraceContext) -> SpanName:
    """The ids of the span of a delivery."""
    return SpanName(context.trace, span_id(receiver, event.sequence, DELIVERY_ORDINAL, event.id))


def delivery_span(
    fact: Delivered | DeadLettered,
    event: Numbered,
    context: TraceContext,
    moments: tuple[Moment, ...],
    links: tuple[SpanName, ...] = (),
) -> Span:
    """The span of a settled delivery, from the time its event was accepted.

    A copy's is below the span of its routing, any other below that of the producer. `links`: the POSTs of
    batches that contained the event.
    """
    tenant = tenant_of(fact.receiver)
    parent = route_span_id(tenant, event.source, event.id) if event.source else context.parent
    attributes: dict[str, Value] = {
        "messaging.system": "angarium",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.destination.name": fact.receiver,
        "messaging.message.id": event.id,
        "angarium.sequence": event.sequence,
        "angarium.attempts": fact.attempt if isinstance(fact, Delivered) else fact.attempts,
    }
    failed = isinstance(fact, DeadLettered)
    if isinstance(fact, DeadLettered):
        attributes["error.type"] = fact.reason
    return Span(
        name=f"deliver {fact.receiver}", kind=SpanKind.CONSUMER, trace=context.trace, failed=failed,
        span=span_id(fact.receiver, event.sequence, DELIVERY_ORDINAL, event.id), parent=parent,
        start=min(event.accepted_at, fact.at), end=fact.at, attributes=attributes, moments=moments,
        links=links,
    )  # fmt: skip


def route_span(event: RoutedEvent, context: TraceContext, at: float) -> Span:
    """The span of a routed event, from the time it was accepted until all its copies were stored.

    A producer may invent a tenant: the span has only a name that a tenant can have.
    """
    tenant = event.tenant if is_tenant(event.tenant) else "_other"
    attributes: dict[str, Value] = {
        "messaging.system": "angarium",
        "messaging.operation.name": "route",
        "messaging.operation.type": "process",
        "messaging.destination.name": tenant,
        "messaging.message.id": event.id,
        "angarium.copies": event.copies,
    }
    if event.malformed:
        attributes["error.type"] = "malformed"
    else:
        attributes["angarium.event.type"] = event.type
    return Span(
        name=f"route {tenant}", kind=SpanKind.CONSUMER, trace=context.trace, failed=event.malformed,
        span=route_span_id(event.tenant, event.source, event.id), parent=context.parent,
        start=min(event.stored_at, at), end=at, attributes=attributes,
    )  # fmt: skip


def moment(fact: AttemptFailed | Throttled) -> Moment:
    """The mark that a failed attempt leaves on the span of its delivery."""
    return Moment("throttled" if isinstance(fact, Throttled) else "backing_off", fact.at)


def _post_attributes(fact: OutcomeFact, url: str) -> dict[str, Value]:
    attributes: dict[str, Value] = {"http.request.method": "POST", **_server(url)}
    if fact.status is not None:
        attributes["http.response.status_code"] = fact.status
    if fact.attempt > 1:
        attributes["http.request.resend_count"] = fact.attempt - 1
    if not isinstance(fact, Delivered):
        attributes["error.type"] = _error_type(fact)
    return attributes


def _server(url: str) -> dict[str, Value]:
    """The parts of a receiver's URL that are shown."""
    parts = urlsplit(url)
    shown: dict[str, Value] = {"url.scheme": parts.scheme, "server.address": parts.hostname or ""}
    shown["server.port"] = parts.port or (443 if parts.scheme == "https" else 80)
    return shown


def _error_type(fact: OutcomeFact) -> str:
    """The status, or the first word of the error: the rest may quote the receiver."""
    if isinstance(fact, AttemptFailed) and not fact.error.startswith("HTTP "):
        return fact.error.partition(":")[0]
    return str(fact.status)
