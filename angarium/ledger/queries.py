"""The queries of the ledger: each reads every block that may have its rows, the newest first.

The SQL is the same for SQLite and for PostgreSQL, placeholders are `?` or `?1`, `?2`.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec

from actors.machine.facts import EventDropped
from actors.machine.pace.pace import Pace
from angarium.ledger import schema
from angarium.ledger.batch import BaseRow
from angarium.ledger.fold import FoldedState, facts_in, fold
from angarium.ledger.ledger_answers import (
    AttemptFilter,
    Configured,
    DroppedDuplicate,
    LateReceiver,
    LedgerProgress,
    ReceiverSummary,
    RecordedAttempt,
    RecordedChange,
    RecordedDelivery,
    RecordedMinute,
    RecordedPace,
    RecordedTotals,
    Unknown,
)
from angarium.ledger.query_texts.attempts import ATTEMPTS, filtered

_EVENTS = """
WITH wanted(block, position, sequence) AS (VALUES {values})
SELECT d.block, d.position, d.sequence, d.event FROM wanted CROSS JOIN deliveries d
WHERE d.block = wanted.block AND d.position = wanted.position AND d.receiver = ?
    AND d.sequence = wanted.sequence
"""
_WANTED_EVENT = "(CAST(? AS bigint), CAST(? AS bigint), CAST(? AS bigint))"
EVENTS_PER_QUERY_MAX = 200
_EVENT_BEFORE = """
SELECT d.event FROM blocks b CROSS JOIN deliveries d
WHERE d.block = b.block AND d.position = ? AND d.receiver = ? AND d.sequence = ? ORDER BY b.block DESC LIMIT 1
"""
JOURNEY = """
SELECT r.name, d.sequence, d.event, d.again, d.stored_at, d.first_at, d.ended_at, d.ending, d.reason,
    d.attempts, d.type, d.published_at, d.receiver, d.position
FROM blocks b CROSS JOIN deliveries d {index} CROSS JOIN receivers r
WHERE d.block = b.block AND d.event = ?1 AND r.id = d.receiver AND r.name >= ?2 AND r.name < ?3
    AND (r.name, d.sequence) > (?4, ?5)
ORDER BY r.name, d.sequence LIMIT ?6
"""
COPIES = """
SELECT d.position FROM blocks b CROSS JOIN deliveries d {index}
WHERE d.block = b.block AND d.event = ?1 AND d.receiver = ?2 ORDER BY d.position DESC LIMIT ?3
"""
_TRANSFORMS = """
SELECT at, detail FROM changes WHERE receiver = ? AND kind = 'transform_set'
ORDER BY at, position, ordinal LIMIT ?
"""
_ATTEMPTS_OF = """
FROM blocks b CROSS JOIN attempts a
WHERE b.until >= ?2 AND b.since <= ?3 AND a.block = b.block AND a.receiver = ?1 AND a.at BETWEEN ?2 AND ?3
    AND a.sequence = ?4
"""
_ATTEMPTS_SHOWN = f"""
SELECT a.at, a.sequence, a.attempt, a.verdict, a.status, a.error, a.latency_us, a.next_at, a.answer, a.type
{_ATTEMPTS_OF}"""
_FIRST_ATTEMPTS = f"{_ATTEMPTS_SHOWN} ORDER BY a.at, a.position, a.ordinal LIMIT ?5"
_LAST_ATTEMPTS = f"{_ATTEMPTS_SHOWN} ORDER BY a.at DESC, a.position DESC, a.ordinal DESC LIMIT ?5"
_ATTEMPTS_COUNT = f"SELECT count(*) {_ATTEMPTS_OF}"
SHOWN_ATTEMPTS_MAX = 50
"""Number of attempts of a delivery that are shown from its beginning, and from its end."""
_STARTS = """
SELECT a.at FROM blocks b CROSS JOIN attempts a
WHERE b.until >= ? AND b.since < ? AND a.block = b.block AND a.receiver = ? AND a.at >= ? AND a.at < ?
ORDER BY a.at LIMIT ?
"""
_STANDING = """
    r.name, r.shard, r.failing_since, r.failures, r.disabled, r.paused, r.last_at, r.last_status, r.last_error
"""
_FAILING = f"""
SELECT {_STANDING} FROM receivers r
WHERE (failing_since IS NOT NULL OR disabled IS NOT NULL) AND name >= ? AND name < ?
ORDER BY failing_since IS NULL, failing_since, name LIMIT ?
"""
_LATE = """
SELECT r.name, sum(m.attempts), sum(m.delivered), sum(m.failed), sum(m.late_ms), max(m.late_ms_max)
FROM minutes m CROSS JOIN receivers r WHERE m.minute >= ? AND r.id = m.receiver AND r.name >= ? AND r.name < ?
GROUP BY m.receiver, r.name HAVING sum(m.delivered) > 0 ORDER BY max(m.late_ms_max) DESC, r.name LIMIT ?
"""
_FIRST_KNOWN = """
SELECT min(at) FROM (
    SELECT min(at) AS at FROM changes WHERE receiver = ?1
    UNION ALL SELECT min(at) FROM configurations WHERE receiver = ?1
    UNION ALL SELECT min(at) FROM states WHERE receiver = ?1
) AS known
"""
MINUTES_MAX = ROWS_MAX = 1 << 31
"""Minutes of one answer; a query without a limit gets all."""
_MINUTES = """
SELECT m.minute * 60000, sum(m.attempts), sum(m.delivered), sum(m.failed), sum(m.throttled), sum(m.dead),
    sum(m.latency_us), max(m.latency_us_max), sum(m.late_ms), max(m.late_ms_max), sum(m.posts)
FROM minutes m WHERE m.receiver = ?1 AND m.minute >= ?2 AND m.minute <= ?3 GROUP BY m.minute ORDER BY m.minute
LIMIT ?4
"""
MINUTES_ONE_BY_ONE_MAX = 1500
"""Minutes, a day, up to which each is looked up: their key begins with the minute, so a range of them has the
rows of all receivers."""
_FEW_MINUTES = _MINUTES.replace(
    "FROM minutes m WHERE",
    "FROM (WITH RECURSIVE asked(minute) AS (SELECT CAST(?2 AS bigint) UNION ALL "
    "SELECT minute + 1 FROM asked WHERE minute < ?3) SELECT minute FROM asked) AS span "
    "CROSS JOIN minutes m WHERE m.minute = span.minute AND",
)
_TOTALS = """
SELECT m.minute * 60000, sum(m.delivered), sum(m.failed), sum(m.throttled), sum(m.dead)
FROM minutes m WHERE m.minute >= ? AND m.minute <= ? GROUP BY m.minute ORDER BY m.minute
"""
TOTALS_OF = """
SELECT m.minute * 60000, sum(m.delivered), sum(m.failed), sum(m.throttled), sum(m.dead)
FROM receivers r CROSS JOIN minutes m WHERE r.name >= ? AND r.name < ? AND m.receiver = r.id
    AND m.minute IN ({minutes}) GROUP BY m.minute ORDER BY m.minute
"""
_BASE = "receiver, position, at, origin, state FROM states WHERE receiver = ? AND position >= ?"
_FACTS_UNTIL = """
SELECT f.position, f.at, f.facts FROM blocks b CROSS JOIN facts f
WHERE b.last > ?2 AND b.since <= ?3 AND f.block = b.block AND f.receiver = ?1 AND f.position > ?2
ORDER BY f.position
"""
_DUPLICATES_SINCE = """
SELECT at, facts FROM (
    SELECT f.position AS position, f.at AS at, f.facts AS facts FROM blocks b CROSS JOIN facts f
    WHERE b.until >= ?2 AND f.block = b.block AND f.receiver = ?1 AND f.at >= ?2
    ORDER BY f.position LIMIT ?3
) AS first WHERE facts LIKE '%"repeated"%' ORDER BY position
"""
DUPLICATES_FROM_MS = 61_000
"""Time before an event's first record from which on its duplicates are searched: an attempt may take 60 s."""
DUPLICATES_FLUSHES_MAX = 1000
"""Flushes of a receiver that are searched for duplicates; the dedup window is 256 events by default."""
DUPLICATES_DELIVERIES_MAX = 20
"""Deliveries of an event whose duplicates are searched; each costs a query."""
_PACE = "at, pace, per_second, in_flight, limited_by, in_flight_by"
_PACES = f"""
SELECT {_PACE} FROM paces WHERE receiver = ? AND at >= ? AND at < ? ORDER BY at, position, ordinal LIMIT ?
"""
_PACE_BEFORE = f"""
SELECT {_PACE} FROM paces WHERE receiver = ? AND at < ? ORDER BY at DESC, position DESC, ordinal DESC LIMIT 1
"""
PACE_HOUR_MS = 3_600_000
_PACE_CHANGES = f"""
SELECT {_PACE} FROM (
    SELECT p.*, lag(p.at) OVER earlier AS at_before, lag(p.per_second) OVER earlier AS rate_before,
        lag(p.in_flight) OVER earlier AS in_flight_before, lag(p.limited_by) OVER earlier AS by_before,
        lag(p.in_flight_by) OVER earlier AS in_flight_by_before
    FROM paces p WHERE p.receiver = ?1 AND p.at >= ?2 AND p.at < ?3
    WINDOW earlier AS (ORDER BY p.at, p.position, p.ordinal)
) AS told
WHERE at >= ?4 AND (at_before IS NULL OR at / {PACE_HOUR_MS} <> at_before / {PACE_HOUR_MS}
    OR limited_by <> by_before OR in_flight_by <> in_flight_by_before
    OR per_second > 1.5 * rate_before OR rate_before > 1.5 * per_second
    OR in_flight > 1.5 * in_flight_before OR in_flight_before > 1.5 * in_flight)
ORDER BY at, position, ordinal LIMIT ?5
"""
"""Paces that differ much from the one before, and the first of each hour. One from an earlier hour decides
nothing, so none is read: the choice is the same for any beginning of the period."""
_BLOCKS = "SELECT b.block FROM blocks b WHERE b.until >= ? AND b.since < ? ORDER BY b.block DESC"
_GAPS = """
SELECT last, since, until, first FROM gaps WHERE share = ? AND since < ? ORDER BY first
"""


_decode_pace = msgspec.json.Decoder(Pace).decode


class LedgerReader(Protocol):
    """The tables, as queries read them."""

    shares: int
    """The number of shares into which the shards are divided."""

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query. Raises LedgerError."""

    def by(self, index: str) -> str:
        """The SQL that makes a query use an index."""


class LedgerQueries:
    """The ledger for readers, created by `open_for_queries`."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    async def progress(self, stream: str) -> LedgerProgress:
        rows = await self.rows("SELECT stored_at, seen_at FROM positions WHERE stream = ?", stream)
        stored_at, seen_at = min(rows, key=lambda row: max(row[0] * 1000, row[1])) if rows else (0.0, 0)
        gaps = await self.rows("SELECT DISTINCT since, until FROM gaps ORDER BY since")
        ((kept_since,),) = await self.rows("SELECT at FROM pruned")
        return LedgerProgress(
            round(stored_at * 1000), seen_at, tuple((since, until) for since, until in gaps), kept_since
        )

    async def receiver(self, name: str) -> int | None:
        """The number of a receiver; None if the ledger has nothing of it."""
        rows = await self.rows("SELECT id FROM receivers WHERE name = ?", name)
        return rows[0][0] if rows else None

    async def attempts(self, receiver: int, wanted: AttemptFilter) -> list[RecordedAttempt]:
        """Attempts at a receiver, the newest first.

        A block that ended before the oldest attempt found so far began cannot have a newer one.
        """
        index, only, values = filtered(wanted)
        query = ATTEMPTS.format(index=self._reader.by(index) if index else "", only=only)
        blocks = [block for (block,) in await self.rows(_BLOCKS, wanted.since, wanted.until)]
        found: list[Any] = []
        since, start, count = wanted.since, 0, 1
        while start < len(blocks):
            some = blocks[start : start + count]
            found += await self.rows(
                query, some[-1], some[0], since, wanted.until, receiver, since, wanted.until, *values,
                wanted.limit,
            )  # fmt: skip
            if len(found) >= wanted.limit:
                found = sorted(found, key=lambda row: -row[0])[: wanted.limit]
                since = found[-1][0]
            start, count = start + count, 2 * count
        found.sort(key=lambda row: -row[0])
        keys = [(row[11], row[10], row[1]) for row in found]
        events = await self._events(receiver, keys)
        return [_attempt(row, events.get(key)) for row, key in zip(found, keys, strict=True)]

    async def journey(
        self,
        event: str,
        tenant: str | None = None,
        after: tuple[str, int] = ("", 0),
        limit: int | None = None,
        attempts_max: int = ROWS_MAX,
    ) -> list[RecordedDelivery]:
        """The deliveries of an event to a tenant's receivers or to all, by receiver and sequence.

        Only those `after` a receiver's sequence, at most `limit`; each with its first and last attempts. The
        one with which there are more than `attempts_max` attempts is the last, unless it is the first.
        """
        size = 0
        found, most = list[RecordedDelivery](), schema.END_OF_TIME if limit is None else limit
        query = JOURNEY.format(index=self._reader.by("deliveries_event"))
        rows = await self.rows(query, event, *_names_of(tenant), *after, most)
        originals = {(row[0], row[-1]) for row in rows if row[3] is None}
        for *members, receiver, position in rows:
            name, sequence, event_id, again, stored_at, first_at, *rest = members
            ended_at, ending, reason, count, kind, published_at = rest
            attempts, total = list[Any](), 0
            if first_at is not None:
                end = schema.END_OF_TIME if ended_at is None else ended_at
                attempts, total = await self._attempts_of(receiver, first_at, end, sequence)
            repeats: list[DroppedDuplicate] = []
            if again is None and len(found) < DUPLICATES_DELIVERIES_MAX:
                later = [at for of, at in originals if of == name and at > position]
                up_to = min(later, default=schema.END_OF_TIME)
                dropped = await self._dropped_duplicates(
                    receiver, event_id, first_at or ended_at or stored_at
                )
                repeats = [each for each in dropped if position < each.position < up_to]
            found.append(RecordedDelivery(
                receiver=name, sequence=sequence, event=event_id, again=again, stored_at=stored_at,
                published_at=stored_at if published_at is None else published_at,
                ended_at=ended_at, ending=ending, reason=reason, count=count,
                type=kind, attempts=tuple(_attempt(row, event_id) for row in attempts), attempts_total=total,
                repeats=tuple(repeats),
            ))  # fmt: skip
            size += len(attempts)
            if size > attempts_max and len(found) > 1:
                break
        return found

    async def copies(self, event: str, receiver: int, limit: int) -> list[int]:
        """The positions of the last copies of an event for a receiver, the newest first."""
        query = COPIES.format(index=self._reader.by("deliveries_event"))
        return [position for (position,) in await self.rows(query, event, receiver, limit)]

    async def transforms(self, receiver: int, limit: int) -> list[tuple[int, int]]:
        """The first transforms of a receiver: instants, and revisions of their configurations; 0: none."""
        rows = await self.rows(_TRANSFORMS, receiver, limit)
        return [(at, msgspec.json.decode(detail).get("revision", 0)) for at, detail in rows]

    async def _attempts_of(self, *delivery: int) -> tuple[list[Any], int]:
        """The first and the last attempts of a delivery, in their order, and how many there are."""
        attempts = await self.rows(_FIRST_ATTEMPTS, *delivery, SHOWN_ATTEMPTS_MAX + 1)
        if len(attempts) <= SHOWN_ATTEMPTS_MAX:
            return attempts, len(attempts)
        ((total,),) = await self.rows(_ATTEMPTS_COUNT, *delivery)
        last = await self.rows(_LAST_ATTEMPTS, *delivery, min(SHOWN_ATTEMPTS_MAX, total - SHOWN_ATTEMPTS_MAX))
        return attempts[:SHOWN_ATTEMPTS_MAX] + last[::-1], total

    async def _dropped_duplicates(self, receiver: int, event: str, since: int) -> list[DroppedDuplicate]:
        """The first messages that the receiver did not get, since it already had one with that id."""
        rows = await self.rows(
            _DUPLICATES_SINCE, receiver, since - DUPLICATES_FROM_MS, DUPLICATES_FLUSHES_MAX
        )
        return [
            DroppedDuplicate(at, fact.position)
            for at, text in rows
            for fact in facts_in(text)
            if isinstance(fact, EventDropped) and fact.id == event and not fact.reason
        ]

    async def starts(self, receiver: int, since: int, until: int, limit: int) -> list[int]:
        """The times at which attempts began, pings included, in order."""
        rows = await self.rows(_STARTS, since, until, receiver, since, until, limit)
        return [at for (at,) in rows]

    async def changes(
        self, receiver: int, since: int = 0, until: int = schema.END_OF_TIME, limit: int = ROWS_MAX
    ) -> list[RecordedChange]:
        """The first changes of a receiver from a time on and before another, in their order."""
        query = (
            "SELECT at, kind, detail FROM changes WHERE receiver = ? AND at >= ? AND at < ? "
            "ORDER BY at, position, ordinal LIMIT ?"
        )
        rows = await self.rows(query, receiver, since, until, limit)
        return [RecordedChange(at, kind, msgspec.json.decode(detail)) for at, kind, detail in rows]

    async def changes_before(self, receiver: int, at: int, limit: int) -> list[RecordedChange]:
        """The last changes of a receiver before a time, in their order."""
        query = (
            "SELECT at, kind, detail FROM changes WHERE receiver = ? AND at < ? "
            "ORDER BY at DESC, position DESC, ordinal DESC LIMIT ?"
        )
        rows = await self.rows(query, receiver, at, limit)
        return [RecordedChange(at, kind, msgspec.json.decode(detail)) for at, kind, detail in reversed(rows)]

    async def paces(self, receiver: int, since: int, until: int, limit: int) -> list[RecordedPace]:
        """The paces that were learnt from a time on and before another, after the last one before it."""
        before = await self.rows(_PACE_BEFORE, receiver, since)
        return list(map(_recorded_pace, before + await self.rows(_PACES, receiver, since, until, limit)))

    async def pace_changes(self, receiver: int, since: int, until: int, limit: int) -> list[RecordedPace]:
        """The first paces between two times that differ much from the one before, or begin an hour."""
        rows = await self.rows(_PACE_CHANGES, receiver, since - PACE_HOUR_MS, until, since, limit)
        return list(map(_recorded_pace, rows))

    async def configurations(self, receiver: int, since: int, until: int, limit: int) -> list[Configured]:
        """The first configurations that were put from a time on and before another, in their order."""
        query = (
            "SELECT at, revision, document, changed_by, replaced FROM configurations "
            "WHERE receiver = ? AND at >= ? AND at < ? ORDER BY at, revision LIMIT ?"
        )
        return [Configured(*row) for row in await self.rows(query, receiver, since, until, limit)]

    async def configurations_before(self, receiver: int, at: int, limit: int) -> list[Configured]:
        """The last configurations that were put before a time, the newest first."""
        query = (
            "SELECT at, revision, document, changed_by, replaced FROM configurations "
            "WHERE receiver = ? AND at < ? ORDER BY at DESC, revision DESC LIMIT ?"
        )
        return [Configured(*row) for row in await self.rows(query, receiver, at, limit)]

    async def standing(self, receiver: int) -> ReceiverSummary:
        """The current condition of a receiver."""
        return ReceiverSummary(
            *(await self.rows(f"SELECT {_STANDING} FROM receivers r WHERE id = ?", receiver))[0]
        )

    async def last_existence(self, receiver: int) -> str:
        """The kind of the last fact that says whether a receiver exists; empty if none is known."""
        query = (
            "SELECT kind FROM changes WHERE receiver = ? AND kind IN ('opened', 'removed') "
            "ORDER BY at DESC, position DESC, ordinal DESC LIMIT 1"
        )
        rows = await self.rows(query, receiver)
        return rows[0][0] if rows else ""

    async def failing(self, limit: int, tenant: str | None = None) -> list[ReceiverSummary]:
        """The failing receivers, the longest outage first, and the disabled ones."""
        rows = await self.rows(_FAILING, *_names_of(tenant), limit)
        return [ReceiverSummary(*row) for row in rows]

    async def late(self, since: int, limit: int, tenant: str | None = None) -> list[LateReceiver]:
        """The receivers whose events were delivered latest since a time."""
        rows = await self.rows(_LATE, since // 60_000, *_names_of(tenant), limit)
        return [LateReceiver(*row) for row in rows]

    async def minutes(
        self, receiver: int, since: int, until: int, limit: int = MINUTES_MAX
    ) -> list[RecordedMinute]:
        """The attempts to a receiver by minute, in their order; minutes without any are left out."""
        first, last = since // 60_000, (until - 1) // 60_000
        query = _FEW_MINUTES if last - first < MINUTES_ONE_BY_ONE_MAX else _MINUTES
        rows = await self.rows(query, receiver, first, last, limit)
        return [RecordedMinute(*map(int, row)) for row in rows]

    async def totals(self, since: int, until: int, tenant: str | None = None) -> list[RecordedTotals]:
        """The attempts to a tenant's receivers, or to all, by minute; minutes without any are left out."""
        first, last = since // 60_000, (until - 1) // 60_000
        query, values = _TOTALS, tuple[int | str, ...]((first, last))
        if tenant is not None:
            query = TOTALS_OF.format(minutes=", ".join("?" * (last + 1 - first)))
            values = (*_names_of(tenant), *range(first, last + 1))
        return [RecordedTotals(*map(int, row)) for row in await self.rows(query, *values)]

    async def owner(self, shard: int, at: int) -> str:
        """The node that owned a shard at a time; empty if that is not known."""
        query = "SELECT node FROM claims WHERE shard = ? AND at <= ? ORDER BY position DESC LIMIT 1"
        rows = await self.rows(query, shard, at)
        return rows[0][0] if rows else ""

    async def unclean_claims(self, shard: int, since: int, until: int, limit: int) -> list[tuple[int, str]]:
        """The first claims of a shard between two times after an owner that had died: instant and node."""
        query = (
            "SELECT at, node FROM claims WHERE shard = ? AND clean = 0 AND at >= ? AND at < ? "
            "ORDER BY at, position LIMIT ?"
        )
        return [(at, node) for at, node in await self.rows(query, shard, since, until, limit)]

    async def first_known(self, receiver: int) -> int:
        """The time of the first thing that is known of a receiver; 0 if nothing is."""
        return int((await self.rows(_FIRST_KNOWN, receiver))[0][0] or 0)

    async def moment(self, receiver: int, name: str, at: int) -> FoldedState | Unknown:
        """The state of a receiver at a time: facts folded over the last base state before it.

        A block may be dropped between the queries. `pruned` says so first, and then they are made again.
        """
        while True:
            pruned = await self._pruned()
            state = await self._moment(receiver, name, at, pruned)
            if await self._pruned() == pruned:
                return state

    async def _pruned(self) -> int:
        """The last position that was dropped, or is being dropped."""
        ((position,),) = await self.rows("SELECT position FROM pruned")
        return int(position)

    async def _moment(self, receiver: int, name: str, at: int, pruned: int) -> FoldedState | Unknown:
        ((shard,),) = await self.rows("SELECT shard FROM receivers WHERE id = ?", receiver)
        gaps = await self.rows(_GAPS, shard % self._reader.shares, at)
        if gaps and at < gaps[-1][2]:
            return Unknown(gaps[-1][1], gaps[-1][2])
        found = await self.rows(f"SELECT {_BASE} AND at <= ? ORDER BY position DESC LIMIT 1", receiver, 0, at)
        base = BaseRow(*found[0]) if found else None
        known_to = base.position if base else -1
        later = await self.rows(f"SELECT {_BASE} ORDER BY position LIMIT 1", receiver, known_to + 1)
        if later:
            _, position, known_from, origin, _ = later[0]
            # Facts are missing before a base that is kept from what was pruned, before a snapshot, and where
            # those after a gap were pruned.
            missing = base is None or (bool(gaps) and known_to < gaps[-1][0])
            dropped = any(known_to < last and first <= pruned for last, _, _, first in gaps)
            if position <= pruned or (origin == "snapshot" and missing) or dropped:
                return Unknown(0, known_from)
        rows = await self.rows(_FACTS_UNTIL, receiver, max(0, known_to), at)
        return fold(name, base, rows, at)

    async def _events(
        self, receiver: int, keys: Sequence[tuple[int, int, int]]
    ) -> dict[tuple[int, int, int], str]:
        """The ids of the events of attempts, by block, position and number; a ping has no event.

        A delivery may have its row in an earlier block than an attempt.
        """
        wanted, found = [*dict.fromkeys(key for key in keys if key[2])], dict[tuple[int, int, int], str]()
        for start in range(0, len(wanted), EVENTS_PER_QUERY_MAX):
            some = wanted[start : start + EVENTS_PER_QUERY_MAX]
            query = _EVENTS.format(values=", ".join([_WANTED_EVENT] * len(some)))
            for block, position, sequence, event in await self.rows(query, *chain(*some), receiver):
                found[block, position, sequence] = event
        for key in wanted:
            if key not in found and (rows := await self.rows(_EVENT_BEFORE, key[1], receiver, key[2])):
                found[key] = rows[0][0]
        return found

    async def rows(self, query: str, *values: Any) -> list[Any]:
        return await self._reader.rows(query, *values)


def _names_of(tenant: str | None) -> tuple[str, str]:
    """The least name of a tenant's receivers, and the one that follows the greatest; None: of all."""
    return ("", chr(0x10FFFF)) if tenant is None else (f"{tenant}.", f"{tenant}/")


def _attempt(row: Any, event: str | None) -> RecordedAttempt:
    at, sequence, attempt, verdict, status, error, latency_us, next_at, answer, kind, *_ = row
    return RecordedAttempt(
        at=at, sequence=sequence, attempt=attempt, verdict=verdict, status=status, error=error,
        latency_us=latency_us, next_at=next_at, answer=answer, type=kind, event=event,
    )  # fmt: skip


def _recorded_pace(row: Any) -> RecordedPace:
    at, pace, *limits = row
    return RecordedPace(at, _decode_pace(pace), *limits)
