"""A forked command behaves like one in a fresh process, and leaves nothing for the next."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.processes.commands import COMMAND, FORKS, PATIENCE_S, Terminal
from tests.support.processes.forks import Forked

NOWHERE = "nats://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        ([], b""),
        (["--version"], b""),
        (["receiver", "put", "--help"], b""),
        (["nonsense"], b""),
        (["receiver", "list"], b""),
        (["publish", "acme.billing", "--file", "-", "--rate"], b"{}"),
        (["publish", "acme.billing", "--lines", "--nats", "what"], b"\n\n"),
        (["doctor", "--json"], b""),
    ],
)
def test_a_forked_command_says_the_same(arguments: list[str], stdin: bytes, tmp_path: Path) -> None:
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


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    environment = Terminal(tmp_path, NOWHERE).environment
    with pytest.raises(subprocess.TimeoutExpired):
        FORKS.run(["listen", "--port", "0"], b"", tmp_path, environment, patience_s=0.5)
    assert FORKS.run(["--version"], b"", tmp_path, environment, PATIENCE_S).returncode == 0


def test_a_command_started_by_a_shell_reads_and_prints_alike_and_can_be_killed(
    tmp_path: Path,
) -> None:
    client = tmp_path / "angarium"
    inherited = FORKS.write_client(client, patience_s=0.5)
    environment = Terminal(tmp_path, NOWHERE).environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def typed(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, pass_fds=[inherited],
            capture_output=True, text=True,
        )  # fmt: skip

    assert typed("cd / && angarium --version | cut -d ' ' -f 1 && pwd").stdout == "angarium\n/\n"
    assert typed("echo | angarium publish acme.billing --lines --nats what").returncode == 1
    assert typed("angarium nonsense").returncode == 2
    assert typed("angarium listen --port 0").returncode == 256 - signal.SIGKILL


def test_a_process_that_ended_before_the_first_check_has_its_status() -> None:
    ours, keepers = socket.socketpair()
    with keepers:
        keepers.sendall(b"1\n-9\n")
    process = Forked(ours)
    assert (process.pid, process.wait(PATIENCE_S), process.poll()) == (1, -9, -9)
