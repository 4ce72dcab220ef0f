"""The description of the operations that publish."""

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import Operation

from angarium.api.openapi.parts import body, header_parameter, problems, result
from angarium.operations.publishing.accept import Accepted
from streams.nats.headers import EVENT_ID

_ID = "0b7d2a6e-6f3c-4a53-9a6e-2f1c3c1c9a11"
_EVENT = {"order": 7}
_BODY = body("The event: any bytes, passed on as they are.", {"application/json": _EVENT}, required=False)
_HEADERS = [
    header_parameter("Idempotency-Key", "A repeat with the same key within 2 minutes is dropped.", "order-7"),
    header_parameter(EVENT_ID, "The event's id; without it the key, or a new one.", "order-7"),
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
        "responses": {202: result(Accepted, "JetStream has acknowledged it", answer), **_PROBLEMS},
    }


_STORED = {"id": _ID, "stream": "ANGARIUM_DELIVERIES", "seq": 17, "duplicate": False}
PUBLISH_EVENT = _described(
    "Publish an event to all that subscribe to its type",
    {"id": _ID, "stream": "ANGARIUM_EVENTS", "seq": 17, "duplicate": False, "matched": 2},
)
PUBLISH_TO_RECEIVER = _described("Publish an event to one receiver", _STORED)
PUBLISH_UNTYPED_TO_RECEIVER = _described("Publish an event of the type message to one receiver", _STORED)
