"""The tables of the ledger in SQLite, and what a newer version adds to those of an older one."""

from angarium.ledger import schema

VERSION = 8
TYPE_INDEX = "CREATE INDEX attempts_type ON attempts (block, receiver, type, at) WHERE type IS NOT NULL"
PACES_TABLE = """
CREATE TABLE paces (
    receiver INTEGER NOT NULL, at INTEGER NOT NULL, position INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    pace TEXT NOT NULL, per_second REAL, in_flight INTEGER, limited_by TEXT NOT NULL,
    in_flight_by TEXT NOT NULL,
    PRIMARY KEY (receiver, at, position, ordinal)
) WITHOUT ROWID"""
UNENDED_INDEX = "CREATE INDEX deliveries_unended ON deliveries (receiver, sequence) WHERE ending IS NULL"

TABLES = f"""
CREATE TABLE receivers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, shard INTEGER NOT NULL,
    failing_since INTEGER, failures INTEGER NOT NULL DEFAULT 0, disabled TEXT,
    paused INTEGER NOT NULL DEFAULT 0, last_at INTEGER, last_status INTEGER, last_error TEXT,
    facts_since INTEGER NOT NULL DEFAULT 0, bytes_since INTEGER NOT NULL DEFAULT 0,
    base_bytes INTEGER NOT NULL DEFAULT 0, based_at INTEGER NOT NULL DEFAULT 0,
    last_position INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE blocks (
    block INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, since INTEGER NOT NULL,
    until INTEGER NOT NULL, facts INTEGER NOT NULL
);
CREATE TABLE attempts (
    block INTEGER NOT NULL, receiver INTEGER NOT NULL, at INTEGER NOT NULL, position INTEGER NOT NULL,
    ordinal INTEGER NOT NULL, sequence INTEGER NOT NULL, delivery INTEGER NOT NULL, attempt INTEGER NOT NULL,
    latency_us INTEGER NOT NULL, verdict INTEGER NOT NULL, status INTEGER, error TEXT, next_at INTEGER,
    type TEXT, answer TEXT,
    PRIMARY KEY (block, receiver, at, position, ordinal, sequence)
) WITHOUT ROWID;
CREATE INDEX attempts_failed ON attempts (block, receiver, at, status) WHERE verdict <> 0;
CREATE INDEX attempts_other ON attempts (block, receiver, at, status) WHERE verdict = 0 AND status <> 200;
{TYPE_INDEX};
CREATE TABLE deliveries (
    block INTEGER NOT NULL, position INTEGER NOT NULL, receiver INTEGER NOT NULL, sequence INTEGER NOT NULL,
    event TEXT NOT NULL, again TEXT, stored_at INTEGER NOT NULL, first_at INTEGER, ended_at INTEGER,
    ending INTEGER, reason TEXT, attempts INTEGER NOT NULL, type TEXT, published_at INTEGER,
    PRIMARY KEY (block, position, receiver, sequence)
) WITHOUT ROWID;
CREATE INDEX deliveries_event ON deliveries (block, event);
{UNENDED_INDEX};
CREATE TABLE facts (
    block INTEGER NOT NULL, receiver INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (block, receiver, position)
);
CREATE TABLE states (
    receiver INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL, origin TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (receiver, position)
);
CREATE TABLE minutes (
    minute INTEGER NOT NULL, receiver INTEGER NOT NULL, attempts INTEGER NOT NULL, delivered INTEGER NOT NULL,
    failed INTEGER NOT NULL, throttled INTEGER NOT NULL, dead INTEGER NOT NULL,
    latency_us INTEGER NOT NULL, latency_us_max INTEGER NOT NULL, late_ms INTEGER NOT NULL,
    late_ms_max INTEGER NOT NULL, posts INTEGER NOT NULL,
    PRIMARY KEY (minute, receiver)
) WITHOUT ROWID;
CREATE TABLE changes (
    receiver INTEGER NOT NULL, at INTEGER NOT NULL, position INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL, detail TEXT NOT NULL,
    PRIMARY KEY (receiver, at, position, ordinal)
) WITHOUT ROWID;
{PACES_TABLE};
CREATE TABLE configurations (
    receiver INTEGER NOT NULL, at INTEGER NOT NULL, revision INTEGER NOT NULL, document TEXT,
    changed_by TEXT NOT NULL DEFAULT '', replaced INTEGER,
    PRIMARY KEY (receiver, at, revision)
) WITHOUT ROWID;
CREATE TABLE claims (
    shard INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL, node TEXT NOT NULL,
    epoch INTEGER NOT NULL, clean INTEGER NOT NULL,
    PRIMARY KEY (shard, position)
) WITHOUT ROWID;
CREATE TABLE gaps (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
    share INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE positions (
    stream TEXT PRIMARY KEY, created TEXT NOT NULL, position INTEGER NOT NULL, stored_at REAL NOT NULL,
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE pruned (block INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL);
INSERT INTO pruned VALUES (0, 0, 0);
CREATE TABLE verdicts (verdict INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO verdicts VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(schema.VERDICTS))};
CREATE TABLE endings (ending INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO endings VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(schema.ENDINGS, 1))};
PRAGMA user_version = {VERSION};
"""

UPGRADES = {
    1: f"""
{TYPE_INDEX};
ALTER TABLE receivers ADD COLUMN last_position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gaps ADD COLUMN share INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
""",
    2: """
ALTER TABLE configurations ADD COLUMN changed_by TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 3;
""",
    3: f"""
DROP INDEX deliveries_open;
{UNENDED_INDEX};
PRAGMA user_version = 4;
""",
    4: """
ALTER TABLE configurations ADD COLUMN replaced INTEGER;
PRAGMA user_version = 5;
""",
    5: """
ALTER TABLE deliveries ADD COLUMN published_at INTEGER;
PRAGMA user_version = 6;
""",
    6: """
ALTER TABLE minutes ADD COLUMN posts INTEGER NOT NULL DEFAULT 0;
UPDATE minutes SET posts = attempts;
PRAGMA user_version = 7;
""",
    7: f"""
{PACES_TABLE};
PRAGMA user_version = 8;
""",
}
"""The steps from each older version to the next one."""
