"""`angarium event`: what delays an event, wherever it waits: at its receiver, sent again, or unrouted."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.forks import SHORTENED
from tests.support.processes.ledger import LedgerProcess
from tests.support.waiting import COMMAND_LOOK_S

AT_ONCE = {"ON_ITS_WAY_S": 0.0, "ROUTED_WITHIN_S": 0.0}
"""Ages up to which events may be on their way."""


async def test_an_event_says_what_holds_it_up(fleet: Fleet, terminal: Terminal, tmp_path: Path) -> None:
    terminal.environment |= {
        "ANGARIUM_LEDGER": f"sqlite:///{tmp_path / 'ledger.db'}",
        SHORTENED: json.dumps(AT_ONCE),
    }
    fleet.sink.manners |= {
        "shop.off": lambda _: Reply(status=410),
        "shop.bad": lambda nth: Reply(status=422 if nth == 1 else 200),
    }
    await fleet.configure(["shop.off"], events=["order.*"])
    await fleet.configure(["shop.bad"], events=["bill.*"], retry={"rejected_attempts": 1})
    node = await fleet.start_ready()
    ledger = LedgerProcess(fleet, tmp_path / "ledger.db", tmp_path / "said")
    await ledger.start()

    async def come_to(event: str, holds: Callable[[list[str]], bool]) -> list[str]:
        """Ask about the event until the answer is the right one; returns its lines."""
        told: list[str] = []

        async def right() -> bool:
            told[:] = (await asyncio.to_thread(terminal.run, "event", event)).stdout.splitlines()
            return holds(told)

        await fleet.until_true(right, f"it is said of {event}", COMMAND_LOOK_S)
        return told

    subject = names.publish_event("shop", "order.created")
    await fleet.js.publish(subject, b"{}", {"Angarium-Id": "o1"})
    line, *_ = await come_to("o1", lambda told: "attempt 2" in "".join(told))
    # When it was published is said, too, if its copy was stored 10 ms later or more.
    assert re.match(r"shop\.off #1 \(order\.created\): waits for attempt 2, (published \S+, )?stored ", line)
    assert line.endswith(": disabled: it answered 410; to continue, run angarium receiver resume shop.off")

    await fleet.js.publish(names.publish_to("shop.bad"), b"{}", {"Angarium-Id": "b1"})
    dead, *_ = await come_to("b1", lambda told: "dead letter 1 (rejected)" in "".join(told))
    assert re.match(r"shop\.bad #1 \(\S+\): (published \S+, )?stored \S+, dead letter 1 \(rejected\) ", dead)
    assert dead.endswith("; to send it again: angarium dead redrive 1")
    await asyncio.to_thread(terminal.done, "receiver", "pause", "shop.bad")
    assert await asyncio.to_thread(terminal.done, "dead", "redrive", "shop") == "redriven 1 letter\n"
    first, *_, again = await come_to("b1", lambda told: "sent again" in "".join(told[-1:]))
    assert "dead letter (rejected)" in first
    assert again.startswith("shop.bad: waits at place 1 of 1, stored ")
    assert again.endswith(", sent again: paused; to continue, run angarium receiver resume shop.bad")

    await fleet.js.publish(subject, b"{}", {"Angarium-Id": "m1", "Content-Type": "\u00fc"})
    [line] = await come_to("m1", lambda told: "dead letter" in "".join(told))
    assert re.match(
        r"m1: it is dead letter (\d+), for shop\._events \(malformed: Content-Type: .*: angarium dead", line
    )
    assert (await asyncio.to_thread(terminal.json, "event", "m1"))["letter"] is not None

    await node.stop()
    for event in ("o2", "o3"):
        await fleet.js.publish(subject, b"{}", {"Angarium-Id": event})
    [line] = await come_to("o3", lambda told: "waits" in "".join(told))
    assert line.startswith(
        "o3: it waits to be routed: 1 event of shop comes before it; no live node owns partition "
    )
    assert (await asyncio.to_thread(terminal.json, "event", "o3"))["why_none"] == line.partition(": ")[2]
    top = await asyncio.to_thread(terminal.run, "top", "shop", "--once")
    assert "note: 2 events of shop wait to be routed, the oldest for " in top.stderr
    told = await asyncio.to_thread(terminal.failed, "event", "o9")
    assert "event o9 is unknown: it was never published under this id, or so long ago" in told
    await ledger.stop()


async def test_an_event_that_waits_for_its_time_or_was_cancelled_is_known(
    fleet: Fleet, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.environment |= {"ANGARIUM_LEDGER": f"sqlite:///{tmp_path / 'ledger.db'}"}
    await fleet.configure(["shop.all"])
    await fleet.start_ready()
    ledger = LedgerProcess(fleet, tmp_path / "ledger.db", tmp_path / "said")
    await ledger.start()
    publish = ("publish", "shop", "{}", "--type", "order", "--id", "t1", "--at", "1h")
    await asyncio.to_thread(terminal.done, *publish)

    async def waits() -> bool:
        found = await asyncio.to_thread(terminal.run, "event", "t1")
        return found.returncode == 0 and found.stdout.startswith("t1: it waits for its time, 2")

    await fleet.until_true(waits, "the event waits", COMMAND_LOOK_S)
    await asyncio.to_thread(terminal.done, "later", "cancel", "shop", "t1")
    assert await asyncio.to_thread(terminal.done, "event", "t1") == "t1: it was cancelled before its time\n"
    await ledger.stop()
