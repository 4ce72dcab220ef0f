"""`angarium erase`: afterwards no store holds a byte of the event's body, and nothing else is missing."""

import asyncio
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.records import Arrival
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.ledger import LedgerProcess
from tests.support.processes.nodes import ERASURES, SNAPSHOTS, shortened

EVENT = "order-17"
DELIVERED, ECHOED, FAILED, PAUSED, DEAD = "t.well", "t.echo", "t.fails", "t.paused", "t.dead"
MANY = [f"t.many{number}" for number in range(20)]
PIECE = 16
"""Bytes of the mark that are looked for: a compressed block holds what does not repeat as it is."""


@pytest.fixture(autouse=True)
def _shortened() -> Iterator[None]:
    with shortened(ERASURES, SNAPSHOTS):
        yield


def places(directory: Path, mark: str) -> set[str]:
    """The files in which a piece of the mark lies, by the part of their path that says whose they are."""
    pieces = [mark[start : start + PIECE].encode() for start in range(0, len(mark) - PIECE, PIECE)]
    found = set()
    for path in (each for each in directory.rglob("*") if each.is_file()):
        data = path.read_bytes()
        if any(piece in data for piece in pieces):
            parts = path.relative_to(directory).parts
            found.add(parts[parts.index("streams") + 1] if "streams" in parts else path.name)
    return found


def body(mark: str) -> bytes:
    return msgspec.json.encode({"mark": mark})


async def test_no_store_holds_what_was_erased(fleet: Fleet, terminal: Terminal, tmp_path: Path) -> None:
    mark, kept = secrets.token_hex(64), secrets.token_hex(64)
    store = fleet.server.directory
    repeats = Reply(body=body(mark))
    fleet.sink.manners |= {
        ECHOED: lambda _: repeats,
        FAILED: lambda nth: Reply(status=500, body=body(mark)) if nth == 2 else Reply(),
        DEAD: lambda nth: Reply(status=400, body=body(mark if nth in (3, 4) else kept)),
    }
    await fleet.configure([DELIVERED, ECHOED, *MANY], order="relaxed")
    await fleet.configure([FAILED], retry={"base_s": 3600, "cap_s": 3600})
    await fleet.configure([PAUSED], paused=True)
    await fleet.configure([DEAD], retry={"rejected_attempts": 2, "base_s": 0.05})
    node = await fleet.start_ready()
    book = tmp_path / "ledger"
    book.mkdir()
    ledger = LedgerProcess(fleet, book / "ledger.db", tmp_path / "ledger.log")
    await ledger.start()
    subject = names.publish_event("t", "order.created")
    await fleet.js.publish(subject, body(kept), {"Angarium-Id": "before"})
    await fleet.js.publish(subject, body(mark), {"Angarium-Id": EVENT})
    await fleet.js.publish(subject, body(kept), {"Angarium-Id": "after"})

    async def everywhere() -> bool:
        letters = await fleet.read(names.dead_letters, names.dead("t.*"))
        waiting = len(await fleet.read(names.deliveries, names.deliveries_to(PAUSED)))
        tried = EVENT in got(fleet, FAILED)
        arrived = [each for each in (DELIVERED, ECHOED, *MANY) if len(got(fleet, each)) == 3]
        return len(letters) == 3 and waiting == 3 and tried and len(arrived) == len(MANY) + 2

    await fleet.until_true(everywhere, "it is delivered, fails, waits, and is dead")
    await fleet.js.publish(names.publish_to(PAUSED), body(mark), {"Angarium-Id": EVENT})  # A repeat.
    assert mark in msgspec.json.encode(await fleet.ask("inspect", ECHOED)).decode()
    expected = {names.events, names.deliveries, names.dead_letters, names.journal}
    await fleet.until(lambda: expected <= places(store, mark), "every store holds it")
    await fleet.until(lambda: bool(places(book, mark)), "the ledger has answers to it")

    done = await asyncio.to_thread(terminal.json, "erase", "--yes", "--event", EVENT)
    assert (done["done"], done["events"], done["discarded"]) == (True, 1, 2)
    assert done["deliveries"] == len(MANY) + 6
    assert done["requested_by"]
    assert places(store, mark) == set()
    await fleet.until(lambda: not places(book, mark), "the ledger forgets it, too")
    assert {names.events, names.deliveries} <= places(store, kept)
    for receiver in (DELIVERED, ECHOED, FAILED, PAUSED, DEAD, *MANY):
        assert mark not in msgspec.json.encode(await fleet.ask("inspect", receiver)).decode()

    # What waits goes on, under its own numbers, and nothing of it ever comes again.
    fleet.sink.manners.clear()
    arrived = {each: len(got(fleet, each)) for each in (PAUSED, FAILED)}
    await asyncio.to_thread(terminal.done, "receiver", "resume", PAUSED)
    await asyncio.to_thread(terminal.done, "receiver", "resume", FAILED)
    for receiver in (PAUSED, FAILED):
        await fleet.until_true(partial(all_came, fleet, receiver), "the others arrive")
        assert EVENT not in got(fleet, receiver)[arrived[receiver] :]
    assert [each.sequence for each in fleet.sink.arrivals[PAUSED]] == [1, 3]
    await ledger.stop()
    told = await asyncio.to_thread(
        terminal.done, "event", EVENT, "--ledger", f"sqlite:///{book / 'ledger.db'}"
    )
    assert "erased" in told
    await node.stop()


async def all_came(fleet: Fleet, receiver: str) -> bool:
    """True if the receiver has accepted the others."""
    accepted = {each.event_id for each in fleet.sink.arrivals[receiver] if each.status == 200}
    return {"before", "after"} <= accepted


def got(fleet: Fleet, receiver: str) -> list[Any]:
    """The ids of the events that arrived."""
    arrivals: list[Arrival] = fleet.sink.arrivals.get(receiver, [])
    return [each.event_id for each in arrivals]
