"""The configurations and passwords of `deploy/nats`, in real servers on loopback.

What each role may do under them, on one server, is in `tests/edge/roles`.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.server import binary
from tests.support.fleet.sink import Sink
from tests.support.processes.commands import Terminal, line_with
from tests.support.processes.deployed import made_secrets
from tests.support.processes.roles import DEPLOY, USERS, Server, routes, serving_three, started
from tests.support.waiting import until

NATS = DEPLOY / "nats"
SECRET_FILES = {
    "nats.env", "node.toml", "operator.toml", "api.toml", "ledger.toml", "inspector.toml", "acme.url", "keys",
}  # fmt: skip
PASSWORDS = {f"ANGARIUM_{user.upper()}_PASSWORD" for user in USERS}
ROUTING = {"ANGARIUM_ROUTE_PASSWORD", "NATS_ROUTES", "NATS_NAME"}
FORBIDDEN = {
    "node": (
        "$KV.angarium_tokens.forged",
        "$JS.API.STREAM.DELETE.ANGARIUM_JOURNAL",
    ),
    "operator": ("angarium.journal.0", "$KV.angarium_nodes.forged"),
    "api": ("angarium.journal.0", "$JS.API.STREAM.DELETE.ANGARIUM_JOURNAL", "$KV.angarium_nodes.forged"),
    "ledger": ("angarium.deliver.acme.billing", "angarium.journal.0", "$KV.angarium_receivers.acme.forged"),
    "inspector": ("angarium.deliver.acme.billing", "angarium.ctl.pause.acme.billing"),
    "acme": ("angarium.deliver.other.billing", "angarium.journal.0", "$JS.API.STREAM.LIST"),
}
"""Subjects to which each user of the cluster publishes in vain."""


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secrets")
    done = made_secrets(directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three servers with an installation of three replicas, made by the operator."""
    directory = tmp_path_factory.mktemp("three")
    with serving_three(directory) as server:
        operator = Terminal(directory, server.url("operator"))
        operator.until(
            lambda: operator.run("setup", "--replicas", "3", "--max-bytes", "64MiB").returncode == 0
        )
        yield server


def variables(secrets: Path) -> dict[str, str]:
    """The variables of nats-server, read as Docker, kubectl and systemd read such a file."""
    return dict(line.split("=", 1) for line in (secrets / "nats.env").read_text().splitlines())


def test_secrets_are_made_once_for_each_role_and_kept_from_other_users(secrets: Path) -> None:
    assert {each.name for each in secrets.iterdir()} == SECRET_FILES
    assert secrets.stat().st_mode & 0o777 == 0o700
    made = variables(secrets)
    passwords = [value for name, value in made.items() if name.endswith("_PASSWORD")]
    assert len(set(passwords)) == 7
    assert all(re.fullmatch(r"p[0-9a-f]{48}", each) for each in passwords)
    again = made_secrets(secrets)
    assert (again.returncode, variables(secrets)) == (1, made)
    assert "exists already" in again.stderr


def test_make_secrets_without_a_directory_says_how_to_use_it() -> None:
    done = subprocess.run([sys.executable, NATS / "make_secrets.py"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python3 make_secrets.py DIRECTORY [SERVER …]\n")


@pytest.mark.parametrize(
    ("configuration", "needs"), [("one-server.conf", PASSWORDS), ("three-servers.conf", PASSWORDS | ROUTING)]
)
def test_nats_server_starts_only_with_all_the_variables_that_are_made(
    secrets: Path, configuration: str, needs: set[str]
) -> None:
    given = variables(secrets) | {"NATS_NAME": "nats-1"}

    def accepted(environment: dict[str, str]) -> bool:
        command = (binary.find_nats_server(), "-t", "-c", NATS / configuration)
        return subprocess.run(command, env=environment, capture_output=True).returncode == 0

    assert accepted(given)
    for missing in needs:
        assert not accepted({name: value for name, value in given.items() if name != missing}), missing


def test_a_role_connects_with_the_settings_that_are_made_for_it(tmp_path: Path) -> None:
    made_secrets(tmp_path / "secrets", "nats-1:4222")
    for role in ("node", "operator", "api", "ledger", "inspector"):
        [url] = tomllib.loads((tmp_path / "secrets" / f"{role}.toml").read_text())["nats"]
        password = variables(tmp_path / "secrets")[f"ANGARIUM_{role.upper()}_PASSWORD"]
        assert url == f"nats://{role}:{password}@nats-1:4222"
    password = variables(tmp_path / "secrets")["ANGARIUM_ACME_PASSWORD"]
    assert (tmp_path / "secrets" / "acme.url").read_text() == f"nats://acme:{password}@nats-1:4222\n"


async def test_a_node_delivers_what_a_producer_publishes_to_three_servers(
    cluster: Server, tmp_path: Path
) -> None:
    operator = Terminal(tmp_path, cluster.url("operator"))
    async with Sink() as sink:
        operator.done("receiver", "put", "acme.billing", "--url", sink.url("billing"))
        node = Terminal(tmp_path, cluster.url("node"))
        options = ("--replicas", "3", "--allow-http", "--allow-network", "127.0.0.0/8")
        with node.start("node", *options, "--log-level", "info") as running:
            line_with(running.stderr, "node.ready")
            async with cluster.user("acme") as acme:
                await acme.ask("angarium.deliver.acme.billing", {"order": 7})

            await until(lambda: sink.total > 0)
            running.terminate()
            running.communicate()


@pytest.mark.parametrize(
    ("user", "subject"), [(user, each) for user in FORBIDDEN for each in FORBIDDEN[user]]
)
async def test_a_user_of_three_servers_is_refused_what_its_role_does_not_need(
    cluster: Server, user: str, subject: str
) -> None:
    async with cluster.user(user) as client:
        assert await client.is_refused(subject)


async def test_the_routes_admit_only_servers_with_their_password(cluster: Server, tmp_path: Path) -> None:
    names = {"NATS_NAME": "stranger", "NATS_ROUTES": routes("guessed", cluster.route_ports)}
    (tmp_path / "ports").mkdir()
    log = tmp_path / "log"
    with started(tmp_path, "three-servers.conf", names):
        await until(lambda: log.exists() and "Authorization Violation" in log.read_text())
