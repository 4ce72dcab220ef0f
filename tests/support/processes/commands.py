"""Runs `angarium` as people do: in its own process, with the output read whole or line by line."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import msgspec

from tests.support.processes.forks import Forks
from tests.support.secrecy import secrets_in

ROOT = Path(__file__).parents[3]
COMMAND = (
    sys.executable, "-c",
    "import sys; sys.modules['aiohttp'] = None; from angarium.cli.main import main; main()",
)  # fmt: skip
"""Without aiohttp, which users have not got either: it is for the bench. nats-py imports it where there is
one, and that takes as long as all other imports together."""

FORKS = Forks(ROOT, without="aiohttp")

PATIENCE_S = 100.0
LOOK_S = 0.1
SHARDS = 4


class Terminal:
    """A directory and an environment to type commands in; `url` is the NATS server that they find."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.environment = {name: value for name, value in os.environ.items() if name[:9] != "ANGARIUM_"} | {
            "PYTHONPATH": str(ROOT),
            "ANGARIUM_NATS": url,
            "ANGARIUM_SHARDS": str(SHARDS),
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run one command to its end, whatever that is."""
        done = FORKS.run(list(arguments), stdin, self.directory, self.environment, PATIENCE_S)
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        assert not secrets_in(err), err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def done(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run one command, which succeeds; returns what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        """Run one command with `--json`; returns the document."""
        return msgspec.json.decode(self.done(*arguments, "--json", stdin=stdin))

    def failed(self, *arguments: str, status: int = 1, stdin: bytes = b"") -> str:
        """Run one command, which fails as it should; returns its line on stderr."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == status, (done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def until(self, holds: Callable[[], bool]) -> None:
        """Look again until it holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(LOOK_S)

    def start(self, *arguments: str) -> "Running":
        """Start a command that stays; what is typed into it goes to its `stdin`."""
        return Running(list(arguments), self.directory, self.environment)


class Running:
    """A command that runs; as a context it is waited for, or killed where something failed meanwhile."""

    def __init__(self, arguments: list[str], directory: Path, environment: dict[str, str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (stdin, typed), (shown, stdout), (told, stderr) = pipes
        try:
            self._process = FORKS.start(arguments, [stdin, stdout, stderr], directory, environment)
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        self.stdin: TextIO = os.fdopen(typed, "w", buffering=1)
        self.stdout: TextIO = os.fdopen(shown)
        self.stderr: TextIO = os.fdopen(told)

    @property
    def returncode(self) -> int | None:
        """The status, once it has been waited for; negative: the signal that ended the process."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        """The pid; it leads its process group."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):
                stream.close()
        self.wait(PATIENCE_S)

    def wait(self, timeout: float) -> int:
        """Waits for the end, and returns the status; `TimeoutError` if that takes too long."""
        return self._process.wait(timeout)

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        """Returns the rest of both outputs until the end; nothing more is typed in."""
        self.stdin.close()
        said = {self.stdout: "", self.stderr: ""}

        def read(stream: TextIO) -> None:
            said[stream] = stream.read()

        readers = [threading.Thread(target=read, args=(stream,), daemon=True) for stream in said]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said[self.stdout], said[self.stderr]

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def line_with(stream: Any, words: str) -> str:
    """The next line that has these words in it; fails at the end of the stream."""
    seen = []
    for line in stream:
        assert not secrets_in(line), line
        if words in line:
            return str(line)
        seen.append(line)
    raise AssertionError(f"the output ended without {words!r}:\n{''.join(seen)}")
