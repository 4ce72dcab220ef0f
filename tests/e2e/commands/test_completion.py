"""Completion in the shell: names of receivers if a server runs, nothing if none does."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.installation.topology import Names
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer
from tests.contract.fleet.bucket_reads import show
from tests.support.processes.commands import COMMAND, FORKS, PATIENCE_S, Terminal

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def completed(terminal: Terminal, *words: str, nats: str = "") -> list[str]:
    """Returns the completions that Tab offers behind these words."""
    asked = {"_ANGARIUM_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["angarium", *words])}
    asked["COMP_CWORD"] = str(len(words))
    environment = terminal.environment | asked | ({"ANGARIUM_NATS": nats} if nats else {})
    done = FORKS.run([], b"", terminal.directory, environment, PATIENCE_S)
    assert done.stderr == b""
    offered = done.stdout.decode()
    assert SECRET not in offered
    return [line.removeprefix("plain,") for line in offered.split()]


async def show_node(url: str, node: str) -> None:
    """A heartbeat, as of a live node."""
    wire = await connect(ConnectOptions(servers=(url,)))
    js = JetStream(wire)
    await js.start()
    await show(js, Names("angarium"), node, ttl_s=60.0)
    await js.stop()
    await wire.close()


async def test_receivers_and_nodes_are_offered(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", port=0) as server:
        terminal = Terminal(tmp_path, server.url)
        terminal.done("setup")
        for name in ("acme.billing", "acme.stock", "acre.field", "globex.billing"):
            terminal.done("receiver", "put", name, "--url", "https://example.com", "--secret", SECRET)
        terminal.done("receiver", "rm", "acme.stock", "--yes")
        assert completed(terminal, "receiver", "get", "ac") == ["acme.billing", "acre.field"]
        assert completed(terminal, "receiver", "put", "acme.") == ["acme.billing"]
        assert completed(terminal, "inspect", "--prefix", "other", "ac") == []
        assert completed(terminal, "publish", "globex") == ["globex.billing"]
        assert completed(terminal, "dead", "redrive", "acre.field", "gl") == ["globex.billing"]
        for node in ("one-1", "one-2", "two"):
            await show_node(server.url, node)
        assert completed(terminal, "fleet", "drain", "one-2", "on") == ["one-1", "one-2"]
        assert completed(terminal, "fleet", "resume", "t") == ["two"]


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"nats://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("away", ["nats://127.0.0.1:1", "http://no-server", "mute"])
def test_nothing_is_offered_and_nothing_said_where_nats_is_away(tmp_path: Path, mute: str, away: str) -> None:
    terminal = Terminal(tmp_path, mute if away == "mute" else away)
    assert completed(terminal, "receiver", "get", "ac") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    environment = Terminal(tmp_path, "nats://127.0.0.1:1").environment
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        env=environment | {"_ANGARIUM_COMPLETE": f"{shell}_source"},
        timeout=PATIENCE_S,
    )
    assert f"_ANGARIUM_COMPLETE={shell}_complete" in done.stdout
    assert "angarium" in done.stdout
    assert done.stderr == ""
