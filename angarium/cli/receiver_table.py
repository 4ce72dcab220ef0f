"""The table of `angarium receiver list`: all columns, or those that 80 columns have room for."""

from collections.abc import Collection
from typing import Any

import msgspec

from angarium import quantities
from angarium.operations.receivers.listing import ListedReceiver

HEADINGS = (
    "receiver", "url", "order", "rate", "signed", "paused", "problem", "phase", "waiting", "oldest",
)  # fmt: skip
NARROW_COLUMNS = ("receiver", "phase", "waiting", "oldest", "rate", "url")
CUT_COLUMNS = ("url", "receiver")


def cells(row: ListedReceiver, headings: Collection[str], now: float) -> list[Any]:
    """The row for people: the oldest event by its age."""
    age = None
    if row.oldest_at is not None:
        age = quantities.age_text(now - quantities.instant(row.oldest_at, now))
    members = msgspec.structs.asdict(row) | {"oldest": age}
    return [members[heading] for heading in headings]
