"""The statements that write the ledger in PostgreSQL. Many rows are passed as one array for each column."""

RECEIVERS = """
SELECT name, id, shard, failing_since, failures, disabled, paused, last_at, last_status, last_error,
    facts_since, bytes_since, base_bytes, based_at, last_position
FROM receivers WHERE name = ANY(?)
"""
NEW_RECEIVERS = """
INSERT INTO receivers (name, shard) SELECT * FROM unnest(?::text[], ?::int[]) ON CONFLICT DO NOTHING
"""
UNENDED = """
SELECT receiver, sequence, block, position, ended_at FROM deliveries
WHERE ending IS NULL AND receiver = ANY(?)
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
WHERE d.ending IS NULL AND d.ended_at IS NULL AND r.id = d.receiver AND r.shard % ?2 = ?3
"""
MINUTES = """
INSERT INTO minutes AS old SELECT * FROM unnest(?::bigint[], ?::int[], ?::bigint[], ?::bigint[], ?::bigint[],
    ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::int[], ?::bigint[])
ON CONFLICT (minute, receiver, period) DO UPDATE SET
    attempts = old.attempts + excluded.attempts, delivered = old.delivered + excluded.delivered,
    failed = old.failed + excluded.failed, throttled = old.throttled + excluded.throttled,
    dead = old.dead + excluded.dead, latency_us = old.latency_us + excluded.latency_us,
    latency_us_max = greatest(old.latency_us_max, excluded.latency_us_max),
    late_ms = old.late_ms + excluded.late_ms, late_ms_max = greatest(old.late_ms_max, excluded.late_ms_max),
    posts = old.posts + excluded.posts
"""
BLOCK = """
INSERT INTO blocks AS old VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (block) DO UPDATE SET
    first = least(old.first, excluded.first), last = greatest(old.last, excluded.last),
    since = least(old.since, excluded.since), until = greatest(old.until, excluded.until),
    facts = old.facts + excluded.facts
"""
FILLED = "SELECT facts FROM blocks WHERE block = ?"
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
UPDATE receivers r SET facts_since = 0, bytes_since = 0, base_bytes = n.base_bytes, based_at = n.based_at
FROM unnest(?::bigint[], ?::bigint[], ?::int[], ?::bigint[]) AS n(base_bytes, based_at, id, position)
WHERE r.id = n.id AND r.last_position <= n.position
"""
FACTS = """
SELECT f.position, f.at, f.facts FROM blocks b CROSS JOIN facts f
WHERE b.last > ?2 AND b.first <= ?3 AND f.block = b.block AND f.receiver = ?1 AND f.position > ?2
    AND f.position <= ?3
ORDER BY f.position
"""
CONFIGURATION = """
INSERT INTO configurations
SELECT * FROM unnest(?::int[], ?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::bigint[])
ON CONFLICT (receiver, at, revision) DO NOTHING
"""

POSITION = "SELECT created, position, stored_at FROM positions WHERE stream = ? AND share = 0"
REACHED = "SELECT coalesce(min(position), 0) FROM positions WHERE stream = ?"
NEW_POSITION = "INSERT INTO positions VALUES (?, '', 0, 0, 0, 0) ON CONFLICT DO NOTHING"
POSITION_MOVED = """
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
UNBASED = """
SELECT r.id, r.name, least(?3, (
    SELECT min(g.first) - 1 FROM gaps g, states s
    WHERE g.share = r.shard % ?4 AND g.first <= ?3 AND g.last > base.position
        AND s.receiver = r.id AND s.position > ?3 AND s.origin = 'snapshot')) AS up_to
FROM receivers r JOIN (
    SELECT receiver, max(position) AS position FROM facts WHERE block >= ?1 AND block < ?2 GROUP BY receiver
) f ON f.receiver = r.id
CROSS JOIN LATERAL (
    SELECT coalesce(max(s.position), 0) AS position FROM states s WHERE s.receiver = r.id AND s.position <= ?3
) base
WHERE f.position > base.position
"""
"""Receivers with facts in a period that no base state up to its end covers, and up to where none of their
facts is missing: up to the end of the period, or to a gap if a snapshot follows it."""
KEPT_ON = """
WITH later AS (SELECT min(block) AS block FROM blocks WHERE block >= ?2), moved AS (
    DELETE FROM deliveries d USING later n
    WHERE n.block IS NOT NULL AND d.block >= ?1 AND d.block < ?2
        AND (d.ended_at IS NULL OR d.ended_at > ?3)
    RETURNING d.*)
INSERT INTO deliveries SELECT n.block, d.position, d.receiver, d.sequence, d.event, d.again, d.stored_at,
    d.first_at, d.ended_at, d.ending, d.reason, d.attempts, d.type, d.published_at
FROM moved d CROSS JOIN later n
"""
"""Deliveries that may have attempts in a later period stay as long as these."""
PRUNED = "UPDATE pruned SET block = ?, position = greatest(position, ?), at = greatest(at, ?)"
"""A period may be empty: its drop was interrupted, or a process died before it stored a block."""
PERIODS_PRUNED = "SELECT period FROM periods, pruned WHERE period <= pruned.block ORDER BY period"
BLOCK_OF = "SELECT 1 FROM blocks WHERE block >= ? AND block < ? LIMIT 1"
BLOCKS_GONE = "DELETE FROM blocks WHERE block >= ? AND block < ?"
HISTORY_GONE = (
    """
DELETE FROM changes old USING changes newer WHERE newer.receiver = old.receiver AND newer.kind = old.kind
    AND newer.at > old.at AND newer.at < ?
""",
    """
DELETE FROM paces old WHERE at < (
    SELECT max(newer.at) FROM paces newer WHERE newer.receiver = old.receiver AND newer.at < ?)
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
