"""Answers from the ledger about attempts, events and receivers, and their description."""

from typing import Any

from msgspec import Struct

from angarium.api.openapi.shared_texts import problems, result
from angarium.operations.ledger_queries.audit import AuditDocument
from angarium.operations.ledger_queries.history import HistoryEntry
from angarium.operations.ledger_queries.ledger_access import LedgerLag
from angarium.operations.ledger_queries.minutes import Minute


class AttemptItem(Struct, frozen=True, kw_only=True):
    """An attempt; a ping has no `sequence` and no `event_id`.

    `answer` is the start of the response to a failed attempt; `next_at` is the time of the next attempt.
    """

    at: str
    sequence: int | None
    event_id: str | None
    type: str | None
    attempt: int
    verdict: str
    status: int | None
    error: str | None
    answer: str | None
    latency_ms: float
    next_at: str | None


class AttemptPage(Struct, frozen=True, kw_only=True):
    """Attempts, newest first."""

    attempts: list[AttemptItem]
    next_cursor: str | None
    ledger: LedgerLag


class DuplicateItem(Struct, frozen=True):
    """A message that was dropped, since the receiver already had one with that id.

    `position` is its place in the stream of the deliveries.
    """

    at: str
    position: int


class DeliveryItem(Struct, frozen=True, kw_only=True):
    """An event and one of its receivers; `again` names the replay or redrive that sent it.

    `published_at` is earlier than `stored_at` if the event waited for its fan-out; lateness counts from it.
    `state` is `open` until the event is settled, and `unknown` if the ledger does not know the end; a dead
    letter has a `reason`. `attempts` are the first 50 and the last 50 of `attempts_total`;
    `repeats` are other messages with the event's id that this receiver did not get.
    """

    receiver: str
    sequence: int
    type: str | None
    again: str | None
    state: str
    reason: str | None
    published_at: str | None
    stored_at: str | None
    ended_at: str | None
    attempts: list[AttemptItem]
    attempts_total: int
    repeats: list[DuplicateItem]


class WaitingDeliveryItem(Struct, frozen=True, kw_only=True):
    """An event that waits for a receiver, at `place` of the `waiting` ones; the first has place 1.

    `why` says what holds the receiver up, `remedy` which operation ends that, if it does not end by itself.
    `due_s`: seconds until the event's turn if everything continues as it is. Null: not known. `again` names
    the replay or redrive that sent it.
    """

    receiver: str
    again: str | None
    stored_at: str
    place: int | None
    waiting: int | None
    due_s: float | None
    why: str
    remedy: str | None


class ErasedItem(Struct, frozen=True):
    """The last erasure of an event: who asked for it, and when it was done; null while it is under way."""

    at: str | None
    by: str


class DueItem(Struct, frozen=True):
    """An event whose time has come: `late_s` after `due_at`, it was accepted among the events."""

    due_at: str
    accepted_at: str
    late_s: float


class JourneyPage(Struct, frozen=True, kw_only=True):
    """The deliveries of an event, by receiver and sequence, and the receivers for which it still waits.

    A page has the receivers between its first and its last delivery; one with many attempts may be short.
    `waiting` is null if the streams could not be searched; `notes` say why, or what was left out. `why_none`:
    why no receiver has the event; it may wait to be routed. `due`: the last events of the id that had a time,
    and that became due in the last 8 days.
    """

    event_id: str
    deliveries: list[DeliveryItem]
    waiting: list[WaitingDeliveryItem] | None
    why_none: str | None
    erased: ErasedItem | None
    due: list[DueItem] | None
    notes: list[str]
    next_cursor: str | None
    ledger: LedgerLag


class HistoryPage(Struct, frozen=True, kw_only=True):
    """The history of a receiver, oldest first; `now` is its last known condition."""

    receiver: str
    entries: list[HistoryEntry]
    now: str
    next_cursor: str | None
    ledger: LedgerLag


class MinutePage(Struct, frozen=True, kw_only=True):
    """Minutes in which something happened, oldest first."""

    receiver: str
    minutes: list[Minute]
    next_cursor: str | None
    ledger: LedgerLag


class FailingItem(Struct, frozen=True, kw_only=True):
    """A failing receiver, and its last attempt."""

    receiver: str
    failing_since: str | None
    failures: int
    disabled: str | None
    last_attempt_at: str | None
    status: int | None
    error: str | None


class LateItem(Struct, frozen=True, kw_only=True):
    """A receiver, and the time from storage to delivery of its events: the longest, and the average."""

    receiver: str
    latest_s: float
    mean_s: float
    delivered: int
    attempts: int
    failed: int


class WorstReceivers(Struct, frozen=True, kw_only=True):
    """The failing receivers, longest outage first, and those whose events arrived latest."""

    failing: list[FailingItem]
    late: list[LateItem]
    within_s: float
    ledger: LedgerLag


_LEDGER = {"as_of": "2026-11-22T20:00:01.250Z", "behind_s": 0.0, "gaps": [], "kept_since": None}
_FAILED = {
    "at": "2026-11-22T20:00:00.120Z", "sequence": 17, "event_id": "order-17-created", "type": "order.created",
    "attempt": 1, "verdict": "failed", "status": 503, "error": "HTTP 503", "answer": "try again later",
    "latency_ms": 31.2, "next_at": "2026-11-22T20:00:02.480Z",
}  # fmt: skip
_DELIVERED = _FAILED | {
    "at": "2026-11-22T20:00:02.512Z", "attempt": 2, "verdict": "delivered", "status": 200, "error": None,
    "answer": None, "latency_ms": 12.8, "next_at": None,
}  # fmt: skip
_AT = "2026-11-22T20:00:00.000Z"


def _described(summary: str, answer: Any, description: str, example: object) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": ["records"],
        "responses": {200: result(answer, description, example), **problems(422)},
    }


LIST_ATTEMPTS = _described(
    "List the attempts to a receiver, newest first", AttemptPage, "A page of attempts",
    {"attempts": [_DELIVERED, _FAILED], "next_cursor": "1795377600120-1", "ledger": _LEDGER},
)  # fmt: skip
LIST_MINUTES = _described(
    "List throughput and latency of a receiver by minute, oldest first", MinutePage,
    "A page of minutes; minutes in which nothing happened are left out",
    {
        "receiver": "acme.billing",
        "minutes": [{
            "at": _AT, "attempts": 20, "delivered": 17, "failed": 3, "throttled": 0, "dead": 0,
            "latency_ms": 12.8, "latency_ms_max": 31.2, "late_s": 0.8, "late_s_max": 2.5,
            "posts": 20,
        }],
        "next_cursor": "1795377660000",
        "ledger": _LEDGER,
    },
)  # fmt: skip
GET_EVENT = _described(
    "Show an event's deliveries to the tenant's receivers, and where it still waits", JourneyPage,
    "The event's deliveries, each with its first and last attempts, and the receivers for which it waits",
    {
        "event_id": "order-17-created",
        "deliveries": [{
            "receiver": "acme.billing", "sequence": 17, "type": "order.created", "again": None,
            "state": "delivered", "reason": None, "published_at": _AT, "stored_at": _AT,
            "ended_at": "2026-11-22T20:00:02.525Z",
            "attempts": [_FAILED, _DELIVERED], "attempts_total": 2, "repeats": [],
        }],
        "waiting": [{
            "receiver": "acme.slow", "again": None, "stored_at": _AT, "place": 273, "waiting": 273,
            "due_s": None, "why": "paused", "remedy": "POST /v1/tenants/acme/receivers/slow/resume",
        }],
        "why_none": None,
        "erased": None,
        "due": [{"due_at": _AT, "accepted_at": "2026-11-22T20:00:00.045Z", "late_s": 0.045}],
        "notes": [],
        "next_cursor": None,
        "ledger": _LEDGER,
    },
)  # fmt: skip
GET_HISTORY = _described(
    "Show a receiver's history, oldest first", HistoryPage, "A page of the history",
    {
        "receiver": "acme.billing",
        "entries": [{"at": _AT, "kind": "paused", "what": "paused", "detail": {}}],
        "now": "paused",
        "next_cursor": None,
        "ledger": _LEDGER,
    },
)  # fmt: skip
GET_AUDIT = _described(
    "Audit a receiver's rate: compare its attempts in every window with the limit in force", AuditDocument,
    "The verdict, and the busiest windows",
    {
        "receiver": "acme.billing", "verdict": "kept", "since": _AT, "until": "2026-11-22T21:00:00.000Z",
        "attempts": 2, "limits": [{"at": None, "per_second": 10.0, "burst": 10}],
        "windows": [{"length_s": 1.0, "at": "2026-11-22T20:00:00.120Z", "attempts": 1, "allowed": 20,
                     "exceeded": 0}],
        "chart": [{"at": "2026-11-22T20:00:00.120Z", "attempts": 2, "most": 1, "allowed": 20,
                   "learnt_min": None, "learnt_max": None, "limited_by": None}],
        "ledger": _LEDGER,
    },
)  # fmt: skip
GET_AUDIT["responses"] |= problems(409)
GET_TOP = _described(
    "List the worst receivers of a tenant: failing ones, and those with late events", WorstReceivers,
    "Up to `limit` failing and `limit` late receivers",
    {
        "failing": [{
            "receiver": "acme.billing", "failing_since": _AT, "failures": 3, "disabled": None,
            "last_attempt_at": _AT, "status": 503, "error": "HTTP 503",
        }],
        "late": [{
            "receiver": "acme.billing", "latest_s": 2.5, "mean_s": 0.8, "delivered": 17, "attempts": 20,
            "failed": 3,
        }],
        "within_s": 3600.0,
        "ledger": _LEDGER,
    },
)  # fmt: skip
