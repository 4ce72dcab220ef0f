"""The description of a batch, and its answer."""

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import Operation
from msgspec import Struct

from angarium.api.openapi.parts import body, problems, result
from angarium.api.problems import HIDDEN, TITLES, TYPES, Problem


class StoredItem(Struct, kw_only=True, omit_defaults=True):
    """An event of a batch that is stored."""

    status: int
    id: str
    stream: str
    seq: int
    duplicate: bool
    matched: int | None = None


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """The answers to the events of a batch, in their order: where it is stored, or why it is not."""

    accepted: int
    refused: int
    results: list[StoredItem | Problem]


_ITEMS = [
    {"type": "order.created", "data": {"order": 7}, "id": "order-7"},
    {"type": "order.paid", "data": {"order": 7}, "receiver": "billing"},
]
_STORED = {
    "status": 202, "id": "order-7", "stream": "ANGARIUM_EVENTS", "seq": 17, "duplicate": False, "matched": 2,
}  # fmt: skip
_REFUSED = {"type": TYPES + "not-found", "title": TITLES["not-found"], "status": 404, "detail": HIDDEN}
_BODY = body(
    "A JSON array of events, or a line each. The data is published as it stands, as application/json.",
    {"application/json": _ITEMS, "application/x-ndjson": _ITEMS[0]},
)


@dataclass
class _Batch(Operation):
    """An operation whose body is read by the route."""

    def __post_init__(self) -> None:
        self.request_body = _BODY


batch: dict[str, Any] = {
    "summary": "Publish up to 1,000 events",
    "tags": ["publish"],
    "operation_class": _Batch,
    "responses": {
        202: result(BatchAnswer, "All are stored", {"accepted": 1, "refused": 0, "results": [_STORED]}),
        207: result(
            BatchAnswer, "Some are not", {"accepted": 1, "refused": 1, "results": [_STORED, _REFUSED]}
        ),
        **problems(400, 408, 413, 415, 422, 429),
    },
}
