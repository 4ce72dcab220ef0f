"""Points in time as text: RFC 3339, in UTC, with milliseconds."""

import math
from datetime import UTC, datetime
from functools import lru_cache


def instant_text(at: float) -> str:
    """The time `at`, in seconds since the epoch, in RFC 3339, in UTC, with milliseconds."""
    part, whole = math.modf(at)
    micros = round(part * 1e6)  # As `datetime.fromtimestamp` rounds, which takes three times as long.
    return f"{_second_text(int(whole) + micros // 1_000_000)}.{micros // 1000 % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    """The second in RFC 3339, without a zone. Cached: events of one second come together."""
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
