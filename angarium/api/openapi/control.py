"""Live states, control requests, erasures: what the operations take and answer, and their description."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from actors.configuration.signing_secrets import Kind
from angarium.api.openapi.shared_texts import body, operation, problems, result
from angarium.operations.configurations.rotate import OVERLAP_MAX_S, RotatedSecret
from angarium.operations.control_requests.operator_actions import Forgotten, Skipped
from angarium.operations.events.erase import ErasureStatus


class PauseState(Struct, frozen=True):
    """The pause in the configuration of a receiver."""

    paused: bool


class ResumeResult(Struct, frozen=True, kw_only=True):
    """The pause in the configuration of a receiver, and the learnt pace that is forgotten; null: none."""

    paused: bool
    forgotten_pace: dict[str, Any] | None


class RotationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The time for which the earlier secrets sign as well, and what the new one signs with."""

    overlap_s: Annotated[float, Meta(ge=0, le=OVERLAP_MAX_S)] = 86_400.0
    secret_kind: Kind | None = None


class PingResult(Struct, frozen=True, kw_only=True):
    """The receiver's answer to a ping, or the error."""

    status: int | None
    error: str | None
    latency_ms: float


class VerifyResult(Struct, frozen=True, kw_only=True):
    """The outcome of a handshake: whether the receiver proved itself, and the error if it did not."""

    verified: bool
    status: int | None
    error: str | None
    latency_ms: float


_STATE = {
    "receiver": "acme.billing", "shard": 54, "node": "n1", "phase": "idle", "next_sequence": 18,
    "why": "nothing waits", "remedy": None, "problems": [], "settled_sequence": 17, "in_flight": 0,
    "queued": 0, "backlog": 0, "parked": False, "head": None, "disabled": None, "resume_at": None,
    "failing_since": None, "alerts": {}, "consecutive_failures": 0,
    "bucket": {"tokens": 10.0, "limit": 10.0, "per": "second", "burst": 10, "effective_limit": 10.0},
    "pace": None, "handshake": None, "transform": None,
}  # fmt: skip


def _described(summary: str, answer: Any, description: str, example: object, **more: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": ["control"],
        "responses": {200: result(answer, description, example), **problems(409, 422)},
    } | more


GET_RECEIVER_STATE = _described(
    "Show the live state of a receiver", dict[str, Any],
    "The state as its owner knows it; other versions may have more or fewer members", _STATE,
)  # fmt: skip
PAUSE_RECEIVER = _described(
    "Pause a receiver: its events wait",
    PauseState,
    "The receiver is paused, and this is recorded",
    {"paused": True},
)
RESUME_RECEIVER = _described(
    "End a pause, a disablement, backoff and throttling, and forget the learnt pace",
    ResumeResult,
    "The receiver continues, and this is recorded",
    {"paused": False, "forgotten_pace": None},
)
PING_RECEIVER = _described(
    "Post a ping to a receiver", PingResult, "The receiver's answer; 200 even if the receiver failed",
    {"status": 204, "error": None, "latency_ms": 12.5},
)  # fmt: skip
VERIFY_RECEIVER = _described(
    "Have a receiver prove itself now", VerifyResult,
    "The recorded outcome of the handshake; 200 even if the receiver did not prove itself",
    {"verified": True, "status": 200, "error": None, "latency_ms": 12.5},
)  # fmt: skip
SKIP_EVENT = _described(
    "Skip the oldest event: it becomes a dead letter", Skipped, "The skipped event",
    {"sequence": 17, "event_id": "order-7-created"},
)  # fmt: skip
FORGET_EVENTS = _described(
    "Discard the waiting events of a receiver, and clear its failures", Forgotten, "The recorded result",
    {"discarded": 12, "next_sequence": 30},
)  # fmt: skip
ROTATE_RECEIVER_SECRET = _described(
    "Give a receiver a new signing secret", RotatedSecret, "The new secret; only this answer shows it",
    {
        "receiver": "acme.billing", "revision": 8, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "secrets": 2, "public_keys": [], "until": "2026-11-23T20:00:00Z",
    },
    operation_class=operation(
        body(
            "The time for which the earlier secrets sign as well, in seconds (without a body, a day), and "
            "what the new one signs with (by default what the newest one does).",
            {"application/json": {"overlap_s": 86400}}, "RotationRequest", required=False,
        )
    ),
)  # fmt: skip
ROTATE_RECEIVER_SECRET["responses"] |= problems(400, 408, 412, 413, 415, 429)

_ERASURE = {
    "tenant": "acme", "event": "order-17-created", "requested_by": "token k3f6w2m5qzra",
    "requested_at": "2026-11-22T20:00:00.000Z", "done": False, "done_at": None,
    "waits_for": "the event is being routed", "events": 0, "deliveries": 0, "discarded": 0,
    "dead_letters": 0, "journal_messages": 0,
}  # fmt: skip
_ERASED = _ERASURE | {
    "done": True, "done_at": "2026-11-22T20:00:07.412Z", "waits_for": None, "events": 1, "deliveries": 3,
    "discarded": 1, "dead_letters": 1, "journal_messages": 2,
}  # fmt: skip

ERASE_EVENT: dict[str, Any] = {
    "summary": "Erase the content of an event everywhere",
    "description": "Its body is erased from streams, dead letters, recorded answers and ledgers; waiting "
    "deliveries are discarded. Numbers, ids and times stay. Nodes carry the request out; GET its progress.",
    "tags": ["events"],
    "responses": {202: result(ErasureStatus, "The request is recorded", _ERASURE), **problems(422, 429)},
}
GET_ERASURE: dict[str, Any] = {
    "summary": "Show the progress of an event's erasure",
    "tags": ["events"],
    "responses": {
        200: result(ErasureStatus, "The last request to erase the event", _ERASED),
        **problems(422),
    },
}
