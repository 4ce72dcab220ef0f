"""`angarium top`: names what delays each backlog, while it does."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.forks import SHORTENED
from tests.support.waiting import COMMAND_LOOK_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = {
    "t.rated": "rate", "t.slow": "latency", "t.fails": "failure", "t.paused": "pause", "t.busy": "throttle",
    "t.well": None,
}  # fmt: skip
WAITING = 40
RECENT = {"RECENT_SPAN_S": 3.0}
"""Period that `top` looks back on, so that the arrivals of the beginning are soon over."""


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    return shared_fleet


async def test_the_limit_of_each_backlog_is_named(fleet: Fleet, terminal: Terminal) -> None:
    terminal.environment[SHORTENED] = json.dumps(RECENT)
    fleet.sink.manners |= {
        "t.slow": lambda _: Reply(delay_s=1.0),
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

    await fleet.until_true(arrivals_over, "its arrivals are not of the last seconds any more", COMMAND_LOOK_S)
    assert rows["t.paused"]["waiting"] == WAITING
    assert rows["t.paused"]["empty_in_s"] is None
    assert rows["t.rated"]["empty_in_s"] == 2 * rows["t.rated"]["waiting"]  # A token in two seconds.
    assert rows["t.well"]["empty_in_s"] == 0.0

    table = (await asyncio.to_thread(terminal.done, "top", "--limit", "1")).splitlines()
    columns = ["receiver", "phase", "waiting", "oldest", "in", "out", "empty in", "limit"]
    assert table[0].split("\t") == columns
    assert len(table) == 2
    listed = await asyncio.to_thread(terminal.done, "receiver", "list", "t")
    [paused] = [line.split("\t") for line in listed.splitlines() if line.startswith("t.paused\t")]
    assert paused[-2:] == ["never", "a pause"]
