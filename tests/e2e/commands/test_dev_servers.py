"""`angarium dev --servers 3`: a cluster on this machine; any server may die, and data survives restarts."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from angarium.development.dev import keep
from streams.server.embedded import EmbeddedServer
from tests.support.free_ports import free_port
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with
from tests.support.waiting import until


@pytest.mark.soak
@pytest.mark.alone
def test_three_servers_lose_one_and_are_kept_after_restarts(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "")
    ports = ("--port", str(free_port()), "--api-port", str(free_port()))
    listen = ("listen", "--port", "0", "--json", "--count", "3")

    def publish(body: str) -> None:
        terminal.until(lambda: terminal.run("publish", "acme.kept", body).returncode == 0)

    with terminal.start(*listen) as listener:
        url = line_with(listener.stderr, "listening on").split()[-1]
        with running(terminal, *ports, "--servers", "3") as nats:
            terminal.done("receiver", "put", "acme.kept", "--url", url, "--unsigned", "--paused")
            publish("1")
        with running(terminal, *ports) as kept:
            publish("2")
            pid_file = tmp_path / ".angarium" / "server-1" / "nats-server.pid"
            send(signal.SIGSTOP, pid_file)  # a killed one is back before anyone looks
            behind = "server-1 has not caught up with "
            terminal.until(lambda: behind in terminal.run("doctor").stdout)
            send(signal.SIGKILL, pid_file)
            publish("3")
            terminal.until(lambda: terminal.run("receiver", "resume", "acme.kept").returncode == 0)
            out, _ = listener.communicate(timeout=PATIENCE_S)
    assert kept == nats
    assert nats.count(",") == 2
    events = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [(event["sequence"], event["body"]) for event in events] == [(1, "1"), (2, "2"), (3, "3")]


@contextmanager
def running(terminal: Terminal, *arguments: str) -> Iterator[str]:
    """A running `angarium dev`, to which the terminal's commands go; yields the URLs of its servers."""
    with terminal.start("dev", *arguments) as process:
        nats = line_with(process.stdout, "ready: NATS on ").split()[3]
        terminal.environment["ANGARIUM_NATS"] = nats
        yield nats
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err


def send(what: signal.Signals, pid_file: Path) -> None:
    os.kill(int(pid_file.read_text()), what)


@pytest.mark.parametrize(
    ("store", "servers", "why"),
    [
        ("server-1", "1", "has the store of 3 nats-servers"),
        ("jetstream", "3", "has the store of 1 nats-server"),
    ],
)
def test_a_store_is_not_used_by_another_number_of_servers(
    tmp_path: Path, store: str, servers: str, why: str
) -> None:
    (tmp_path / ".angarium" / store).mkdir(parents=True)
    error = Terminal(tmp_path, "").failed("dev", "--servers", servers)
    assert f"{tmp_path}/.angarium {why}: leave out --servers {servers}, or choose another --dir" in error


async def test_the_end_and_the_return_of_one_of_several_servers_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The node may be connected to another one, and say nothing."""
    caplog.set_level(logging.INFO, "angarium.development.dev")
    async with EmbeddedServer(tmp_path / "server-2", port=0) as server:
        keeping = asyncio.create_task(keep(server, logs_restarts=True))
        send(signal.SIGKILL, server.pid_file)
        await until(lambda: "server.back" in caplog.messages)
        keeping.cancel()
    assert caplog.messages == ["server.ended", "server.back"]
    assert {record.__dict__["server"] for record in caplog.records} == {"server-2"}


def test_servers_are_ours_alone(tmp_path: Path) -> None:
    error = Terminal(tmp_path, "").run("dev", "--servers", "3", "--nats", "nats://127.0.0.1:1").stderr
    assert "--servers is for the embedded server, --nats is for another one; give one of them" in error
