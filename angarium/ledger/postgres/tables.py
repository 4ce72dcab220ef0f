"""The tables of the ledger in PostgreSQL; docs/ledger.md explains them.

Tables, columns and keys are the same as in SQLite. Rows of `attempts`, `deliveries`, `facts` and `minutes`
are in one partition for each period, so that old rows are dropped with their table. The number of a block
contains its period.
"""

from angarium.ledger import schema

VERSION = 7
VERSION_MIN = 14
"""PostgreSQL 14 is the first that detaches a partition while others read it."""

SHARE_COUNT = 16
"""The most processes that can share the work."""

PERIOD_BITS = 20
"""A period has room for a million blocks."""
PARTS_OF_KEEP = 30
PERIOD_MIN_MS = 3_600_000

PARTITIONED = ("attempts", "deliveries", "facts", "minutes")

PACES_TABLE = """
CREATE TABLE IF NOT EXISTS paces (
    receiver int NOT NULL, at bigint NOT NULL, position bigint NOT NULL, ordinal int NOT NULL,
    pace text NOT NULL, per_second double precision, in_flight int, limited_by text NOT NULL,
    in_flight_by text NOT NULL,
    PRIMARY KEY (receiver, at, position, ordinal)
)"""
UNENDED_INDEX = "CREATE INDEX deliveries_unended ON deliveries (receiver, sequence) WHERE ending IS NULL"

TABLES = f"""
CREATE TABLE ledger (version int NOT NULL, period_ms bigint NOT NULL);
CREATE TABLE receivers (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
    shard int NOT NULL,
    failing_since bigint, failures int NOT NULL DEFAULT 0, disabled text, paused smallint NOT NULL DEFAULT 0,
    last_at bigint, last_status int, last_error text, facts_since int NOT NULL DEFAULT 0,
    bytes_since bigint NOT NULL DEFAULT 0, base_bytes bigint NOT NULL DEFAULT 0,
    based_at bigint NOT NULL DEFAULT 0, last_position bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE blocks (
    block bigint PRIMARY KEY, first bigint NOT NULL, last bigint NOT NULL, since bigint NOT NULL,
    until bigint NOT NULL, facts int NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE periods (period int PRIMARY KEY, blocks int NOT NULL DEFAULT 0);
CREATE TABLE attempts (
    block bigint NOT NULL, receiver int NOT NULL, at bigint NOT NULL, position bigint NOT NULL,
    ordinal int NOT NULL, sequence bigint NOT NULL, delivery bigint NOT NULL, attempt int NOT NULL,
    latency_us bigint NOT NULL, verdict smallint NOT NULL, status int, error text, next_at bigint, type text,
    answer text,
    PRIMARY KEY (block, receiver, at, position, ordinal, sequence)
) PARTITION BY RANGE (block);
CREATE INDEX attempts_failed ON attempts (block, receiver, at, status) WHERE verdict <> 0;
CREATE INDEX attempts_other ON attempts (block, receiver, at, status) WHERE verdict = 0 AND status <> 200;
CREATE INDEX attempts_type ON attempts (block, receiver, type, at) WHERE type IS NOT NULL;
CREATE TABLE deliveries (
    block bigint NOT NULL, position bigint NOT NULL, receiver int NOT NULL, sequence bigint NOT NULL,
    event text NOT NULL, again text, stored_at bigint NOT NULL, first_at bigint, ended_at bigint,
    ending smallint, reason text, attempts int NOT NULL, type text, published_at bigint,
    PRIMARY KEY (block, position, receiver, sequence)
) PARTITION BY RANGE (block);
CREATE INDEX deliveries_event ON deliveries (block, event);
{UNENDED_INDEX};
CREATE TABLE facts (
    block bigint NOT NULL, receiver int NOT NULL, position bigint NOT NULL, at bigint NOT NULL,
    facts text NOT NULL,
    PRIMARY KEY (block, receiver, position)
) PARTITION BY RANGE (block);
CREATE TABLE minutes (
    minute bigint NOT NULL, receiver int NOT NULL, attempts bigint NOT NULL, delivered bigint NOT NULL,
    failed bigint NOT NULL, throttled bigint NOT NULL, dead bigint NOT NULL, latency_us bigint NOT NULL,
    latency_us_max bigint NOT NULL, late_ms bigint NOT NULL, late_ms_max bigint NOT NULL,
    period int NOT NULL, posts bigint NOT NULL,
    PRIMARY KEY (minute, receiver, period)
) PARTITION BY RANGE (period);
CREATE TABLE states (
    receiver int NOT NULL, position bigint NOT NULL, at bigint NOT NULL, origin text NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (receiver, position)
);
CREATE TABLE changes (
    receiver int NOT NULL, at bigint NOT NULL, position bigint NOT NULL, ordinal int NOT NULL,
    kind text NOT NULL, detail text NOT NULL,
    PRIMARY KEY (receiver, at, position, ordinal)
);
{PACES_TABLE};
CREATE TABLE configurations (
    receiver int NOT NULL, at bigint NOT NULL, revision bigint NOT NULL, document text,
    changed_by text NOT NULL, replaced bigint,
    PRIMARY KEY (receiver, at, revision)
);
CREATE TABLE claims (
    shard int NOT NULL, position bigint NOT NULL, at bigint NOT NULL, node text NOT NULL,
    epoch bigint NOT NULL, clean smallint NOT NULL,
    PRIMARY KEY (shard, position)
);
CREATE TABLE gaps (
    first bigint NOT NULL, last bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
    share int NOT NULL,
    PRIMARY KEY (share, first)
);
CREATE TABLE positions (
    stream text NOT NULL, created text NOT NULL, position bigint NOT NULL,
    stored_at double precision NOT NULL,
    seen_at bigint NOT NULL, share int NOT NULL DEFAULT 0, holder text, epoch bigint NOT NULL DEFAULT 0,
    block bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (stream, share)
) WITH (fillfactor = 50);
CREATE TABLE writers (holder text PRIMARY KEY, until bigint NOT NULL);
CREATE TABLE pruned (block bigint NOT NULL, position bigint NOT NULL, at bigint NOT NULL);
INSERT INTO pruned VALUES (0, 0, 0);
CREATE TABLE verdicts (verdict smallint PRIMARY KEY, name text NOT NULL);
INSERT INTO verdicts VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(schema.VERDICTS))};
CREATE TABLE endings (ending smallint PRIMARY KEY, name text NOT NULL);
INSERT INTO endings VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(schema.ENDINGS, 1))}
"""

UPGRADE = f"""
SET LOCAL statement_timeout = 0;
ALTER TABLE configurations ADD COLUMN IF NOT EXISTS changed_by text NOT NULL DEFAULT '';
ALTER TABLE configurations ADD COLUMN IF NOT EXISTS replaced bigint;
ALTER TABLE deliveries ADD COLUMN IF NOT EXISTS published_at bigint;
ALTER TABLE minutes ADD COLUMN IF NOT EXISTS posts bigint NOT NULL DEFAULT 0;
UPDATE minutes SET posts = attempts WHERE posts = 0;
DROP INDEX IF EXISTS deliveries_open, deliveries_unended;
{PACES_TABLE};
{UNENDED_INDEX}
"""
"""The steps from any older version to this one; they can be repeated."""


def period_of(block: int) -> int:
    return block >> PERIOD_BITS


def bounds(table: str, period: int) -> tuple[int, int]:
    """The keys of the partition of a period: from the first to below the second."""
    bits = 0 if table == "minutes" else PERIOD_BITS
    return period << bits, (period + 1) << bits
