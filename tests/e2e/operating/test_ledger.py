"""`angarium ledger` in its own process: killed at any moment, it has each fact once."""

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import mixed_load
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.ledger import LedgerProcess

KILLS = 4
OUTCOMES = ("delivered", "attempt_failed", "throttled")


def position(path: Path) -> int:
    """Returns how far the ledger has read the journal."""
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
    process = LedgerProcess(fleet, path, tmp_path / "said")
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
    await fleet.until(lambda: position(path) == journal[-1].position, "the ledger has everything")
    second = LedgerProcess(fleet, path, tmp_path / "second said")
    await second.start()
    assert "another process writes" in await second.ends()
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


async def test_a_past_state_is_what_inspect_showed(fleet: Fleet, tmp_path: Path) -> None:
    """A failing, a paused and a healthy receiver are each compared at moments without attempts."""
    await fleet.start_ready()
    path = tmp_path / "ledger.db"
    process = LedgerProcess(fleet, path, tmp_path / "said")
    await process.start()
    rate = {"limit": 1000, "burst": 5}
    await fleet.configure(["t.well", "t.paused"], rate=rate)
    await fleet.configure(["t.fails"], retry={"base_s": 300, "cap_s": 300})
    fleet.sink.manners["t.fails"] = lambda _: Reply(status=500)
    asking = Terminal(tmp_path, "nats://127.0.0.1:1")
    asking.environment["ANGARIUM_LEDGER"] = f"sqlite:///{path}"
    said: list[tuple[str, str, dict[str, Any]]] = []

    async def record(receiver: str, rests: Callable[[dict[str, Any]], bool]) -> None:
        """Ask when it rests: what it is told then holds until the next fact."""

        async def at_rest() -> bool:
            return rests(await fleet.ask("inspect", receiver))

        await fleet.until_true(at_rest, f"{receiver} rests")
        last = await fleet.js.last_message(names.journal, f"{names.prefix}.journal.*")
        assert last is not None
        await fleet.until(lambda: position(path) >= last.position, "the ledger knows that, too")
        answer = await fleet.ask("inspect", receiver)
        said.append((receiver, datetime.now(UTC).isoformat(), answer))

    for count in (1, 2):
        for receiver in ("t.well", "t.fails", "t.paused"):
            await fleet.js.publish(
                names.publish_to(receiver), b"{}", {"Angarium-Id": f"{receiver[2:]}-{count}"}
            )
        await record("t.well", lambda told: bool(told["counters"]["delivered"] == len(said) // 3 + 1))
        await record("t.fails", lambda told: told["phase"] == "backing_off" and not told["in_flight"])
        await fleet.ask("pause", "t.paused")
        await record("t.paused", lambda told: told["phase"] == "paused" and not told["in_flight"])
        await fleet.ask("resume", "t.paused")
    await process.stop()
    assert len(said) == 6
    for receiver, at, then in said:
        found = asking.json("inspect", receiver, "--at", at)
        for name in found.keys() - {"at", "recorded_at", "head", "bucket"}:
            assert found[name] == then[name], (receiver, at, name)
        for name in ("limit", "per", "burst", "effective_limit") if then["bucket"] else ():
            assert found["bucket"][name] == then["bucket"][name]
    assert "is paused\n" not in asking.done("history", "t.paused")
    assert "Z  paused\n" in asking.done("history", "t.paused")
    assert "failing since" in asking.done("history", "t.fails")
    assert "t.well: kept: no window" in asking.done("audit", "t.well")
    assert "t.fails" in asking.done("top", "--within", "1h")
