"""Times in queries: RFC 3339 only, not seconds."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from angarium.api.problems import Fault, invalid

Moment = Annotated[
    str | None,
    QueryParameter(
        schema_extra={"format": "date-time"}, description="A time as in RFC 3339; in UTC if it has no zone."
    ),
]

LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""A time with a zone behind UTC may be in the year 10000 of UTC, which no text can say."""


def moment(name: str, text: str | None) -> datetime | None:
    """The time in a parameter, if it is given. Raises `ProblemRaised`."""
    if text is None:
        return None
    try:
        # In a query a + that is not encoded is a space.
        found = msgspec.convert(text.replace(" ", "+"), datetime)
    except msgspec.ValidationError:
        detail = f"{name} must be a time as in RFC 3339, such as 2026-11-22T20:00:00Z"
        raise invalid(Fault(parameter=name, detail=detail)) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def milliseconds(at: datetime) -> int:
    """A time as the ledger stores it, from 1970 to 9999."""
    return round(seconds(at) * 1000)


def seconds(at: datetime) -> float:
    """A time in seconds since the epoch, from 1970 to 9999; without a zone it is in UTC."""
    return min(max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()), LATEST)
