"""Replays and jobs: what the operations on them take and answer, and their description."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from angarium.api.openapi.parts import body, header_parameter, operation, problems, result
from angarium.operations.jobs.plans import JobDocument
from angarium.operations.replay import Preview

TYPES_MAX = 16


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events to send again: stored since a time and before another, of some types or all.

    `rate` is the most that goes out, such as 10/second; `dry_run` shows what would go out, and sends nothing.
    """

    since: Annotated[datetime, Meta(tz=True)]
    until: Annotated[datetime, Meta(tz=True)] | None = None
    types: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=TYPES_MAX)] = ()
    rate: Annotated[str, Meta(max_length=64)] = "100/second"
    dry_run: bool = False


class JobPage(Struct, frozen=True, kw_only=True):
    """Jobs, the newest first; without a `next_cursor` they are the last."""

    jobs: list[JobDocument]
    next_cursor: str | None


_ASKED = {"since": "2026-11-22T18:00:00Z", "types": ["order.*"], "rate": "50/second"}
_JOB = {
    "id": "replay.acme.billing.9f86d081884c7d65", "kind": "replay", "tenant": "acme",
    "receiver": "acme.billing", "state": "running", "began_at": "2026-11-22T20:00:00.000Z", "ended_at": None,
    "looked_at": 512, "total": 20000, "sent": 498, "left": {"too_large": 1},
    "kept_since": "2026-11-22T19:00:00.000Z", "purged": False, "mark": "replay-0a1b2c3d4e5f", "why": None,
}  # fmt: skip
_SHOWN = {
    "receiver": "acme.billing", "events": 498, "bytes": 20480, "types": {"order.created": 498},
    "oldest_at": "2026-11-22T19:00:00.000Z", "newest_at": "2026-11-22T20:00:00.000Z", "kept_since": None,
}  # fmt: skip
KEY = header_parameter("Idempotency-Key", "The same key gets the same job, and begins no other.", "order-7")
ACCEPTED = result(JobDocument, "It continues in the background; Location names it", _JOB)
REPLAY_EVENTS: dict[str, Any] = {
    "summary": "Send a receiver again what it was sent",
    "description": "Each event is a new delivery, once, under a new number, with its old id; also if a "
    "process dies. A receiver has one replay at a time: 409, with its place in Location, where one is not "
    "finished.",
    "tags": ["jobs"],
    "operation_class": operation(
        body("The events that are wanted.", {"application/json": _ASKED}, "ReplayRequest"), [KEY]
    ),
    "responses": {
        200: result(Preview, "With dry_run: what would be sent", _SHOWN),
        202: ACCEPTED,
        **problems(408, 409, 413, 415, 422),
    },
}
LIST_JOBS: dict[str, Any] = {
    "summary": "List the jobs of the token's tenant, the newest first",
    "description": "With a token for all tenants those of all. Of each receiver's replays, and of each "
    "tenant's redrives, the last one is shown, for seven days after its end.",
    "tags": ["jobs"],
    "responses": {
        200: result(JobPage, "A page of them", {
            "jobs": [_JOB], "next_cursor": "1795377600120000-replay.acme.billing.9f86d081884c7d65",
        }),
        **problems(),
    },
}  # fmt: skip
GET_JOB: dict[str, Any] = {
    "summary": "Show a job",
    "description": "Of each receiver's replays, and of each tenant's redrives, the last one is shown, for "
    "seven days after its end.",
    "tags": ["jobs"],
    "responses": {200: result(JobDocument, "How far it has come", _JOB), **problems()},
}
STOP_JOB: dict[str, Any] = {
    "summary": "Stop a job",
    "description": "The job stops within seconds, when its process notices. "
    "What was sent stays sent.",
    "tags": ["jobs"],
    "responses": {
        200: result(JobDocument, "It stops, or has ended", _JOB | {"state": "stopping"}), **problems(409),
    },
}  # fmt: skip
