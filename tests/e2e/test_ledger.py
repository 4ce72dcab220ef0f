"""`angarium ledger` as a process beside nodes: killed at any moment, it has each fact once."""

import asyncio
import os
import random
import sqlite3
from collections import Counter
from pathlib import Path

import msgspec

from tests.e2e.commands import COMMAND, ROOT, Terminal
from tests.e2e.fleet import Fleet, names
from tests.e2e.load import mixed_load
from tests.secrecy import told

KILLS = 4
OUTCOMES = ("delivered", "attempt_failed", "throttled")


class Process:
    """One process of the command after the other, on one file."""

    def __init__(self, fleet: Fleet, path: Path) -> None:
        self._environment = {name: each for name, each in os.environ.items() if name[:9] != "ANGARIUM_"}
        self._command = (*COMMAND, "ledger", "--to", f"sqlite:///{path}", "--nats", fleet.server.url)

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment | {"PYTHONPATH": str(ROOT)}, stderr=asyncio.subprocess.PIPE
        )

    async def kill(self) -> None:
        self._process.kill()
        await self._process.communicate()

    async def stop(self) -> None:
        """SIGTERM, which is the usual end of it."""
        self._process.terminate()
        _, said = await self._process.communicate()
        assert self._process.returncode == 0, said
        assert not told(said.decode())


def position(path: Path) -> int:
    """How far it has read the journal."""
    if not path.exists():
        return 0
    with sqlite3.connect(path) as db:
        try:
            rows = db.execute("SELECT position FROM positions WHERE stream = ?", (names.journal,)).fetchall()
        except sqlite3.OperationalError:
            return 0  # The tables are not made yet.
    db.close()
    return int(rows[0][0]) if rows else 0


async def reads_on(fleet: Fleet, path: Path) -> None:
    before = position(path)
    await fleet.until(lambda: position(path) > before, "the ledger goes on")


async def test_a_ledger_that_is_killed_has_each_fact_once(
    fleet: Fleet, tmp_path: Path, rng: random.Random
) -> None:
    await fleet.start_ready()
    load = await mixed_load(fleet)
    path = tmp_path / "kept" / "ledger.db"
    process = Process(fleet, path)
    async with load.flowing():
        for _ in range(KILLS):
            await process.start()
            await reads_on(fleet, path)
            await load.pass_some(rng)
            await process.kill()
        await load.pass_some(rng)
    await fleet.nodes["one"].stop()
    journal = await fleet.read(names.journal, f"{names.prefix}.journal.*")
    await process.start()
    await fleet.until(lambda: position(path) == journal[-1].sequence, "the ledger has everything")
    await process.stop()

    facts = [fact for message in journal for fact in msgspec.json.decode(message.data)["facts"]]
    facts = [fact for fact in facts if fact["fact"] != "claimed"]
    with sqlite3.connect(path) as db:
        kept = db.execute("SELECT facts FROM facts").fetchall()
        attempts = dict(
            db.execute("SELECT name, count(*) FROM attempts JOIN receivers ON id = receiver GROUP BY name")
        )
        delivered = db.execute("SELECT count(*) FROM deliveries WHERE ending = 1").fetchone()[0]
        under_way = db.execute("SELECT count(*) FROM deliveries WHERE ended_at IS NULL").fetchone()[0]
    db.close()
    had = [fact for (text,) in kept for fact in msgspec.json.decode(text)]
    assert sorted(map(msgspec.json.encode, had)) == sorted(map(msgspec.json.encode, facts))
    assert attempts == Counter(fact["receiver"] for fact in facts if fact["fact"] in OUTCOMES)
    assert delivered == sum(fact["fact"] == "delivered" for fact in facts)
    assert under_way <= 256
    asking = Terminal(tmp_path, "nats://127.0.0.1:1")  # It needs no NATS.
    asking.environment["ANGARIUM_LEDGER"] = f"sqlite:///{path}"
    event = next(fact["events"][0]["id"] for fact in facts if fact["fact"] == "delivered")
    assert asking.json("event", event)["deliveries"][0]["state"] == "delivered"
