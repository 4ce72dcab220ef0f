"""`angarium top`: what keeps each backlog from going is named, while it does."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import Terminal
from tests.e2e.fleet import SHARDS, Fleet, names
from tests.e2e.sink import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = {
    "t.rated": "rate", "t.slow": "latency", "t.fails": "failure", "t.paused": "pause", "t.busy": "throttle",
    "t.well": None,
}  # fmt: skip
WAITING = 40


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    return shared_fleet


@pytest.fixture
def terminal(fleet: Fleet, tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path, fleet.server.url)
    terminal.environment["ANGARIUM_SHARDS"] = str(SHARDS)
    return terminal


async def test_the_limit_of_each_backlog_is_named(fleet: Fleet, terminal: Terminal) -> None:
    fleet.sink.manners |= {
        "t.slow": lambda _: Reply(delay_s=3.0),
        "t.fails": lambda _: Reply(status=500),
        "t.busy": lambda _: Reply(status=429, headers=(("retry-after", "3600"),)),
    }
    await fleet.configure(["t.slow", "t.fails", "t.busy", "t.well"])
    await fleet.configure(["t.rated"], rate={"limit": 0.5, "per": "second", "burst": 1})
    await fleet.configure(["t.paused"], paused=True)
    for number in range(WAITING):
        for receiver in LIMITS:
            await fleet.js.publish(
                names.publish_to(receiver), b"{}", {"Angarium-Id": f"{receiver[2:]}-{number}"}
            )
    rows: dict[str, dict[str, Any]] = {}

    async def named() -> bool:
        picture = await asyncio.to_thread(terminal.json, "top", "t")
        rows.update((row["receiver"], row) for row in picture["receivers"])
        # Nothing waits for the one that is well; in a moment of ill luck its last event is on its way.
        return {each: rows[each]["limited_by"] for each in LIMITS} == LIMITS and not rows["t.well"]["waiting"]

    async def arrivals_over() -> bool:
        return await named() and rows["t.rated"]["in_per_s"] == 0.0

    await fleet.until_true(arrivals_over, "its arrivals are not of the last seconds any more")
    assert rows["t.paused"]["waiting"] == WAITING
    assert rows["t.paused"]["drain_s"] is None
    assert rows["t.rated"]["drain_s"] == 2 * rows["t.rated"]["waiting"]  # A token in two seconds.
    assert rows["t.well"]["drain_s"] == 0.0

    table = (await asyncio.to_thread(terminal.done, "top", "--limit", "1")).splitlines()
    assert table[0].split("\t") == ["receiver", "phase", "waiting", "oldest", "in", "out", "drained", "limit"]
    assert len(table) == 2
    listed = await asyncio.to_thread(terminal.done, "receiver", "list", "t")
    [paused] = [line.split("\t") for line in listed.splitlines() if line.startswith("t.paused\t")]
    assert paused[-2:] == ["never", "a pause"]
