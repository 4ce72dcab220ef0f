"""Throughput and latency of a receiver by minute, and the sums of a tenant or of all."""

from msgspec import Struct

from angarium.ledger.ledger_answers import RecordedMinute, RecordedTotals
from angarium.operations.failures import operation
from angarium.operations.ledger_queries.ledger_access import (
    LedgerLag,
    OpenLedger,
    ledger_lag,
    number_of,
    text,
)


class Minute(Struct, frozen=True):
    """The attempts that began in a minute, and the events that were given up in it (`dead`).

    An attempt is of one event; several are in one of the `posts` if the receiver gets batches. Latency is
    that of an attempt; lateness the time from accepting an event to delivering it, null
    without any.
    """

    at: str
    attempts: int
    delivered: int
    failed: int
    throttled: int
    dead: int
    latency_ms: float | None
    latency_ms_max: float | None
    late_s: float | None
    late_s_max: float | None
    posts: int


class MinuteList(Struct, frozen=True):
    """Minutes, the oldest first; those in which nothing happened are left out."""

    receiver: str
    minutes: list[Minute]
    ledger: LedgerLag


@operation
async def find_minutes(ledger: OpenLedger, receiver: str, since: int, until: int) -> MinuteList:
    """List the minutes between two times. Fails as invalid and not_found."""
    number = await number_of(ledger, receiver)
    found = await minutes_of(ledger, number, since, until)
    return MinuteList(receiver, found, await ledger_lag(ledger))


async def minutes_of(ledger: OpenLedger, number: int, since: int, until: int) -> list[Minute]:
    """The minutes of a receiver between two times, by its number in the ledger."""
    return list(map(_minute, await ledger.queries.minutes(number, since, until)))


class FoundMinutes(Struct, frozen=True):
    """Minutes, the oldest first, and the time at which the later ones begin; None if these are all."""

    minutes: list[Minute]
    next: int | None
    ledger: LedgerLag


@operation
async def minutes_page(ledger: OpenLedger, receiver: str, since: int, until: int, limit: int) -> FoundMinutes:
    """List the first minutes between two times, at most `limit`. Fails as invalid and not_found."""
    number = await number_of(ledger, receiver)
    found = await ledger.queries.minutes(number, since, until, limit + 1)
    following = found[limit].at if len(found) > limit else None
    return FoundMinutes(list(map(_minute, found[:limit])), following, await ledger_lag(ledger))


class RecordedMinutes(Struct, frozen=True):
    """The minutes in which something happened at the receivers of a tenant, or at all, the oldest first."""

    minutes: list[RecordedTotals]
    ledger: LedgerLag


@operation
async def recorded_minutes(ledger: OpenLedger, tenant: str | None, since: int, until: int) -> RecordedMinutes:
    """List the sums of the minutes between two times, in milliseconds."""
    return RecordedMinutes(await ledger.queries.totals(since, until, tenant), await ledger_lag(ledger))


def _minute(each: RecordedMinute) -> Minute:
    tried, delivered = each.attempts > 0, each.delivered > 0
    return Minute(
        str(text(each.at)), each.attempts, each.delivered, each.failed, each.throttled, each.dead,
        latency_ms=round(each.latency_us / each.attempts / 1000, 3) if tried else None,
        latency_ms_max=each.latency_us_max / 1000 if tried else None,
        late_s=round(each.late_ms / each.delivered / 1000, 3) if delivered else None,
        late_s_max=each.late_ms_max / 1000 if delivered else None,
        posts=each.posts,
    )  # fmt: skip
