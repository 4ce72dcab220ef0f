"""A login that may read everything and write nothing: each command says so, and not that it may have written.

A person who reads "NATS did not confirm it" looks for a change that cannot be there, or makes it twice.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.server import binary
from tests.support.processes.commands import Terminal
from tests.support.processes.roles import address_told_in

CONFIG = """
listen: "127.0.0.1:-1"
ports_file_dir: "{directory}"
jetstream {{ store_dir: "{directory}" }}
authorization {{ users: [
  {{ user: all, password: hush }}
  {{ user: reader, password: hush, permissions: {{ publish: {{ deny: ["$KV.>", "angarium.>"] }} }} }}
] }}
"""
REFUSAL = (
    r"angarium: (refused: |acme\.applied: )?NATS does not permit this user to publish to {subject}: "
    r"use another user, or permit it as deploy/nats/permissions.conf shows\n"
)
FLEET = """
[receivers."acme.applied"]
url = "https://x.example/"
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an installation and a receiver."""
    directory = tmp_path_factory.mktemp("nats")
    config = directory / "nats-server.conf"
    config.write_text(CONFIG.format(directory=directory))
    server = subprocess.Popen([binary.find_nats_server(), "-c", config, "-l", directory / "log"])
    address = address_told_in(directory)
    writer = Terminal(directory, f"nats://all:hush@{address}")
    writer.done("setup")
    writer.done("receiver", "put", "acme.there", "--url", "https://x.example/")
    yield address
    server.kill()
    server.wait()


@pytest.fixture
def reader(address: str, tmp_path: Path) -> Terminal:
    """The login that may only read."""
    (tmp_path / "fleet.toml").write_text(FLEET)
    return Terminal(tmp_path, f"nats://reader:hush@{address}")


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("token create acme --scope publish", r"\$KV\.angarium_tokens\.\w+"),
        ("receiver put acme.new --url https://x.example/", r"\$KV\.angarium_receivers\.acme\.new"),
        ("receiver put acme.there --url https://y.example/", r"\$KV\.angarium_receivers\.acme\.there"),
        ("receiver set acme.there --rate 5/second", r"\$KV\.angarium_receivers\.acme\.there"),
        ("receiver rotate-secret acme.there", r"\$KV\.angarium_receivers\.acme\.there"),
        ("receiver rm acme.there --yes", r"\$KV\.angarium_receivers\.acme\.there"),
        ("apply -f fleet.toml", r"\$KV\.angarium_receivers\.acme\.applied"),
        ("erase --event e-1 --tenant acme --yes", r"\$KV\.angarium_actors\._erased\.\S+"),
        ("publish acme.there {}", r"angarium\.deliver\.acme\.there"),
    ],
)
def test_a_command_that_may_not_write_says_so_and_not_that_it_may_have_written(
    reader: Terminal, command: str, subject: str
) -> None:
    assert re.fullmatch(REFUSAL.format(subject=subject), reader.failed(*command.split()))


def test_a_token_that_may_not_be_revoked_is_said_to_be_so(reader: Terminal, address: str) -> None:
    writer = Terminal(reader.directory, f"nats://all:hush@{address}")
    token = writer.json("token", "create", "acme", "--scope", "read")["id"]
    refusal = reader.failed("token", "revoke", token)
    assert re.fullmatch(REFUSAL.format(subject=rf"\$KV\.angarium_tokens\.{token}"), refusal)


def test_an_api_that_may_not_write_does_not_start(reader: Terminal) -> None:
    ended = reader.run("api", "--port", "0")
    assert ended.returncode == 1
    refusal = ended.stderr.splitlines(keepends=True)[-1]
    assert re.fullmatch(REFUSAL.format(subject=r"angarium\.events\.checked\.checked"), refusal)
