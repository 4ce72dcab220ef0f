"""The tables of `angarium receiver list` and `angarium top`: all columns, or those that 80 columns hold."""

from collections.abc import Collection
from typing import Any

import msgspec

from actors.times_as_text import age_text
from angarium import quantities
from angarium.operations.receiver_list.listing import ListedReceiver
from streams.journal_feed.recent_flushes import RECENT_SPAN_S

HEADINGS = (
    "receiver", "url", "order", "rate", "signed", "paused", "problem", "phase", "waiting", "oldest", "in",
    "out", "empty in", "limit",
)  # fmt: skip
NARROW_COLUMNS = ("receiver", "phase", "waiting", "oldest", "rate", "url")
CUT_COLUMNS = ("url", "receiver")
TOP_COLUMNS = ("receiver", "phase", "waiting", "oldest", "in", "out", "empty in", "limit")
TOP_CUT = ("receiver",)

NOT_KNOWN_YET = "?"

_LIMITS = {
    "rate": "its rate", "pace": "its pace", "latency": "its latency", "node": "our nodes",
    "failure": "failures", "throttle": "it throttles", "pause": "a pause", "batch": "its batch",
    "unknown": NOT_KNOWN_YET,
}  # fmt: skip


def cells(row: ListedReceiver, headings: Collection[str], now: float) -> list[Any]:
    """The row for people: the oldest event by its age."""
    age_s = 0.0 if row.oldest_at is None else now - quantities.parse_time(row.oldest_at, now)
    members = msgspec.structs.asdict(row) | {
        "oldest": None if row.oldest_at is None else age_text(age_s),
        "waiting": NOT_KNOWN_YET if row.waiting is None and row.phase is not None else row.waiting,
        "in": _per_second(row.in_per_s),
        "out": _per_second(row.out_per_s),
        "empty in": _empty_in(row, age_s),
        "limit": row.limited_by and _LIMITS[row.limited_by],
    }
    return [members[heading] for heading in headings]


def _per_second(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def _empty_in(row: ListedReceiver, age_s: float) -> str | None:
    """The time until nothing waits; `never` if more comes than goes, `?` if that is measured too short."""
    if row.empty_in_s is not None:
        return age_text(row.empty_in_s) if row.waiting else None
    if not row.waiting or row.limited_by is None:
        return None
    at_work = row.limited_by in ("rate", "pace", "latency", "node", "unknown")
    return NOT_KNOWN_YET if at_work and age_s < RECENT_SPAN_S else "never"
