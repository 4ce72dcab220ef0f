"""The description of the live attempts."""

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from angarium.api.openapi.shared_texts import header_parameter, operation, problems

EVENT_STREAM = "text/event-stream"
_EXAMPLE = """retry: 1000
id: 4711-0

event: attempt
id: 4711-1
data: {"id":"4711-1","at":"2026-11-22T20:00:00.000Z","receiver":"acme.billing","verdict":"failed",\
"sequence":17,"event_id":"order-7-created","type":"order.created","attempt":1,"status":500,"error":null,\
"latency_ms":12.5,"answer":"no database","next_at":"2026-11-22T20:00:02.000Z"}

"""
TAIL_ATTEMPTS: dict[str, Any] = {
    "summary": "Follow attempts as they are recorded",
    "description": "A stream of server-sent events: `attempt`; `missed`, if a part of the journal no longer "
    "exists; `end`, with the reason, when the stream ends. If there is no event for 15 s, a comment and an "
    "id are sent.",
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
            str, generate_examples=False, description="The stream of events", media_type=EVENT_STREAM,
            examples=[Example(summary="The stream of events", value=_EXAMPLE)],
        ),
        **problems(422, 429),
    },
}  # fmt: skip
