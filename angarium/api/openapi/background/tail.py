"""The description of the live attempts."""

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from angarium.api.openapi.parts import header_parameter, operation, problems

EVENT_STREAM = "text/event-stream"
_SHOWN = """retry: 1000
id: 4711-0

event: attempt
id: 4711-1
data: {"id":"4711-1","at":"2026-11-22T20:00:00.000Z","receiver":"acme.billing","verdict":"failed",\
"sequence":17,"event_id":"order-7","type":"order.created","attempt":1,"status":500,"error":null,\
"latency_ms":12.5,"answer":"no database","next_at":"2026-11-22T20:00:02.000Z"}

"""
TAIL_ATTEMPTS: dict[str, Any] = {
    "summary": "Follow attempts as they are recorded",
    "description": "Server-sent events without an end: `attempt`; `missed`, where a part of the journal is "
    "not there any more; `end`, where the stream ends, with the reason. A comment and an id come every 15 s "
    "where nothing else does.",
    "tags": ["attempts"],
    "operation_class": operation(
        parameters=[
            header_parameter(
                "Last-Event-ID", "The last id that you have seen; the stream continues after it.", "4711-1"
            )
        ]
    ),
    "responses": {
        200: ResponseSpec(
            str, generate_examples=False, description="The events", media_type=EVENT_STREAM,
            examples=[Example(summary="The events", value=_SHOWN)],
        ),
        **problems(422, 429),
    },
}  # fmt: skip
