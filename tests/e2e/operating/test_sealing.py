"""Sealed secrets in a whole installation: a node without the key, a rotation that is killed, and a needle."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from streams.nats.answers import Stored
from streams.sealing.key_file import new_key_line
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import publish
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.ledger import LedgerProcess
from tests.support.processes.nodes import PROFILES, SNAPSHOTS, shortened
from tests.support.secrecy import CREDENTIAL, SECRET, secrets_in

RECEIVER, OTHER = "t.r", "t.other"
OLD, NEW = new_key_line("old"), new_key_line("new")
RECEIVERS = 600


class KeyFile:
    """The key file that nodes and commands in the directory find in their settings."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "keys"
        (directory / "angarium.toml").write_text(f'key_file = "{self.path}"\n')

    def write(self, *lines: str) -> None:
        self.path.touch(mode=0o600)
        self.path.write_text("\n".join(lines))


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path)


async def put(fleet: Fleet, terminal: Terminal, receiver: str) -> None:
    """Put a receiver of the sink by the command."""
    members = {
        "url": fleet.sink.url(receiver), "secrets": [SECRET], "headers": {"authorization": CREDENTIAL},
        "retry": {"base_s": 0.05, "cap_s": 0.2, "rejected_attempts": 2},
    }  # fmt: skip
    document = json.dumps(members).encode()
    await asyncio.to_thread(terminal.done, "receiver", "put", receiver, "--file", "-", stdin=document)


async def stored(fleet: Fleet, receiver: str) -> bytes:
    message = await fleet.js.last_message(names.receivers, names.receiver(receiver))
    assert message is not None
    return message.data


def told_by_files(directory: Path, key_file: Path) -> list[Path]:
    """The files of servers, logs and ledgers that contain a secret or a key."""
    keys = [line.split()[1] for line in (OLD, NEW)]
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and path != key_file:
            text = path.read_bytes().decode(errors="replace")
            if secrets_in(text) or any(key in text for key in keys):
                found.append(path)
    return found


async def test_a_receiver_waits_for_its_key_and_others_go_on(
    fleet: Fleet, terminal: Terminal, key_file: KeyFile
) -> None:
    key_file.write(NEW, OLD)
    await put(fleet, terminal, RECEIVER)
    key_file.write(OLD)
    await put(fleet, terminal, OTHER)
    with shortened(PROFILES):
        node = await fleet.start_ready()
    for receiver in (RECEIVER, OTHER):
        await publish(fleet.js, receiver, f"a-{receiver}", b"{}")
    arrivals = fleet.sink.arrivals
    await fleet.until(lambda: len(arrivals[OTHER]) == 1, "the other one gets its event")
    state = await fleet.ask("inspect", RECEIVER)
    assert state["phase"] == "misconfigured"
    assert "is sealed by the key new; add that key to the key file" in state["why"]
    shown = await asyncio.to_thread(terminal.done, "inspect", RECEIVER)
    assert "it continues once its node has the key" in " ".join(shown.split())
    assert not arrivals[RECEIVER]

    key_file.write(OLD, NEW)
    await fleet.hears(node, "file.reloaded")
    await fleet.until(lambda: len(arrivals[RECEIVER]) == 1, "the event comes once the key is there")
    assert fleet.sink.latest[RECEIVER].headers["authorization"] == CREDENTIAL

    moved = await stored(fleet, OTHER)
    assert isinstance(await fleet.js.publish(names.receiver(RECEIVER), moved), Stored)
    await fleet.hears(node, "receiver.invalid", 2)
    await publish(fleet.js, RECEIVER, "b-1", b"{}")
    state = await fleet.ask("inspect", RECEIVER)
    assert state["phase"] == "misconfigured"
    assert "sealed for another receiver or member" in state["why"]
    assert state["remedy"] == "put"
    await publish(fleet.js, OTHER, "b-2", b"{}")
    await fleet.until(lambda: len(arrivals[OTHER]) == 2, "the other one goes on")
    said = await asyncio.to_thread(terminal.run, "doctor")
    assert said.returncode == 1
    assert (
        f"the secrets of {RECEIVER} cannot be opened: secrets[0]: was changed, or sealed for another receiver"
        in " ".join(said.stdout.split())
    )
    assert len(arrivals[RECEIVER]) == 1


async def test_the_commands_make_keys_and_count_what_they_seal(
    fleet: Fleet, terminal: Terminal, tmp_path: Path
) -> None:
    await put(fleet, terminal, OTHER)
    status = await asyncio.to_thread(terminal.done, "key", "status")
    assert status == f"unencrypted: 1 receiver ({OTHER})\n"
    assert "give a key file" in await asyncio.to_thread(terminal.failed, "key", "rotate", status=2)
    line = await asyncio.to_thread(terminal.done, "key", "new", "prod")
    KeyFile(tmp_path).write(line)
    assert (await asyncio.to_thread(terminal.done, "key", "new")) != line
    said = await asyncio.to_thread(terminal.failed, "key", "new", "a.b", status=2)
    assert "the ID must be 1 to 32" in said
    await put(fleet, terminal, RECEIVER)
    status = await asyncio.to_thread(terminal.done, "key", "status")
    assert status == f"prod: 1 receiver (the first of the key file)\nunencrypted: 1 receiver ({OTHER})\n"
    done = await asyncio.to_thread(terminal.done, "key", "rotate")
    assert done == "sealed 1 receiver with prod; already sealed: 1\n"
    status = await asyncio.to_thread(terminal.done, "key", "status")
    assert status.endswith("new secrets are stored only by processes that have the key file\n")
    (tmp_path / "angarium.toml").unlink()
    refused = await asyncio.to_thread(terminal.failed, "receiver", "rotate-secret", OTHER, status=2)
    assert "this process has no key to seal with" in refused
    (tmp_path / "keys").chmod(0o644)
    named = ("key", "status", "--key-file", str(tmp_path / "keys"))
    assert "chmod 600" in await asyncio.to_thread(terminal.failed, *named, status=2)


async def test_a_rotation_that_is_killed_is_finished_by_the_next_one(
    fleet: Fleet, terminal: Terminal, key_file: KeyFile
) -> None:
    key_file.write(OLD)
    receivers = [f"t{number % 7}.r{number}" for number in range(RECEIVERS)]
    document = {
        "receivers": {name: {"url": "https://example.com/", "secrets": [SECRET]} for name in receivers}
    }
    await asyncio.to_thread(
        terminal.done, "apply", "--yes", "--file", "-", stdin=json.dumps(document).encode()
    )
    key_file.write(NEW, OLD)

    async def sealed_with(key: str) -> int:
        prefix = b"sealed:%s:" % key.encode()
        return sum(prefix in message.data for message in await fleet.read(names.receivers, "$KV.*.>"))

    assert await sealed_with("old") == RECEIVERS
    with terminal.start("key", "rotate") as rotation:

        async def has_begun() -> bool:
            return await sealed_with("new") > 0

        await fleet.until_true(has_begun, "the rotation has begun", look_s=0.0)
        rotation.kill()
    assert 0 < await sealed_with("new") < RECEIVERS
    status = await asyncio.to_thread(terminal.json, "key", "status")
    assert status["receivers"].keys() == {"old", "new"}
    done = await asyncio.to_thread(terminal.json, "key", "rotate")
    assert (done["sealed"] + done["already"], done["left"]) == (RECEIVERS, {})
    assert (done["sealed"] > 0, done["already"] > 0) == (True, True)
    assert (await sealed_with("new"), await sealed_with("old")) == (RECEIVERS, 0)
    key_file.write(NEW)
    assert (await asyncio.to_thread(terminal.json, "key", "status"))["unopened"] == {}


async def test_no_stream_log_or_file_has_a_secret_of_a_sealed_receiver(
    fleet: Fleet, terminal: Terminal, key_file: KeyFile, tmp_path: Path
) -> None:
    """`Fleet.ask`, `Terminal` and `Node` look for the secrets in answers, messages of commands, and logs."""
    key_file.write(OLD)
    ledger = LedgerProcess(fleet, tmp_path / "ledger.db", tmp_path / "ledger.log")
    await ledger.start()
    with shortened(PROFILES, SNAPSHOTS):
        node = await fleet.start_ready()
    await put(fleet, terminal, RECEIVER)
    await publish(fleet.js, RECEIVER, "a", b"{}")
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 1, "it is delivered")
    assert fleet.sink.latest[RECEIVER].headers["authorization"] == CREDENTIAL
    fleet.sink.manners[RECEIVER] = lambda _: Reply(status=422, headers=(("x-got", CREDENTIAL),))
    await publish(fleet.js, RECEIVER, "b", b"{}")

    async def buried() -> bool:
        return await fleet.js.last_message(names.dead_letters, names.dead(RECEIVER)) is not None

    await fleet.until_true(buried, "the event is a dead letter")
    for verb in ("ping", "pause", "inspect", "resume"):
        await fleet.ask(verb, RECEIVER)
    key_file.write(NEW, OLD)
    await fleet.hears(node, "file.reloaded")
    await asyncio.to_thread(terminal.done, "key", "rotate")
    shown = await asyncio.to_thread(terminal.done, "receiver", "get", RECEIVER)
    assert not secrets_in(shown)
    failed = await asyncio.to_thread(terminal.run, "receiver", "put", "t.", "--file", "-", stdin=b"{}")
    assert failed.returncode == 2

    async def in_the_ledger() -> bool:
        seen = await asyncio.to_thread(
            terminal.run, "history", RECEIVER, "--ledger", f"sqlite:///{tmp_path}/ledger.db"
        )
        return "put again, unchanged" in seen.stdout

    await fleet.until_true(in_the_ledger, "the ledger has the rotation", look_s=0.5)
    await node.stop()
    await ledger.stop()
    streams = (
        names.events, names.deliveries, names.journal, names.dead_letters, names.receivers, names.actors,
        names.nodes, names.tokens,
    )  # fmt: skip
    for stream in streams:
        info = await fleet.js.existing_stream(stream)
        for position in range(info.first, info.last + 1):
            message = await fleet.js.message(stream, position)
            if message is not None:
                assert not secrets_in(f"{message.headers} {message.data!r}"), message.subject
    assert told_by_files(tmp_path, key_file.path) == []
    assert b"sealed:new:" in await stored(fleet, RECEIVER)
    assert msgspec.json.decode(await stored(fleet, RECEIVER))["url"] == fleet.sink.url(RECEIVER)
