"""The live state of receivers and the orders to their owners: what they answer, and their description."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from angarium.api.openapi.parts import body, operation, problems, result
from angarium.operations.live_receivers.forget import Forgotten
from angarium.operations.live_receivers.skip import Skipped
from angarium.operations.receivers.rotate import OVERLAP_MAX_S, Rotated


class PauseState(Struct, frozen=True):
    """A receiver's configuration says that it is paused, or not."""

    paused: bool


class RotationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The time for which the secrets before the new one sign as well."""

    overlap_s: Annotated[float, Meta(ge=0, le=OVERLAP_MAX_S)] = 86_400.0


class PingResult(Struct, frozen=True, kw_only=True):
    """The receiver's answer to a ping, or the error in its place."""

    status: int | None
    error: str | None
    latency_ms: float


_STATE = {
    "receiver": "acme.billing", "shard": 54, "node": "n1", "phase": "idle", "next_sequence": 18,
    "why": "nothing waits", "remedy": None, "problems": [], "settled_sequence": 17, "in_flight": 0,
    "queued": 0, "backlog": 0, "parked": False, "head": None, "disabled": None, "resume_at": None,
    "failing_since": None, "consecutive_failures": 0,
    "bucket": {"tokens": 10.0, "limit": 10.0, "per": "second", "burst": 10, "effective_limit": 10.0},
}  # fmt: skip


def _described(summary: str, answer: Any, description: str, example: object, **more: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": ["control"],
        "responses": {200: result(answer, description, example), **problems(409, 422)},
    } | more


GET_RECEIVER_STATE = _described(
    "Show the live state of a receiver", dict[str, Any],
    "What its owner knows; nodes of other versions may have members more or less", _STATE,
)  # fmt: skip
PAUSE_RECEIVER = _described(
    "Let the events of a receiver wait", PauseState, "It is paused, on record", {"paused": True}
)
RESUME_RECEIVER = _described(
    "End a pause, a disablement, backoff and throttling",
    PauseState,
    "It continues, on record",
    {"paused": False},
)
PING_RECEIVER = _described(
    "Post a ping to a receiver", PingResult, "What came of it; a receiver that failed is 200 as well",
    {"status": 204, "error": None, "latency_ms": 12.5},
)  # fmt: skip
SKIP_EVENT = _described(
    "Make a dead letter of the event at the head", Skipped, "It is a dead letter, on record",
    {"sequence": 17, "event_id": "order-7"},
)  # fmt: skip
FORGET_EVENTS = _described(
    "Discard what waits for a receiver, and clear its failures", Forgotten, "It is discarded, on record",
    {"discarded": 12, "next_sequence": 30},
)  # fmt: skip
ROTATE_RECEIVER_SECRET = _described(
    "Give a receiver a new signing secret", Rotated, "The new secret, which only this answer shows",
    {
        "receiver": "acme.billing", "revision": 8, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "secrets": 2, "until": "2026-11-23T20:00:00Z",
    },
    operation_class=operation(
        body(
            "How long those before it sign as well, in seconds; without a body a day.",
            {"application/json": {"overlap_s": 86400}}, "RotationRequest", required=False,
        )
    ),
)  # fmt: skip
ROTATE_RECEIVER_SECRET["responses"] |= problems(400, 408, 412, 413, 415)
