"""Answers of the ledger, as values: instants are milliseconds since 1970, UTC, or None."""

from msgspec import Struct

from angarium.ledger.schema import ALWAYS, DELIVERED


class Progress(Struct, frozen=True):
    """The reach of a ledger: all that was recorded up to `as_of`; at `seen_at` there was no more.

    `gaps` are the stretches of the journal that were gone before the ledger read them: since, until.
    """

    as_of: int
    seen_at: int
    gaps: tuple[tuple[int, int], ...]


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt; `sequence` is 0 for a ping, and for an event that was given up while it was on its way."""

    at: int
    sequence: int
    attempt: int
    verdict: int
    status: int | None
    error: str | None
    latency_us: int
    next_at: int | None
    event: str | None = None

    @property
    def failed(self) -> bool:
        return self.verdict != DELIVERED


class Delivery(Struct, frozen=True, kw_only=True):
    """One event on its way to one receiver, and all attempts at it that are on record.

    While it is under way `ended_at` is None; `ending` is None also where it ended within a gap. `count`
    counts its attempts.
    """

    receiver: str
    sequence: int
    event: str
    again: str | None
    stored_at: int
    ended_at: int | None
    ending: int | None
    reason: str | None
    count: int
    attempts: tuple[Attempt, ...]


class Filter(Struct, frozen=True, kw_only=True):
    """Attempts that are wanted: failed ones, with a status in a range, begun between two instants."""

    failed: bool = False
    status: tuple[int, int] | None = None
    since: int = 0
    until: int = ALWAYS
    limit: int = 100
