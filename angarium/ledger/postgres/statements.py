"""The statements by which the ledger is written in PostgreSQL. Many rows go as one array a column."""

RECEIVERS = """
SELECT name, id, shard, failing_since, failures, disabled, paused, last_at, last_status, last_error,
    facts_since, bytes_since, base_bytes, based_at, last_position
FROM receivers WHERE name = ANY(?)
"""
NEW_RECEIVERS = """
INSERT INTO receivers (name, shard) SELECT * FROM unnest(?::text[], ?::int[]) ON CONFLICT DO NOTHING
"""
OPEN = """
SELECT receiver, sequence, block, position FROM deliveries WHERE ended_at IS NULL AND receiver = ANY(?)
"""
TOUCHED = """
UPDATE receivers r SET shard = n.shard, failing_since = n.failing_since, failures = n.failures,
    disabled = n.disabled, paused = n.paused, last_at = n.last_at, last_status = n.last_status,
    last_error = n.last_error, facts_since = n.facts_since, bytes_since = n.bytes_since,
    base_bytes = n.base_bytes, based_at = n.based_at, last_position = n.last_position
FROM unnest(?::int[], ?::int[], ?::bigint[], ?::int[], ?::text[], ?::smallint[], ?::bigint[], ?::int[],
    ?::text[], ?::int[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])
    AS n(id, shard, failing_since, failures, disabled, paused, last_at, last_status, last_error, facts_since,
        bytes_since, base_bytes, based_at, last_position)
WHERE r.id = n.id
"""
BEGUN_AGAIN = """
INSERT INTO deliveries SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::int[], ?::bigint[], ?::text[],
    ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::smallint[], ?::text[], ?::int[], ?::text[])
ON CONFLICT (block, position, receiver, sequence) DO UPDATE SET
    attempts = greatest(deliveries.attempts, excluded.attempts),
    first_at = coalesce(deliveries.first_at, excluded.first_at),
    ended_at = excluded.ended_at, ending = excluded.ending, reason = excluded.reason
"""
"""A delivery whose row is there already was ended unseen by a gap, and is under way after all."""
ENDED = """
UPDATE deliveries d SET attempts = greatest(d.attempts, n.attempts),
    first_at = coalesce(d.first_at, n.first_at), ended_at = n.ended_at, ending = n.ending, reason = n.reason
FROM unnest(?::bigint[], ?::bigint[], ?::int[], ?::bigint[], ?::int[], ?::bigint[], ?::bigint[],
    ?::smallint[], ?::text[])
    AS n(block, position, receiver, sequence, attempts, first_at, ended_at, ending, reason)
WHERE d.block = n.block AND d.position = n.position AND d.receiver = n.receiver AND d.sequence = n.sequence
"""
ENDED_UNSEEN = """
UPDATE deliveries d SET ended_at = ?1 FROM receivers r
WHERE d.ended_at IS NULL AND r.id = d.receiver AND r.shard % ?2 = ?3
"""
MINUTES = """
INSERT INTO minutes AS old SELECT * FROM unnest(?::bigint[], ?::int[], ?::bigint[], ?::bigint[], ?::bigint[],
    ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::int[])
ON CONFLICT (minute, receiver, period) DO UPDATE SET
    attempts = old.attempts + excluded.attempts, delivered = old.delivered + excluded.delivered,
    failed = old.failed + excluded.failed, throttled = old.throttled + excluded.throttled,
    dead = old.dead + excluded.dead, latency_us = old.latency_us + excluded.latency_us,
    latency_us_max = greatest(old.latency_us_max, excluded.latency_us_max),
    late_ms = old.late_ms + excluded.late_ms, late_ms_max = greatest(old.late_ms_max, excluded.late_ms_max)
"""
BLOCK = """
INSERT INTO blocks AS old VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (block) DO UPDATE SET
    first = least(old.first, excluded.first), last = greatest(old.last, excluded.last),
    since = least(old.since, excluded.since), until = greatest(old.until, excluded.until),
    facts = old.facts + excluded.facts
"""
FILLED = """
SELECT facts, EXISTS (SELECT 1 FROM gaps g WHERE g.last >= b.first) FROM blocks b WHERE block = ?
"""
STATE = """
INSERT INTO states SELECT * FROM unnest(?::int[], ?::bigint[], ?::bigint[], ?::text[], ?::text[])
ON CONFLICT (receiver, position) DO UPDATE SET
    at = excluded.at, origin = excluded.origin, state = excluded.state
"""
BASE = """
SELECT receiver, position, at, origin, state FROM states WHERE receiver = ? AND position <= ?
ORDER BY position DESC LIMIT 1
"""
BASED = """
UPDATE receivers SET facts_since = 0, bytes_since = 0, base_bytes = ?, based_at = ?
WHERE id = ? AND last_position <= ?
"""
FACTS = """
SELECT f.position, f.at, f.facts FROM blocks b CROSS JOIN facts f
WHERE b.last > ?2 AND b.first <= ?3 AND f.block = b.block AND f.receiver = ?1 AND f.position > ?2
    AND f.position <= ?3
ORDER BY f.position
"""
CONFIGURATION = """
INSERT INTO configurations SELECT * FROM unnest(?::int[], ?::bigint[], ?::bigint[], ?::text[])
ON CONFLICT (receiver, at, revision) DO UPDATE SET document = excluded.document
"""

PLACE = "SELECT created, position, stored_at FROM positions WHERE stream = ? AND share = 0"
REACHED = "SELECT coalesce(min(position), 0) FROM positions WHERE stream = ?"
NEW_PLACE = "INSERT INTO positions VALUES (?, '', 0, 0, 0, 0) ON CONFLICT DO NOTHING"
PLACE_MOVED = """
UPDATE positions SET created = ?2, position = ?3, stored_at = ?4
WHERE stream = ?1 AND share = 0 AND position = ?5 AND created IN (?6, '')
"""
MOVED = """
UPDATE positions p SET created = n.created, position = n.position, stored_at = n.stored_at,
    seen_at = CASE WHEN ?10::bigint > 0 THEN ?10::bigint ELSE p.seen_at END, block = ?11
FROM unnest(?1::int[], ?2::bigint[], ?3::bigint[], ?4::text[], ?5::text[], ?6::bigint[],
    ?7::double precision[]) AS n(share, epoch, was, made, created, position, stored_at)
WHERE p.stream = ?8 AND p.share = n.share AND p.holder = ?9 AND p.epoch = n.epoch AND p.position = n.was
    AND p.created IN (n.made, '')
"""
"""The fence: a share moves only from where its holder knows it to be."""

PERIOD = """
SELECT coalesce(max(last), 0), coalesce(max(until), 0),
    EXISTS (SELECT 1 FROM deliveries WHERE ended_at IS NULL AND block >= ?1 AND block < ?2)
FROM blocks WHERE block >= ?1 AND block < ?2
"""
UNBASED = "SELECT id, name FROM receivers WHERE facts_since > 0 AND based_at <= ?"
BLOCKS_GONE = "DELETE FROM blocks WHERE block >= ? AND block < ?"
HISTORY_GONE = (
    """
DELETE FROM changes old USING changes newer WHERE newer.receiver = old.receiver AND newer.kind = old.kind
    AND newer.at > old.at AND newer.at < ?
""",
    """
DELETE FROM configurations old USING configurations newer
WHERE newer.receiver = old.receiver AND newer.at > old.at AND newer.at < ?
""",
    """
DELETE FROM claims old USING claims newer
WHERE newer.shard = old.shard AND newer.at > old.at AND newer.at < ?
""",
    """
DELETE FROM states old USING states newer
WHERE newer.receiver = old.receiver AND newer.position > old.position AND newer.at < ?
""",
)
"""Rows that are dropped once a newer one of their kind is too old: the last one before still applies."""
