"""Replays and jobs: what the operations on them take and answer, and their description."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from angarium.api.openapi.shared_texts import body, header_parameter, operation, problems, result
from angarium.operations.jobs.plans import JobDocument
from angarium.operations.replays.preview import Preview

TYPES_MAX = 16


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events to send again: stored from `since` on and before `until`, of some types or all.

    `rate` limits how fast events are sent, such as 10/second; `dry_run` only shows the events.
    """

    since: Annotated[datetime, Meta(tz=True)]
    until: Annotated[datetime, Meta(tz=True)] | None = None
    types: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=TYPES_MAX)] = ()
    rate: Annotated[str, Meta(max_length=64)] = "100/second"
    dry_run: bool = False


class JobPage(Struct, frozen=True, kw_only=True):
    """Jobs, newest first; without a `next_cursor` this is the last page."""

    jobs: list[JobDocument]
    next_cursor: str | None


_REQUEST = {"since": "2026-11-22T18:00:00Z", "types": ["order.*"], "rate": "50/second"}
_JOB = {
    "id": "replay.acme.billing.9f86d081884c7d65", "kind": "replay", "tenant": "acme",
    "receiver": "acme.billing", "origin": "http", "by": "token k3f6w2m5qzra", "state": "running",
    "began_at": "2026-11-22T20:00:00.000Z", "ended_at": None,
    "looked_at": 512, "total": 20000, "sent": 498, "left": {"too_large": 1},
    "kept_since": "2026-11-22T19:00:00.000Z", "purged": False, "mark": "replay-0a1b2c3d4e5f", "why": None,
}  # fmt: skip
_EXAMPLE = {
    "receiver": "acme.billing", "events": 498, "bytes": 20480, "types": {"order.created": 498},
    "oldest_at": "2026-11-22T19:00:00.000Z", "newest_at": "2026-11-22T20:00:00.000Z", "kept_since": None,
    "left": {"not_settled_yet": 2},
}  # fmt: skip
KEY = header_parameter(
    "Idempotency-Key", "A repeat with the same key returns the same job, and begins no other.", "order-7"
)
ACCEPTED = result(JobDocument, "The job continues in the background; `Location` names it", _JOB)
REPLAY_EVENTS: dict[str, Any] = {
    "summary": "Send a receiver past events again",
    "description": "Each event is sent exactly once more, with a new number and its old id, even if a "
    "process dies. A receiver has one replay at a time. If one is unfinished, the answer is 409 and "
    "`Location` names it. A tenant has at most 256 unfinished replays; it gets 429 for more.",
    "tags": ["jobs"],
    "operation_class": operation(
        body("The events to send.", {"application/json": _REQUEST}, "ReplayRequest"), [KEY]
    ),
    "responses": {
        200: result(Preview, "With `dry_run`: the events that would be sent", _EXAMPLE),
        202: ACCEPTED,
        **problems(408, 409, 413, 415, 422, 429),
    },
}
LIST_JOBS: dict[str, Any] = {
    "summary": "List the jobs of the token's tenant, newest first",
    "description": "With a token for all tenants, the jobs of all. Each receiver's last replay and each "
    "tenant's last redrive are shown, until seven days after their end; and each receiver's last replay that "
    "was begun on the command line.",
    "tags": ["jobs"],
    "responses": {
        200: result(JobPage, "A page of jobs", {
            "jobs": [_JOB], "next_cursor": "1795377600120000-replay.acme.billing.9f86d081884c7d65",
        }),
        **problems(),
    },
}  # fmt: skip
GET_JOB: dict[str, Any] = {
    "summary": "Show a job",
    "description": "Each receiver's last replay and each tenant's last redrive are shown, until seven "
    "days after their end.",
    "tags": ["jobs"],
    "responses": {200: result(JobDocument, "The job and its progress", _JOB), **problems()},
}
STOP_JOB: dict[str, Any] = {
    "summary": "Stop a job",
    "description": "The job stops within seconds, when its process notices. Events that were sent stay sent.",
    "tags": ["jobs"],
    "responses": {
        200: result(JobDocument, "The job, stopping or ended", _JOB | {"state": "stopping"}),
        **problems(409),
    },
}  # fmt: skip
