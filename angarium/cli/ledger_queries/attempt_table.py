"""Attempts, and receivers that fail or are late, as tables for people."""

import time
from typing import Any

from actors.times_as_text import age_text
from angarium import quantities

HEADINGS = ("at", "number", "attempt", "outcome", "took", "event")
CUT_COLUMNS = ("event", "outcome")


def cells(attempt: dict[str, Any]) -> list[Any]:
    """The row of an attempt, for people."""
    return [
        attempt["at"], attempt["sequence"] or "ping", attempt["attempt"], outcome(attempt),
        f"{attempt['latency_ms']:.0f} ms", attempt["event_id"],
    ]  # fmt: skip


def outcome(attempt: dict[str, Any]) -> str:
    """The status of the answer, with its meaning if that is not obvious, or the error."""
    status, verdict = attempt["status"], attempt["verdict"]
    if status is None:
        return str(attempt["error"] or verdict)
    return str(status) if verdict in ("delivered", "failed") else f"{status} {verdict}"


def failing_cells(row: dict[str, Any]) -> list[Any]:
    """The row of a receiver that fails, for people."""
    since = row["failing_since"]
    now = time.time()
    lasts = None if since is None else age_text(now - quantities.parse_time(since, now))
    last = row["error"] or (f"HTTP {row['status']}" if row["status"] else None)
    disabled = f"disabled ({row['disabled']}); " if row["disabled"] else ""
    if row["disabled"] and lasts is None:
        return ["disabled", row["receiver"], None, f"{disabled}{last or 'no attempt'}"]
    return [lasts, row["receiver"], row["failures"], f"{disabled}{last or 'no attempt'}"]


def late_cells(row: dict[str, Any]) -> list[Any]:
    """The row of a receiver whose events come late, for people."""
    return [
        quantities.seconds_text(row["latest_s"]),
        quantities.seconds_text(row["mean_s"]),
        row["receiver"],
        row["delivered"],
        row["failed"],
    ]
