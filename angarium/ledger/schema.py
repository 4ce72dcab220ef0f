"""The words for the numbers in the ledger's tables; docs/ledger.md explains the tables.

Rows are small: receivers are numbers, and an event's id is in one row. Rows are stored in blocks of some ten
thousand facts, in the order of the journal, and by receiver within a block. So a write touches the pages of
one block, for any number of receivers; old rows are dropped block by block; and a query looks into each
block by its key. If rows were sorted by receiver alone, each fact would cost pages of its own in every table.

Times are whole milliseconds since 1970, UTC.
"""

BLOCK_FACTS = 32_768
"""Number of facts in a full block."""

CLOCKS_APART_MS = 600_000
"""A bound on the time between a fact and its storing, by any clocks."""

END_OF_TIME = 1 << 62
"""A number beyond every position and every time."""

VERDICTS = ("delivered", "failed", "rejected", "throttled", "gone", "overload")
DELIVERED, FAILED, REJECTED, THROTTLED, GONE, OVERLOAD = range(6)
"""The meanings of an attempt, as `attempts.verdict` has them; `overload`: the node had nothing to spare."""

ENDINGS = ("delivered", "dead", "discarded", "missing")
SETTLED, DEAD, DISCARDED, MISSING = range(1, 5)
"""The endings of a delivery, as in `deliveries.ending`."""
