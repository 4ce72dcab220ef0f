"""Points in time as text: RFC 3339, in UTC, with milliseconds."""

from datetime import UTC, datetime


def instant_text(at: float) -> str:
    """The time `at`, in seconds since the epoch, in RFC 3339, in UTC, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
