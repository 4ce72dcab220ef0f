"""Support for tests of the ledger: a journal written by hand, a writer, and all that its tables hold."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from actors.machine import facts as f
from actors.machine.facts import AnyFact
from actors.machine.numbering import Numbered
from actors.machine.state import State
from angarium.ledger.address import Database, locate
from angarium.ledger.postgres.session import opened
from angarium.ledger.postgres.store import PostgresStore, postgres_store
from angarium.ledger.sqlite.store import SqliteStore, sqlite_store
from angarium.ledger.store import Store
from angarium.ledger.writer import Writer
from streams.installation.topology import Names
from streams.journal.envelope import encode_fact, encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.journal.snapshots import Snapshot
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.support.installation import shard

RECEIVER = "acme.billing"
NOW = 1_800_000_000.0
KEEP_S = 365 * 86_400.0


class JournalWriter:
    """Writes flushes into the journal, as owners of shards do."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self.at = NOW

    async def flush(self, *facts: AnyFact, receiver: str = RECEIVER) -> int:
        """Append one flush to the shard of the receiver; returns its position."""
        self.at += 1
        data = encode_flush(
            node="one",
            epoch=1,
            flush=1,
            floor=0,
            routing=NOTHING_ROUTED,
            at=self.at,
            unclean=None,
            facts=list(map(encode_fact, facts)),
        )
        return await self.put(data, receiver)

    async def put(self, data: bytes, receiver: str = RECEIVER) -> int:
        answer = await self._js.publish(self._names.journal_of(shard(receiver)), data)
        assert isinstance(answer, Stored)
        return answer.position


def numbered(sequence: int, **members: Any) -> Numbered:
    position = members.pop("position", 100 + sequence)
    return Numbered(sequence=sequence, position=position, id=f"e{sequence}", stored_at=NOW, **members)


def delivered(sequence: int, at: float = NOW + 1, attempt: int = 1, **members: Any) -> f.Delivered:
    return f.Delivered(**_outcome(sequence, at, attempt, 200) | members)


def failed(sequence: int, at: float = NOW + 1, attempt: int = 1, **members: Any) -> f.AttemptFailed:
    more = {"error": "HTTP 500", "next_at": at + 2}
    return f.AttemptFailed(**_outcome(sequence, at, attempt, 500) | more | members)


def _outcome(sequence: int, at: float, attempt: int, status: int) -> dict[str, Any]:
    return {
        "receiver": RECEIVER, "events": (numbered(sequence),), "at": at, "attempt": attempt, "status": status,
        "latency_ms": 12.0,
    }  # fmt: skip


def opens(receiver: str = RECEIVER) -> f.Opened:
    return f.Opened(receiver=receiver, at=NOW, position=0)


class Killed(Exception):
    """The process is killed."""


def _dying(connections: Iterable[Any], names: Collection[str], after: int) -> None:
    """From now on the process dies when it is about to run the statement of that number."""
    left = after

    def counted(run: Any) -> Any:
        async def counting(*arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return await run(*arguments)

        return counting

    for connection in connections:
        for name in names:
            setattr(connection, name, counted(getattr(connection, name)))


class Kept(Protocol):
    """A ledger somewhere, and all that its tables hold."""

    @property
    def location(self) -> str: ...

    def store(self) -> AbstractAsyncContextManager[Store]:
        """A store for one writer."""

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...

    async def execute(self, statement: str, *values: Any) -> None: ...

    async def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table, except base states, which may be made sooner or later."""

    async def dump(self) -> bytes:
        """All that is stored."""

    async def empty(self) -> None:
        """Begin with nothing."""

    def dying(self, after: int) -> AbstractAsyncContextManager[Store]:
        """A store whose process dies when it is about to run the statement of that number."""

    async def lapse(self) -> None:
        """Let the time pass after which a dead writer's shares are free."""


class InFile:
    """A ledger in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = f"sqlite:///{path}"

    def store(self) -> AbstractAsyncContextManager[SqliteStore]:
        return sqlite_store(self.path)

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(query, values).fetchall()

    async def execute(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as db:
            db.execute(statement, values)
            db.commit()

    async def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        tables = [name for (name,) in await self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: sorted(await self.rows(f"SELECT * FROM {name}"), key=repr)
            for name in tables
            if name not in ("states", "positions", "blocks")
        }

    async def dump(self) -> bytes:
        return b"".join(each.read_bytes() for each in self.path.parent.iterdir())

    async def empty(self) -> None:
        for each in self.path.parent.iterdir():
            each.unlink()

    @asynccontextmanager
    async def dying(self, after: int) -> AsyncIterator[Store]:
        async with self.store() as store:
            _dying([store._db], ("execute", "executemany", "commit"), after)
            yield store

    async def lapse(self) -> None:
        """A file has one writer."""


def in_file(location: str) -> InFile:
    """The file at this address."""
    path = locate(location)
    assert isinstance(path, Path)
    return InFile(path)


class InDatabase:
    """A ledger in PostgreSQL, in a schema of its own."""

    def __init__(self, database: str, schema: str) -> None:
        self._database = database
        self._schema = schema
        self.location = f"{database}&search_path={schema}"

    def store(self) -> AbstractAsyncContextManager[PostgresStore]:
        return postgres_store(Database(self.location), KEEP_S)

    async def empty(self) -> None:
        await self.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
        await self.execute(f"CREATE SCHEMA {self._schema}")

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        async with opened(Database(self.location), "test") as session:
            return [tuple(row) for row in await session.rows(query, *values)]

    async def execute(self, statement: str, *values: Any) -> None:
        async with opened(Database(self.location), "test") as session:
            await session.execute(statement, *values)

    async def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """The number of a block does not count: one that was to be begun in a crash stays unused."""
        found = dict[str, list[tuple[Any, ...]]]()
        async with opened(Database(self.location), "test") as session:
            for table, columns in await session.rows(_COLUMNS, self._schema):
                rows = await session.rows(f"SELECT {columns} FROM {table}")
                found[table] = sorted(map(tuple, rows), key=repr)
        return found

    async def dump(self) -> bytes:
        tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = ?"
        names = [name for (name,) in await self.rows(tables, self._schema)]
        return repr([await self.rows(f"SELECT * FROM {name}") for name in names]).encode()

    @asynccontextmanager
    async def dying(self, after: int) -> AsyncIterator[Store]:
        async with self.store() as store:
            _dying([store._session, store._aside], ("rows", "execute", "copy"), after)
            yield store

    async def lapse(self) -> None:
        async with opened(Database(self.location), "test") as session, session.transaction():
            # Shares that the transaction of a dead writer has locked are free once the server has noticed.
            await session.rows("SELECT 1 FROM positions FOR UPDATE")
            await session.execute("UPDATE writers SET until = 0")


_COLUMNS = """
SELECT table_name::text, string_agg(column_name, ', ' ORDER BY ordinal_position)
FROM information_schema.columns
WHERE table_schema = ? AND column_name <> 'block'
    AND table_name NOT IN ('states', 'positions', 'blocks', 'periods', 'writers')
    AND table_name !~ '_p[0-9]+$'
GROUP BY table_name
"""


async def catch_up(js: JetStream, names: Names, ledger: Kept, keep_s: float = KEEP_S) -> None:
    """A writer from its start until it has everything, and nothing is left of a drop that was interrupted."""
    async with ledger.store() as store:
        await writer(js, names, store, keep_s).catch_up()
        if await store.has_half_dropped():
            following = writer(js, names, store, keep_s)
            await following.renew()
            while following.is_dropping or await store.has_half_dropped():
                await following.prune()
                await asyncio.sleep(0)
            await following.catch_up()


async def snapshot(js: JetStream, names: Names, as_of: int, state: State) -> None:
    """Store the snapshot of a receiver, as the owner of its shard does."""
    answer = await js.publish(
        names.actor_keys.actor(shard(state.receiver), state.receiver),
        msgspec.json.encode(Snapshot(as_of=as_of, state=state)),
    )
    assert isinstance(answer, Stored)


def writer(js: JetStream, names: Names, store: Store, keep_s: float = KEEP_S) -> Writer:
    return Writer(js, names, store, keep_s=keep_s, wall=lambda: NOW + 3600)
