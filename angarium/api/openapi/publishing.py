"""Publishing, and events that wait: what the operations take and answer, and their description."""

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import Operation
from msgspec import Raw, Struct

from angarium.api.openapi.shared_texts import body, header_parameter, problems, result
from angarium.api.problems import HIDDEN, TITLES, TYPES, Fault
from angarium.operations.events.accept import AcceptedEvent
from angarium.operations.events.cancel_timed import CancelledEvents
from angarium.operations.events.list_timed import TimedEvent
from streams.nats.wire_names import DELIVER_AT, EVENT_ID, EVENT_REGION

ITEMS_MAX = 1000


class BatchItem(Struct, frozen=True, forbid_unknown_fields=True):
    """An event of a batch, for all receivers that subscribe to its type or for one receiver.

    `data` is passed on byte for byte. `deliver_at` is a time as in RFC 3339, at most 30 days ahead.
    """

    data: Raw
    type: str = ""
    id: str = ""
    receiver: str = ""
    region: str = ""
    deliver_at: str = ""


class ItemAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one event of a batch: status 202 if it is stored, else the members of a problem."""

    status: int
    id: str | None = None
    stream: str | None = None
    seq: int | None = None
    duplicate: bool | None = None
    matched: int | None = None
    type: str | None = None
    title: str | None = None
    detail: str | None = None
    errors: tuple[Fault, ...] = ()


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """The answers to the events of a batch, in the same order: its place in a stream, or a problem."""

    accepted: int
    refused: int
    results: list[ItemAnswer]


class TimedEventList(Struct, frozen=True, kw_only=True):
    """A page of waiting events, the next first."""

    events: list[TimedEvent]
    next_cursor: str | None


_ID = "0b7d2a6e-6f3c-4a53-9a6e-2f1c3c1c9a11"
_EVENT = {"order": 7}
_BODY = body(
    "The event: any bytes; they are passed on unchanged.", {"application/json": _EVENT}, required=False
)
_HEADERS = [
    header_parameter("Idempotency-Key", "A repeat with the same key within 2 minutes is dropped.", _ID),
    header_parameter(EVENT_ID, "The event's id; without it, one made from the key, or new.", _ID),
    header_parameter(EVENT_REGION, "The region that the data belongs to; only its receivers get it.", "eu"),
    header_parameter(DELIVER_AT, "The event waits until then; at most 30 days ahead.",
                     "2026-12-24T18:00:00Z"),
    header_parameter("traceparent", "W3C Trace Context; passed on to the receiver.",
                     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    header_parameter("tracestate", "W3C Trace Context.", "vendor=value"),
]  # fmt: skip
_PROBLEMS = problems(400, 408, 409, 413, 415, 422, 429)


@dataclass
class _Publish(Operation):
    """An operation whose body is read by the route, as it is."""

    def __post_init__(self) -> None:
        self.request_body = _BODY
        self.parameters = [*(self.parameters or []), *_HEADERS]


def _described(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": ["publish"],
        "operation_class": _Publish,
        "responses": {
            202: result(AcceptedEvent, "JetStream has acknowledged the event", answer),
            **_PROBLEMS,
        },
    }


_STORED = {"id": _ID, "stream": "ANGARIUM_DELIVERIES", "seq": 17, "duplicate": False}
PUBLISH_EVENT = _described(
    "Publish an event to all receivers that subscribe to its type",
    {"id": _ID, "stream": "ANGARIUM_EVENTS", "seq": 17, "duplicate": False, "matched": 2},
)
PUBLISH_TO_RECEIVER = _described("Publish an event to one receiver", _STORED)
PUBLISH_UNTYPED_TO_RECEIVER = _described("Publish an event of the type `message` to one receiver", _STORED)

_ITEMS = [
    {"type": "order.created", "data": {"order": 7}, "id": _ID, "region": "eu"},
    {"type": "order.paid", "data": {"order": 7}, "receiver": "billing"},
]
_STORED_ITEM = {
    "status": 202, "id": _ID, "stream": "ANGARIUM_EVENTS", "seq": 17, "duplicate": False, "matched": 2,
}  # fmt: skip
_REFUSED_ITEM = {"type": TYPES + "not-found", "title": TITLES["not-found"], "status": 404, "detail": HIDDEN}
_BATCH_BODY = body(
    "A JSON array of events, or one event a line. The data is published unchanged, as application/json.",
    {"application/json": _ITEMS, "application/x-ndjson": _ITEMS[0]}, "BatchItem", items=ITEMS_MAX,
)  # fmt: skip


@dataclass
class _Batch(Operation):
    """An operation whose body is read by the route."""

    def __post_init__(self) -> None:
        self.request_body = _BATCH_BODY


PUBLISH_BATCH: dict[str, Any] = {
    "summary": "Publish up to 1,000 events",
    "tags": ["publish"],
    "operation_class": _Batch,
    "responses": {
        202: result(
            BatchAnswer,
            "Every event is stored",
            {"accepted": 1, "refused": 0, "results": [_STORED_ITEM]},
        ),
        207: result(
            BatchAnswer,
            "Some events are not stored",
            {"accepted": 1, "refused": 1, "results": [_STORED_ITEM, _REFUSED_ITEM]},
        ),
        **problems(400, 408, 413, 415, 422, 429),
    },
}
_TIMED = {
    "id": _ID, "tenant": "acme", "type": "order.created",
    "deliver_at": "2026-12-24T18:00:00.000Z", "due_at": "2026-12-24T18:00:00.000Z",
    "published_at": "2026-12-01T09:30:00.123Z", "receiver": None, "bytes": 11,
}  # fmt: skip
LIST_TIMED: dict[str, Any] = {
    "summary": "List the timed events",
    "tags": ["publish"],
    "responses": {
        200: result(
            TimedEventList, "Waiting events, the next first", {"events": [_TIMED], "next_cursor": None}
        ),
        **problems(),
    },
}
CANCEL_TIMED: dict[str, Any] = {
    "summary": "Cancel a timed event",
    "tags": ["publish"],
    "responses": {
        200: result(
            CancelledEvents,
            "The event is never delivered",
            {"cancelled": [_TIMED], "before": 0, "too_late": 0},
        ),
        **problems(409),
    },
}
