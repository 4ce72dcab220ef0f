"""Processes that share a ledger in PostgreSQL, killed within a batch: nothing is lost or duplicated."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from actors.machine.facts import AnyFact
from angarium.ledger.address import Database
from angarium.ledger.postgres.leases import APPLICATION
from angarium.ledger.postgres.session import opened
from angarium.ledger.postgres.tables import SHARE_COUNT
from streams.installation.topology import Names
from tests.support.ledgers import NOW, InDatabase, JournalWriter, delivered, failed, opens
from tests.support.processes.commands import FORKS
from tests.support.processes.forks import SHORTENED, Forked
from tests.support.waiting import until_true

RECEIVERS = [f"acme.r{number}" for number in range(12)]
SOON = {"RENEW_EVERY_S": 0.1, "GATHER_FLUSHES_S": 0.02}
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE ?"
ROWS = {
    "attempts": "SELECT r.name, sequence, attempt FROM attempts a JOIN receivers r ON r.id = a.receiver",
    "deliveries": "SELECT r.name, sequence, attempts FROM deliveries d JOIN receivers r ON r.id = d.receiver",
    "facts": "SELECT r.name, position FROM facts f JOIN receivers r ON r.id = f.receiver",
    "minutes": "SELECT r.name, sum(attempts), sum(delivered) FROM minutes m JOIN receivers r "
    "ON r.id = m.receiver GROUP BY r.name",
}


@pytest.fixture
def world() -> tuple[str, str]:
    return "nats-server", "postgresql"


class Writers:
    """Processes of `angarium ledger` on one database."""

    def __init__(self, nats: str, names: Names, ledger: InDatabase, directory: Path) -> None:
        clean = {name: each for name, each in os.environ.items() if name[:9] != "ANGARIUM_"}
        self._environment = clean | {SHORTENED: json.dumps(SOON)}
        self._arguments = ("ledger", "--to", ledger.location, "--nats", nats, "--prefix", names.prefix)
        self._ledger = ledger
        self._directory = directory

    @asynccontextmanager
    async def one(self, share_count: int) -> AsyncIterator[Forked]:
        """One more process, once it holds a number of shares."""
        others = {name for (name,) in await self._ledger.rows("SELECT holder FROM writers")}
        process = await FORKS.start_quiet(
            self._arguments, self._directory / "said", self._directory, self._environment
        )
        try:

            async def holds() -> bool:
                rows = await self._ledger.rows("SELECT holder, count(*) FROM positions GROUP BY holder")
                return any(name and name not in others and count == share_count for name, count in rows)

            await until_true(holds)
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            await process.ended()


@asynccontextmanager
async def batches_stop(ledger: InDatabase) -> AsyncIterator[None]:
    """Let writers come to a table in the middle of their batches, and no further."""
    async with opened(Database(ledger.location), "test") as session:
        await session.execute("BEGIN")
        await session.execute("LOCK TABLE facts IN ACCESS EXCLUSIVE MODE")
        yield
        await session.execute("ROLLBACK")


async def flush(journal: JournalWriter, sequence: int) -> dict[str, set[tuple[object, ...]]]:
    """Write facts for all receivers; returns the rows that they make."""
    rows: dict[str, set[tuple[object, ...]]] = {table: set() for table in ROWS}
    for name in RECEIVERS:
        first: list[AnyFact] = [opens(name)] if sequence == 1 else []
        at = NOW + 60 * sequence
        for facts in (
            [*first, failed(sequence, at, receiver=name)],
            [delivered(sequence, at, 2, receiver=name)],
        ):
            position = await journal.flush(*facts, receiver=name)
            rows["facts"].add((name, position))
        rows["attempts"] |= {(name, sequence, 1), (name, sequence, 2)}
        rows["deliveries"].add((name, sequence, 2))
        rows["minutes"].add((name, 2 * sequence, sequence))
    return rows


async def test_a_process_killed_in_a_batch_leaves_no_half_of_it_and_another_continues(
    nats_url: str, names: Names, journal: JournalWriter, in_database: InDatabase, tmp_path: Path
) -> None:
    """First one of two that share the shards is killed, then the other one, which has all."""
    async with in_database.store():
        pass  # It makes the tables.
    writers = Writers(nats_url, names, in_database, tmp_path)

    async def blocked(count: int) -> None:
        async def are() -> bool:
            return await in_database.rows(BLOCKED, f"{APPLICATION} %") == [(count,)]

        await until_true(are)

    async def has(expected: dict[str, set[tuple[object, ...]]]) -> None:
        async def all_there() -> bool:
            return expected["facts"] <= set(await in_database.rows(ROWS["facts"]))

        await until_true(all_there)
        for table, query in ROWS.items():
            found = await in_database.rows(query)
            assert sorted(found) == sorted(expected[table])

    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(writers.one(SHARE_COUNT))
        two = await stack.enter_async_context(writers.one(SHARE_COUNT // 2))
        async with batches_stop(in_database):
            expected = await flush(journal, 1)
            await blocked(2)
            await killed(one)
        await in_database.lapse()
        await has(expected)
        async with batches_stop(in_database):
            later = await flush(journal, 2)
            await blocked(1)
            await killed(two)
        await in_database.lapse()
        await stack.enter_async_context(writers.one(SHARE_COUNT))
        await has({
            table: later[table] if table == "minutes" else expected[table] | later[table] for table in ROWS
        })  # fmt: skip


async def killed(process: Forked) -> None:
    process.send_signal(signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL
