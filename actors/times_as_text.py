"""Times as text: points in RFC 3339, in UTC, with milliseconds; spans as flags take them."""

import math
from datetime import UTC, datetime
from functools import lru_cache


def instant_text(at: float) -> str:
    """The time `at`, in seconds since the epoch, in RFC 3339, in UTC, with milliseconds."""
    part, whole = math.modf(at)
    micros = round(part * 1e6)  # As `datetime.fromtimestamp` rounds, which takes three times as long.
    return f"{_second_text(int(whole) + micros // 1_000_000)}.{micros // 1000 % 1000:03d}Z"


def exact_instant_text(at: float) -> str:
    """The time `at` as `instant_text`, with microseconds if it has any."""
    part, whole = math.modf(at)
    second, micros = divmod(int(whole) * 1_000_000 + round(part * 1e6), 1_000_000)
    return f"{_second_text(second)}.{micros:06d}Z" if micros % 1000 else instant_text(at)


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    """The second in RFC 3339, without a zone. Cached: events of one second come together."""
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


def instant_text_or_none(at: float | None) -> str | None:
    """The time in RFC 3339, or None for None."""
    return None if at is None else instant_text(at)


def age_text(seconds: float) -> str:
    """A span of time for people, as flags take it: `45s`, `12m`, `3h`, `2d`."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
