"""Runs the contracts on a ledger in SQLite and on one in PostgreSQL; the real nats-server once is enough."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.ledger import databases
from tests.contract.support.servers import MemoryServer, RealServer, Server
from tests.support.installation import install
from tests.support.ledgers import InDatabase, InFile, JournalWriter, Kept

_schemas = count(1)
WORLDS = [("memory", "sqlite"), ("nats-server", "sqlite"), ("memory", "postgresql")]


@pytest.fixture(params=WORLDS, ids="-".join)
def world(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A server of NATS, and what keeps the ledger."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def server(world: tuple[str, str], request: pytest.FixtureRequest) -> Server:
    if world[0] == "memory":
        return MemoryServer()
    return RealServer(request.getfixturevalue("nats_url"))


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database of PostgreSQL. All processes of a run copy what the first has made."""
    if why := databases.missing():
        pytest.skip(why)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith(("popen-", "worker-")) else base
    with databases.server(shared / "postgres") as address:
        yield address


@pytest.fixture
async def in_database(database: str) -> InDatabase:
    ledger = InDatabase(database, f"ledger_{next(_schemas)}")
    await ledger.empty()
    return ledger


@pytest.fixture
def ledger(world: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    if world[1] == "sqlite":
        return InFile(tmp_path / "ledger.db")
    kept: InDatabase = request.getfixturevalue("in_database")
    return kept


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install(js, prefix)


@pytest.fixture
def journal(js: JetStream, names: Names) -> JournalWriter:
    return JournalWriter(js, names)


@pytest.fixture
def settings(ledger: Kept, prefix: str) -> Settings:
    return Settings(prefix=prefix, ledger=ledger.location)
