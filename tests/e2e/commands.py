"""Running `angarium` as people do: in a process of its own, its output taken whole or line by line."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tests.e2e.forks import Forks
from tests.secrecy import told

ROOT = Path(__file__).parents[2]
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
        assert not told(err), err
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
        return Running(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            env=self.environment,
            text=True,
            bufsize=1,
        )


class Running(subprocess.Popen[str]):
    """A command that runs; as a context it is waited for, or killed where something failed meanwhile."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


def line_with(stream: Any, words: str) -> str:
    """The next line that has these words in it; fails at the end of the stream."""
    seen = []
    for line in stream:
        assert not told(line), line
        if words in line:
            return str(line)
        seen.append(line)
    raise AssertionError(f"the output ended without {words!r}:\n{''.join(seen)}")
