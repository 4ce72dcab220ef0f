"""The fleet, its problems and its alerts: what the operations on them answer, and their description."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from angarium.api.openapi.shared_texts import problems, result
from angarium.operations.installation.doctor.findings import ReceiverCondition
from angarium.operations.installation.doctor.raised_alerts import RaisedAlert
from angarium.operations.installation.fleet import FleetStatus, ShardStatus


class FoundProblem(Struct, frozen=True, kw_only=True):
    """A problem or an unhealthy receiver, as `angarium doctor` finds it, and its remedy.

    A `problem` lasts until an operator fixes it; a `warning` is about a receiver whose own answers slow it
    down, a tenant whose events wait to be routed, a drained node, or nodes of different versions. A finding
    about one receiver names it.
    """

    level: Literal["warning", "problem"]
    subject: str
    text: str
    remedy: str
    receiver: str | None
    condition: ReceiverCondition | None


class AlertsAndFindings(Struct, frozen=True, kw_only=True):
    """The alerts about receivers that are raised, and what `angarium doctor` finds.

    `as_of` is the time of the checks. `alerts` are recorded and not over: the latest first, 1,000 at
    most; `alerts_total` is their number. `findings` are all problems, then the worst of the unhealthy
    receivers.
    """

    as_of: datetime
    alerts: list[RaisedAlert]
    alerts_total: int
    findings: list[FoundProblem]


class Shards(Struct, frozen=True):
    """All shards, in order."""

    shards: list[ShardStatus]


LIST_NODES: dict[str, Any] = {
    "summary": "List the live nodes",
    "tags": ["fleet"],
    "responses": {
        200: result(FleetStatus, "The nodes whose heartbeat has not expired", {
            "nodes": [{
                "node": "n1", "version": "1.0.0", "started_at": "2026-11-22T20:00:00Z", "ttl_s": 5.0,
                "shards_owned": 32, "shards_wanted": 32, "draining": False,
                "outage": False,
            }],
            "problems": [], "shards_unowned": 0, "unowned_since": None,
        }),
        **problems(),
    },
}  # fmt: skip
LIST_ALERTS: dict[str, Any] = {
    "summary": "List the raised alerts about receivers, and the findings of `angarium doctor`",
    "tags": ["fleet"],
    "responses": {
        200: result(AlertsAndFindings, "The alerts and the findings; empty lists if all is well", {
            "as_of": "2026-11-22T20:00:00Z",
            "alerts": [{
                "receiver": "acme.billing", "alert": "offline", "raised_at": "2026-11-22T18:05:00Z",
            }],
            "alerts_total": 1,
            "findings": [{
                "level": "warning", "subject": "receivers",
                "text": "acme.billing is offline, failing for 2h; 1,204 events wait, the oldest for 2h",
                "remedy": "find the reason in its state", "receiver": "acme.billing",
                "condition": "offline",
            }],
        }),
        **problems(),
    },
}  # fmt: skip
LIST_SHARDS: dict[str, Any] = {
    "summary": "List the shards and their owners",
    "tags": ["fleet"],
    "responses": {
        200: result(Shards, "All shards and their owners", {
            "shards": [{
                "shard": 0, "node": "n1", "claimed_at": "2026-11-22T20:00:00Z", "alive": True,
                "refused": None, "waiting": 12, "oldest_at": "2026-11-22T20:14:59Z",
            }],
        }),
        **problems(),
    },
}  # fmt: skip
