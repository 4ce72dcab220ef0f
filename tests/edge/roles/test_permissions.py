"""Commands whose user has no permission: one line, at once, with the remedy.

The server tells a refusal to the connection and not to the request, whose answer never comes.
"""

import logging
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from actors.errors import Unavailable
from actors.machine.facts import AlertRaised
from angarium.cli import main
from streams.alert_events import AlertWriter
from streams.nats.answers import Forbidden, Put, Stored
from streams.nats.connection import ConnectOptions, connect
from streams.nats.errors import ConnectError, NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.server import binary
from tests.support.installation import install
from tests.support.processes.commands import PATIENCE_S, Terminal
from tests.support.processes.roles import address_told_in

CONFIG = """
listen: "127.0.0.1:-1"
ports_file_dir: "{directory}"
jetstream {{ store_dir: "{directory}" }}
authorization {{ users: [
  {{ user: all, password: hush }}
  {{ user: mute, password: hush, permissions: {{ publish: {{ deny: ["$JS.API.>", "angarium.>"] }} }} }}
  {{ user: deaf, password: hush, permissions: {{ subscribe: {{ deny: ["_INBOX.>"] }} }} }}
  {{ user: private, password: hush, permissions: {{ subscribe: {{ allow: ["_INBOX_private.>"] }} }} }}
  {{ user: unread, password: hush, permissions: {{ publish: {{ deny: ["$JS.API.STREAM.MSG.GET.>"] }} }} }}
  {{ user: hidden, password: hush, permissions: {{ publish: {{ deny: ["$KV.angarium_nodes.>"] }} }} }}
  {{ nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }}
] }}
"""
REMEDY = "use another user, or permit it as deploy/nats/permissions.conf shows"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose users have different permissions."""
    directory = tmp_path_factory.mktemp("nats")
    config = directory / "nats-server.conf"
    config.write_text(CONFIG.format(directory=directory))
    server = subprocess.Popen([binary.find_nats_server(), "-c", config, "-l", directory / "log"])
    yield address_told_in(directory)
    server.kill()
    server.wait()


@pytest.fixture
def terminal(address: str, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, f"nats://hidden:hush@{address}")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["setup"], "publish to $JS.API.INFO"),
        (["publish", "acme.x", "{}"], "refused: NATS does not permit this user to publish to angarium."),
        (["receiver", "list"], "publish to $JS.API.DIRECT.GET.KV_angarium_receivers"),
        (["receiver", "put", "acme.x", "--url", "https://x.example"], "publish to $JS.API.STREAM.MSG.GET"),
        (["receiver", "forget", "acme.x"], "publish to $JS.API.STREAM.INFO.ANGARIUM_DELIVERIES"),
        (["inspect", "acme.x"], "publish to angarium.ctl.inspect.acme.x"),
        (["dead", "list"], "publish to $JS.API.STREAM.MSG.GET.ANGARIUM_DEAD"),
        (["repair", "--accept-loss", "0"], "publish to $JS.API.STREAM.MSG.GET.KV_angarium_actors"),
    ],
)
def test_a_command_says_what_is_not_permitted(
    address: str, arguments: list[str], refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*arguments, "--nats", f"nats://mute:hush@{address}"]) == main.EXIT_FAILED
    error = capsys.readouterr().err
    assert refused in error
    assert REMEDY in error
    assert error.count("\n") == 1


def test_doctor_reports_missing_permissions(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor", "--nats", f"nats://deaf:hush@{address}"]) == main.EXIT_FAILED
    assert "does not permit this user to subscribe to _INBOX." in capsys.readouterr().out


def test_a_command_uses_the_inbox_prefix_of_its_flag(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nats = ["--nats", f"nats://private:hush@{address}"]
    setup = ["setup", "--prefix", "private", "--shards", "1", "--max-bytes", "1MiB", *nats]
    assert main.run(setup) == main.EXIT_FAILED
    assert "does not permit this user to subscribe to _INBOX." in capsys.readouterr().err
    assert main.run([*setup, "--inbox-prefix", "_INBOX_private"]) == 0
    assert "PRIVATE_DELIVERIES" in capsys.readouterr().out


async def test_every_publish_is_told_that_it_is_forbidden(address: str) -> None:
    wire = await connect(ConnectOptions(servers=(f"nats://deaf:hush@{address}",)))
    js = JetStream(wire)
    await js.start()
    for _ in range(2):
        assert isinstance(await js.publish("anything", b"", timeout_s=PATIENCE_S), Forbidden)
        (answer,) = await js.publish_all([Put("anything", b"")], timeout_s=PATIENCE_S)
        assert isinstance(answer, Forbidden)
    with pytest.raises(NotPermitted, match="subscribe to _INBOX"):
        await retry_for_command(js.stream_info, "ANGARIUM_EVENTS")
    await js.stop()
    await wire.close()


async def test_others_who_wait_are_not_disturbed(address: str) -> None:
    wire = await connect(ConnectOptions(servers=(f"nats://hidden:hush@{address}",)))
    js = JetStream(wire)
    await js.start()
    await js.stream_create({"name": "OTHERS", "subjects": ["others"]})
    assert isinstance(await js.publish("$KV.angarium_nodes.me", b""), Forbidden)
    assert isinstance(await js.publish("others", b""), Stored)
    forbidden, stored = await js.publish_all([Put("$KV.angarium_nodes.me", b""), Put("others", b"")])
    assert isinstance(forbidden, Forbidden)
    assert isinstance(stored, Stored)
    await js.stop()
    await wire.close()


async def test_refusals_that_alternate_are_logged_once(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await connect(ConnectOptions(servers=(f"nats://mute:hush@{address}",)))
    js = JetStream(wire)
    await js.start()
    for subject in ("angarium.one", "angarium.two") * 2:
        assert isinstance(await js.publish(subject, b""), Forbidden)
    await js.stop()
    await wire.close()
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert ["one" in each for each in told] == [True, False]


async def test_credentials_that_are_none(address: str, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.creds"
    garbage.write_text("no credentials at all\n")
    with pytest.raises(ConnectError, match=r"a key cannot be used .*; check the files of creds and nkey"):
        await connect(ConnectOptions(servers=(f"nats://{address}",), credentials=str(garbage)))


async def test_an_alert_whose_event_cannot_be_looked_up_waits_and_says_why(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """JetStream takes the event for a duplicate, and the node may not see whether the stored one is its."""
    alert = AlertRaised(receiver="acme.shop", alert="failing", number=1, at=1_700_000_000.0)
    async with connected(address, "unread") as js, connected(address, "all") as other:
        names = await install(other, "alerts")
        writer = AlertWriter(js, names)
        await writer.publish(alert)
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"MSG\.GET"):
                await writer.publish(alert)
        await AlertWriter(other, names).publish(alert)
        assert (await other.existing_stream(names.events)).messages == 1
    told = [each.__dict__["why"] for each in caplog.records if each.getMessage() == "alert.waiting"]
    assert len(told) == 1
    assert f"publish to $JS.API.STREAM.MSG.GET.ALERTS_EVENTS: {REMEDY}" in told[0]


@asynccontextmanager
async def connected(address: str, user: str) -> AsyncIterator[JetStream]:
    """A connection of one of the users."""
    wire = await connect(ConnectOptions(servers=(f"nats://{user}:hush@{address}",)))
    js = JetStream(wire)
    await js.start()
    yield js
    await js.stop()
    await wire.close()


def test_a_node_that_may_not_join_ends_and_says_why(terminal: Terminal, address: str) -> None:
    terminal.done("setup", "--nats", f"nats://all:hush@{address}")
    ended = terminal.run("node", "--node", "one")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith(f"to publish to $KV.angarium_nodes.one: {REMEDY}")
