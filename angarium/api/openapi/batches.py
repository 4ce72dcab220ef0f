"""The description of a batch, and its answer."""

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import Operation
from msgspec import Raw, Struct

from angarium.api.openapi.parts import body, problems, result
from angarium.api.problems import HIDDEN, TITLES, TYPES, Fault

ITEMS_MAX = 1000


class BatchItem(Struct, frozen=True, forbid_unknown_fields=True):
    """One event of a batch, for all that subscribe to its type or for one receiver.

    `data` is passed on as it is written there.
    """

    data: Raw
    type: str = ""
    id: str = ""
    receiver: str = ""


class ItemAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one event of a batch: of `status` 202 if it is stored, else the members of a problem."""

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
    """The answers to the events of a batch, in their order: where it is stored, or why it is not."""

    accepted: int
    refused: int
    results: list[ItemAnswer]


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
    {"application/json": _ITEMS, "application/x-ndjson": _ITEMS[0]}, "BatchItem", items=ITEMS_MAX,
)  # fmt: skip


@dataclass
class _Batch(Operation):
    """An operation whose body is read by the route."""

    def __post_init__(self) -> None:
        self.request_body = _BODY


PUBLISH_BATCH: dict[str, Any] = {
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
