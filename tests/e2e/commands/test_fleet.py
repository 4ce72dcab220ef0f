"""`angarium fleet`: nodes and shards are shown, and a node is emptied and resumed by command."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.fleet.live_members import live_members
from streams.fleet.placement import PLACEMENT_VERSION, even_owners
from tests.contract.fleet.bucket_reads import show
from tests.support.fleet.fleet import SHARDS, Fleet, names, open_fleet
from tests.support.fleet.load import publish
from tests.support.fleet.sink import Hang
from tests.support.plain_http import plain_client
from tests.support.processes.commands import Terminal
from tests.support.processes.nodes import LONG_TTL_S


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with open_fleet(tmp_path, ttl_s=LONG_TTL_S) as fleet:
        yield fleet


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(trust_env=False, timeout=60) as client:
        yield client


async def document(terminal: Terminal, *arguments: str) -> Any:
    """The document that a command prints, while the test's own receivers go on answering."""
    return await asyncio.to_thread(terminal.json, *arguments)


async def owned(terminal: Terminal) -> dict[str, tuple[Any, ...]]:
    """Shards owned, shards to own, and whether it is drained, by node."""
    nodes = (await document(terminal, "fleet"))["nodes"]
    members = ("shards_owned", "shards_wanted", "draining")
    return {each["node"]: tuple(each[member] for member in members) for each in nodes}


async def owned_as(terminal: Terminal, expected: dict[str, tuple[int, int, bool]]) -> bool:
    return await owned(terminal) == expected


async def test_nodes_and_shards_are_shown(fleet: Fleet, terminal: Terminal) -> None:
    """A receiver that hangs holds its shard behind; a dead node's version differs."""
    fleet.sink.manners["t.slow"] = lambda _: Hang()
    await fleet.configure(["t.slow"], timeout_s=60)
    await fleet.start_ready("one")
    for number in range(3):
        await publish(fleet.js, "t.slow", str(number))
    await fleet.until(lambda: len(fleet.sink.arrivals["t.slow"]) == 1, "the first attempt hangs")
    assert await owned(terminal) == {"one": (SHARDS, SHARDS, False)}
    shards = await document(terminal, "fleet", "--shards")
    assert [each["shard"] for each in shards] == list(range(SHARDS))
    assert {(each["node"], each["alive"], each["refused"]) for each in shards} == {("one", True, None)}
    (behind,) = [each for each in shards if each["waiting"]]
    assert behind["waiting"] == 3
    assert behind["oldest_at"] is not None
    heading, *rows = terminal.done("fleet").splitlines()
    assert heading.split("\t") == ["node", "version", "since", "shards", "should own", "draining"]
    assert rows[0].split("\t")[3:] == [str(SHARDS), str(SHARDS), "no"]
    heading, *rows = terminal.done("fleet", "--shards").splitlines()
    assert heading.split("\t") == ["shard", "node", "since", "waiting", "oldest", "refused"]
    assert len(rows) == SHARDS
    await show(fleet.js, names, "other", ttl_s=60.0, placement=PLACEMENT_VERSION)
    doctor = await asyncio.to_thread(terminal.run, "doctor", "--json")
    assert "the nodes have different versions: " in doctor.stdout


async def test_a_node_is_drained_and_resumed(
    fleet: Fleet, terminal: Terminal, http: httpx.AsyncClient
) -> None:
    one = await fleet.start_ready("one")
    await fleet.start_ready("two")
    shares = Counter(even_owners(SHARDS, ["one", "two"]))
    shared = {node: (share, share, False) for node, share in shares.items()}
    await fleet.until_true(partial(owned_as, terminal, shared), "both have their share")
    assert (await document(terminal, "fleet", "drain", "one"))["nodes"][0]["node"] == "one"
    assert (await owned(terminal))["one"] == (0, 0, True)
    moved = {"one": (0, 0, True), "two": (SHARDS, SHARDS, False)}
    await fleet.until_true(partial(owned_as, terminal, moved), "the other has all shards")
    ready = await http.get(f"{one.monitor}/readyz")
    assert (ready.status_code, ready.text) == (
        503, "not ready: drained: it owns no shard until it is resumed\n"
    )  # fmt: skip
    assert "one is drained, and gets no shards" in (await asyncio.to_thread(terminal.run, "doctor")).stdout
    last = await asyncio.to_thread(terminal.failed, "fleet", "drain", "two")
    assert "no other live node would take the shards of two; start another one first" in last
    assert await document(terminal, "fleet", "resume", "one") == {"nodes": [{"node": "one"}]}
    await fleet.until_true(partial(owned_as, terminal, shared), "both have their share again")
    assert (await http.get(f"{one.monitor}/readyz")).status_code == 200


async def test_all_workers_of_a_machine_are_drained_by_its_name(fleet: Fleet, terminal: Terminal) -> None:
    """A name that is given twice counts once, and another machine's name only reads alike."""
    everyone = ("one-1", "one-2", "one-b", "oneself-1")
    for node in everyone:
        await fleet.start(node)

    async def are_members(*expected: str) -> bool:
        return [each.node for each in (await live_members(fleet.js, names))[0]] == list(expected)

    await fleet.until_true(partial(are_members, *everyone), "all are members")
    drained = await asyncio.to_thread(terminal.done, "fleet", "drain", "one", "one-1")
    assert drained == "".join(
        f"{node} is drained and owns no shards; to undo: angarium fleet resume {node}\n"
        for node in ("one-1", "one-2")
    )
    draining = [each.node for each in (await live_members(fleet.js, names))[0] if each.draining]
    assert draining == ["one-1", "one-2"]
    last = await asyncio.to_thread(terminal.failed, "fleet", "drain", "one-b", "oneself")
    assert "no other live node would take the shards of one-b and oneself-1; start another one first" in last
    resumed = await asyncio.to_thread(terminal.done, "fleet", "resume", "one")
    assert resumed == "one-1 takes part again\none-2 takes part again\n"
    assert not any(each.draining for each in (await live_members(fleet.js, names))[0])


async def test_shards_without_an_owner_are_noted(fleet: Fleet, terminal: Terminal) -> None:
    never = await asyncio.to_thread(terminal.run, "fleet")
    assert f"note: {SHARDS} shards have no live node: start one (angarium node)" in never.stderr
    one = await fleet.start_ready("one")
    assert "no live node" not in (await asyncio.to_thread(terminal.run, "fleet")).stderr
    await one.stop()
    await show(fleet.js, names, "idle", ttl_s=60.0, placement=PLACEMENT_VERSION)
    stopped = (await asyncio.to_thread(terminal.run, "fleet")).stderr
    assert re.search(
        rf"{SHARDS} shards have had no live node since \S+Z: if this lasts, see angarium doctor", stopped
    )


async def test_a_drain_lasts_after_ctrl_c(fleet: Fleet, terminal: Terminal) -> None:
    """An attempt holds the last shard back, so that the command waits."""
    fleet.sink.manners["t.slow"] = lambda _: Hang()
    await fleet.configure(["t.slow"], timeout_s=60)
    await fleet.start_ready("one")
    await publish(fleet.js, "t.slow", "hangs")
    await fleet.until(lambda: len(fleet.sink.arrivals["t.slow"]) == 1, "the attempt has begun")
    await show(fleet.js, names, "other", ttl_s=60.0, placement=PLACEMENT_VERSION)

    async def last_shard_is_held() -> bool:
        return list((await fleet.owners()).values()) == ["one"]

    with terminal.start("fleet", "drain", "one") as command:
        await fleet.until_true(last_shard_is_held, "all shards but one are handed over")
        command.send_signal(signal.SIGINT)
        _, told = await asyncio.to_thread(command.communicate)
    assert command.returncode == 130
    assert told.endswith("interrupted; one stays drained; to undo: angarium fleet resume one\n")
    members, _ = await live_members(fleet.js, names)
    assert [each.node for each in members if each.draining] == ["one"]
    await show(fleet.js, names, "other", ttl_s=60.0)
    doctor = await asyncio.to_thread(terminal.run, "doctor")
    assert "one is drained, but gets shards: no other node can take them" in doctor.stdout


async def test_a_drain_that_is_not_possible_is_refused(fleet: Fleet, terminal: Terminal) -> None:
    assert "there is no live node one; the live ones: none" in terminal.failed("fleet", "drain", "one")
    await fleet.start_ready("one")
    await fleet.start_ready("two")
    unknown = terminal.failed("fleet", "drain", "three")
    assert "there is no live node three; the live ones: one, two; see angarium fleet" in unknown
    assert "there is no live node three" in terminal.failed("fleet", "resume", "three")
    await show(fleet.js, names, "older", ttl_s=60.0)
    older = terminal.failed("fleet", "drain", "one")
    assert "not every live node knows how to leave out a drained one: older (1); upgrade" in older
    assert all(not each.draining for each in (await live_members(fleet.js, names))[0])
