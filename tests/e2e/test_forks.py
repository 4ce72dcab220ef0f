"""A command that is forked says and does what it does in a fresh process, and leaves nothing for the next."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import COMMAND, FORKS, PATIENCE_S, Terminal
from tests.e2e.forks import Forked

NOWHERE = "nats://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["--version"], b""),
        (["receiver", "put", "--help"], b""),
        (["nonsense"], b""),
        (["receiver", "list"], b""),
        (["publish", "acme.billing", "--file", "-", "--rate"], b"{}"),
        (["publish", "acme.billing", "--lines", "--nats", "what"], b"\n\n"),
        (["doctor", "--json"], b""),
    ],
)
def test_it_says_the_same(arguments: list[str], stdin: bytes, tmp_path: Path) -> None:
    environment = Terminal(tmp_path, NOWHERE).environment
    fresh = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, cwd=tmp_path, env=environment
    )
    forked = FORKS.run(arguments, stdin, tmp_path, environment, PATIENCE_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        fresh.returncode, fresh.stdout, fresh.stderr
    )  # fmt: skip


def test_the_next_one_has_an_environment_of_its_own(tmp_path: Path) -> None:
    there, elsewhere = (Terminal(tmp_path, f"nats://127.0.0.1:{port}") for port in (1, 2))
    assert ":1:" in there.failed("receiver", "list")
    assert ":2:" in elsewhere.failed("receiver", "list")


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    environment = Terminal(tmp_path, NOWHERE).environment
    with pytest.raises(subprocess.TimeoutExpired):
        FORKS.run(["listen", "--port", "0"], b"", tmp_path, environment, patience_s=0.5)
    assert FORKS.run(["--version"], b"", tmp_path, environment, PATIENCE_S).returncode == 0


def test_one_that_ended_before_anybody_looked_has_its_status() -> None:
    ours, keepers = socket.socketpair()
    with keepers:
        keepers.sendall(b"1\n-9\n")
    process = Forked(ours)
    assert (process.pid, process.wait(PATIENCE_S), process.poll()) == (1, -9, -9)
