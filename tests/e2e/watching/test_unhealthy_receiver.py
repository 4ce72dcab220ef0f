"""An unhealthy receiver: the log says so once, the list shows it, and the doctor names it."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import publish
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.waiting import COMMAND_LOOK_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

GONE, WELL, FRESH = "t.gone", "t.well", "u.fresh"


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    return shared_fleet


async def test_an_unhealthy_receiver_is_named_everywhere(fleet: Fleet, terminal: Terminal) -> None:
    fleet.sink.manners[GONE] = lambda _: Reply(status=410)
    await fleet.configure([GONE, WELL, FRESH])
    for receiver in (GONE, WELL):
        for event_id in ("a", "b"):
            await publish(fleet.js, receiver, f"{receiver.replace('.', ':')}-{event_id}", b"{}")
    (node,) = fleet.nodes.values()
    await fleet.hears(node, "receiver.disabled")
    rows: dict[str, dict[str, Any]] = {}

    async def listed() -> bool:
        found = await asyncio.to_thread(terminal.json, "receiver", "list")
        rows.update((row["receiver"], row) for row in found)
        well = [[rows[each][name] for name in ("phase", "waiting", "oldest_at")] for each in (WELL, FRESH)]
        gone = (rows[GONE]["phase"], rows[GONE]["waiting"])
        return gone == ("disabled", 2) and well == [["idle", 0, None]] * 2

    # Its figures are as old as the snapshots.
    await fleet.until_true(listed, "the list shows it", COMMAND_LOOK_S)
    assert rows[GONE]["disabled"] == "gone"
    assert rows[GONE]["oldest_at"] is not None
    only = await asyncio.to_thread(terminal.done, "receiver", "list", "--phase", "disabled")
    assert [line.split("\t")[0] for line in only.splitlines()] == ["receiver", GONE]
    assert only.splitlines()[1].split("\t")[7:9] == ["disabled", "2"]
    assert await asyncio.to_thread(terminal.json, "receiver", "list", "u", "--phase", "disabled") == []

    done = await asyncio.to_thread(terminal.run, "doctor")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    summary = lines.index(next(line for line in lines if line.startswith("warning")))
    assert "1 of 3 receivers are unhealthy (as of " in lines[summary]
    assert f"{GONE} has been disabled for " in lines[summary + 1]
    assert "(it answered 410); 2 events wait, the oldest for " in lines[summary + 1]
    assert lines[summary + 1].endswith(f"(angarium receiver resume {GONE})")
    findings = json.loads((await asyncio.to_thread(terminal.run, "doctor", "--json")).stdout)
    assert {each["level"] for each in findings} == {"ok", "warning"}
    assert all(each["ok"] for each in findings)

    del fleet.sink.manners[GONE]
    await fleet.ask("resume", GONE)
    await fleet.hears(node, "receiver.recovered")
    said = [each for each in node.said if each["event"] in ("receiver.disabled", "receiver.recovered")]
    assert [(each["event"], each["receiver"], each["why"], each["level"]) for each in said] == [
        ("receiver.disabled", GONE, "it answered 410", "warning"),
        ("receiver.recovered", GONE, "it was resumed", "info"),
    ]
