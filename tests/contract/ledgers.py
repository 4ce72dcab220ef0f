"""Words for the tests of the ledger: a journal written by hand, a writer, and all that its tables hold."""

import sqlite3
from pathlib import Path
from typing import Any

from actors.machine import facts as f
from actors.machine.facts import AnyFact
from actors.machine.numbering import Numbered
from angarium.ledger.sqlite import SqliteStore, written
from angarium.ledger.writer import Writer
from streams.installation.topology import Names
from streams.journal.envelope import encode_fact, encode_flush
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.contract.installation import shard

RECEIVER = "acme.billing"
NOW = 1_800_000_000.0
KEEP_S = 365 * 86_400.0


class Pen:
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
            at=self.at,
            unclean=None,
            facts=list(map(encode_fact, facts)),
        )
        return await self.put(data, receiver)

    async def put(self, data: bytes, receiver: str = RECEIVER) -> int:
        answer = await self._js.publish(self._names.journal_of(shard(receiver)), data)
        assert isinstance(answer, Stored)
        return answer.sequence


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


def opened(receiver: str = RECEIVER) -> f.Opened:
    return f.Opened(receiver=receiver, at=NOW, position=0)


async def catch_up(js: JetStream, names: Names, path: Path, keep_s: float = KEEP_S) -> None:
    """A writer from its start until it has everything."""
    async with written(path) as store:
        await writer(js, names, store, keep_s).catch_up()


def writer(js: JetStream, names: Names, store: SqliteStore, keep_s: float = KEEP_S) -> Writer:
    return Writer(js, names, store, keep_s=keep_s, wall=lambda: NOW + 3600)


def rows(path: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, but for base states, which may be made sooner or later."""
    tables = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    left_out = ("states", "positions", "blocks")
    return {
        name: sorted(rows(path, f"SELECT * FROM {name}"), key=repr) for name in tables if name not in left_out
    }
