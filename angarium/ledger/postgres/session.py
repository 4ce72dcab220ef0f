"""A connection to PostgreSQL: statements one after the other, and errors as sentences for people.

Every query and write is designed to look rows up by a key. A new partition has no statistics, and the planner
might scan it instead, so sequential scans are disabled.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any

from angarium.ledger.address import Database
from angarium.ledger.postgres.driver import asyncpg
from angarium.ledger.postgres.tables import VERSION_MIN
from angarium.ledger.store import LedgerAway, LedgerError
from angarium.logs import redact

CONNECT_TIMEOUT_S = 10.0
CANCEL_TIMEOUT_S = 2.0
STATEMENT_TIMEOUT_MS = 60_000
BY_KEY = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}
BOUNDED = {"statement_timeout": str(STATEMENT_TIMEOUT_MS)}
"""Settings by which the server ends statements of clients that are gone."""

_PLACEHOLDER = re.compile(r"\?(\d*)")
_AWAY = (
    OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)  # fmt: skip


class Session:
    """One connection, used by one task at a time."""

    def __init__(self, connection: asyncpg.Connection, database: Database) -> None:
        self._connection = connection
        self._database = database

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query, whose placeholders are `?` or `?1`, `?2`."""
        with ledger_errors(self._database):
            return list(await self._connection.fetch(numbered(query), *values))

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; returns the number of rows that it changed."""
        with ledger_errors(self._database):
            tag = await self._connection.execute(numbered(statement), *values)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0

    async def copy(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Store rows by COPY."""
        if rows:
            with ledger_errors(self._database):
                await self._connection.copy_records_to_table(table, records=rows)

    async def each(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement once for all rows, whose columns are passed as arrays; returns like `execute`."""
        if columns := list(zip(*rows, strict=True)):
            return await self.execute(statement, *map(list, columns))
        return 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.execute("BEGIN")
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                await self.execute("ROLLBACK")
            raise
        await self.execute("COMMIT")


@asynccontextmanager
async def opened(database: Database, name: str, **settings: str) -> AsyncIterator[Session]:
    """A connection of that name with these settings. Raises LedgerError."""
    with ledger_errors(database):
        connection = await asyncpg.connect(
            database.url, timeout=CONNECT_TIMEOUT_S,
            server_settings={"application_name": name, **BY_KEY, **settings},
        )  # fmt: skip
    try:
        version = connection.get_server_version()
        if version.major < VERSION_MIN:
            raise LedgerError(
                f"{database.shown} is PostgreSQL {version.major}, a ledger needs {VERSION_MIN} or newer"
            )
        yield Session(connection, database)
    except asyncio.CancelledError:
        # The driver asks the server to end the statement, and closing waits until it has asked.
        with suppress(TimeoutError, *_AWAY):
            await connection.close(timeout=CANCEL_TIMEOUT_S)
        raise
    finally:
        connection.terminate()


@contextmanager
def ledger_errors(database: Database) -> Iterator[None]:
    """Turns what the driver raises into a sentence for people."""
    try:
        yield
    except (asyncpg.PostgresError, ValueError, *_AWAY) as error:
        why = redact(str(error)) or type(error).__name__
        if isinstance(error, _AWAY) and not isinstance(error, ValueError):
            text = f"the ledger {database.shown} does not answer ({why}): check PostgreSQL"
            raise LedgerAway(text) from error
        raise LedgerError(f"the ledger {database.shown} cannot be used: {why}") from error


@lru_cache(maxsize=512)
def numbered(query: str) -> str:
    """The query with the placeholders of PostgreSQL."""
    count = 0

    def placeholder(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${found[1] or count}"

    return _PLACEHOLDER.sub(placeholder, query)
