"""Erasing events: what the operations answer, and their description."""

from typing import Any

from angarium.api.openapi.parts import problems, result
from angarium.operations.erase import ErasureStatus

_STATUS = {
    "tenant": "acme", "event": "order-17", "requested_by": "token k3f6w2m5qzra",
    "requested_at": "2026-11-22T20:00:00.000Z", "done": False, "done_at": None,
    "waits_for": "the event is being routed", "events": 0, "deliveries": 0, "discarded": 0,
    "dead_letters": 0, "journal_messages": 0,
}  # fmt: skip
_DONE = _STATUS | {
    "done": True, "done_at": "2026-11-22T20:00:07.412Z", "waits_for": None, "events": 1, "deliveries": 3,
    "discarded": 1, "dead_letters": 1, "journal_messages": 2,
}  # fmt: skip

ERASE_EVENT: dict[str, Any] = {
    "summary": "Erase what an event held, everywhere",
    "description": "Its body leaves streams, dead letters, recorded answers and ledgers; what waits of it is "
    "discarded. Numbers, ids and times stay. Nodes carry the request out; ask how far it is.",
    "tags": ["events"],
    "responses": {202: result(ErasureStatus, "The request is on record", _STATUS), **problems(422, 429)},
}
GET_ERASURE: dict[str, Any] = {
    "summary": "Show how far the erasure of an event is",
    "tags": ["events"],
    "responses": {200: result(ErasureStatus, "The last request about it", _DONE), **problems(422)},
}
