"""A running node as the nats CLI shows it: a live actor, its journal, its snapshot, and the members."""

import json
from pathlib import Path

import pytest

from tests.support.fleet.fleet import SHARDS, Fleet, shard
from tests.support.processes.nats_cli import NatsCli, last_json, needs_nats_cli

pytestmark = needs_nats_cli

RECEIVER = "t.watched"
JOURNAL = f"angarium.journal.{shard(RECEIVER)}"


@pytest.fixture
def cli(fleet: Fleet, tmp_path: Path) -> NatsCli:
    return NatsCli(fleet.server.url, tmp_path / "config")


async def test_the_nats_cli_shows_the_whole_state(fleet: Fleet, cli: NatsCli) -> None:
    """Two events were published with it, too; the second one waits, since the receiver is paused."""
    node = await fleet.start_ready("one")
    await cli("kv", "put", "angarium_receivers", RECEIVER, json.dumps({"url": fleet.sink.url(RECEIVER)}))
    await cli("pub", f"angarium.deliver.{RECEIVER}", '{"n": 1}', "-H", "Nats-Msg-Id:n-1")
    await fleet.until_true(lambda: settled(fleet), "the first event arrived and its outcome was heard")
    await cli("req", f"angarium.ctl.pause.{RECEIVER}", "")
    await cli("pub", f"angarium.deliver.{RECEIVER}", '{"n": 2}', "-H", "Nats-Msg-Id:n-2")
    await shows_the_actor(fleet, cli)
    await shows_the_node(cli)
    await shows_the_journal(cli)
    await node.stop()
    await shows_what_is_left(cli)


async def settled(fleet: Fleet) -> bool:
    """Before that, a pause could be recorded in front of the delivery."""
    if not fleet.sink.total:
        return False
    return bool((await fleet.ask("inspect", RECEIVER))["settled_sequence"] == 1)


async def shows_the_actor(fleet: Fleet, cli: NatsCli) -> None:
    async def waits() -> bool:
        shown = last_json(await cli("req", f"angarium.ctl.inspect.{RECEIVER}", ""))
        return (shown["phase"], shown["backlog"]) == ("paused", 1)

    await fleet.until_true(waits, "the second event waits")
    shown = last_json(await cli("req", f"angarium.ctl.inspect.{RECEIVER}", ""))
    assert shown["ok"] is True
    assert (shown["receiver"], shown["shard"], shown["node"]) == (RECEIVER, shard(RECEIVER), "one")
    assert (shown["next_sequence"], shown["settled_sequence"], shown["counters"]["delivered"]) == (2, 1, 1)
    assert (shown["last_attempt"]["event_id"], shown["last_attempt"]["status"]) == ("n-1", 200)
    assert "url" not in shown


async def shows_the_node(cli: NatsCli) -> None:
    assert " one " in await cli("micro", "ls")
    (stats,) = json.loads(await cli("micro", "stats", "angarium", "--json"))
    (endpoint,) = stats["endpoints"]
    assert (stats["id"], endpoint["name"]) == ("one", "ctl")
    assert endpoint["num_requests"] >= 3
    assert endpoint["data"]["shards"] == SHARDS
    assert json.loads(await cli("kv", "get", "angarium_nodes", "one", "--raw"))["node"] == "one"


async def shows_the_journal(cli: NatsCli) -> None:
    view = await cli.on_terminal("stream", "view", "ANGARIUM_JOURNAL", "25", "--subject", JOURNAL)
    facts = [json.loads(line)["facts"] for line in view.splitlines() if line.startswith('{"v":')]
    told = [fact["fact"] for flush in facts for fact in flush]
    assert told[0] == "claimed"
    assert [fact for fact in told if fact in ("opened", "delivered", "paused")] == [
        "opened", "delivered", "paused",
    ]  # fmt: skip
    last = await cli("stream", "get", "ANGARIUM_JOURNAL", "--last-for", JOURNAL)
    assert last_json(last)["node"] == "one"


async def shows_what_is_left(cli: NatsCli) -> None:
    """A node that stopped leaves its shards released and their actors' snapshots behind."""
    key = f"{shard(RECEIVER)}.{RECEIVER}"
    snapshot = json.loads(await cli("kv", "get", "angarium_actors", key, "--raw"))
    assert snapshot["state"]["receiver"] == RECEIVER
    assert snapshot["state"]["frontier"]["sequence"] == 1
    assert snapshot["state"]["paused"] is True
    owner = json.loads(await cli("kv", "get", "angarium_actors", f"{shard(RECEIVER)}._owner", "--raw"))
    assert owner["node"] == "one"
    assert owner["released"] is not None
