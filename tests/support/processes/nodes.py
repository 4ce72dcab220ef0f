"""A node in its own process: started, killed, suspended, resumed, and inspected.

Its log is read as it grows, since that tells what no request could: that a lease lapsed, or a shard was
handed over. Linux tells how much memory it takes, and whose the other end of a connection is.
"""

import json
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.support.processes.commands import FORKS
from tests.support.processes.forks import CLOCK, SHORTENED, Forked, Forks
from tests.support.secrecy import secrets_in

SHORT_TTL_S = 2
"""The least that the settings take: so long, and half a second, until a dead node is followed."""
LONG_TTL_S = 20
"""For tests without a death: a node that gets no processor for seconds must not be taken for dead."""

RETRIES = {"RETRY_REFUSED_AFTER_S": 2.0}
"""Time after which a node tries a refused shard again: tests need not wait for half a minute."""
SNAPSHOTS = {"SNAPSHOT_EVERY_S": 1.0}
"""Time after which everybody can read what a node knows of its receivers."""
ERASURES = {"TRY_EVERY_S": 0.2, "COPIES_UNTIL_LEASE_ENDS_S": 1.0}
"""Intervals of an erasure, where no replay runs at that time."""
PROFILES = {"FILES_CHECKED_EVERY_S": 0.1}
"""Interval at which a node checks the files of its proxies and certificates."""
LOCKS = {"LOCK_LEASE_S": 2.0}
"""Lease of a command that replays or redrives; so long it waits for one that was killed."""


@contextmanager
def shortened(*constants: dict[str, float]) -> Iterator[None]:
    """Give nodes and commands that are started in the block other values of constants of the product."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            SHORTENED, json.dumps({name: value for each in constants for name, value in each.items()})
        )
        yield


DRAIN_S = 5
"""Time that a node that leaves waits for attempts in flight; a busy machine keeps it waiting for a second."""

HAS_PROC = Path("/proc/self/status").exists()
needs_proc = pytest.mark.skipif(
    not HAS_PROC, reason="whose a connection is, and what a process takes, is read from /proc"
)


class Clock(Struct, frozen=True):
    """A wall clock that is wrong by `off_s`, and by `step_s` more each time that it is set."""

    off_s: float = 0.0
    step_s: float = 0.0


class Node:
    """One process after the other under one name.

    `said` is what the current one has logged; `complaints` what none should ever have to say: errors,
    secrets, and whatever is no line of a log, such as a traceback. `descriptors` bounds what it has open.
    `forks` makes the next process: of another version, where it holds another tree.
    With `workers` it is the supervisor of so many, and has logged what they have.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        nats: str,
        shards: int,
        ttl_s: float,
        descriptors: int | None = None,
        clock: Clock | None = None,
        workers: int = 1,
    ) -> None:
        self.name = name
        self.said: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.forks: Forks = FORKS
        self._log = directory / f"{name}.log"
        self._read_to = 0
        self._process: Forked | None = None
        self._ended = False
        self._descriptors = descriptors
        self._clock = {} if clock is None else {CLOCK: json.dumps([clock.off_s, clock.step_s])}
        self._arguments = (
            "node", "--node", name, "--nats", nats, "--shards", str(shards),
            "--ttl-s", str(ttl_s), "--drain-s", str(DRAIN_S), "--log-format", "json",
            "--log-level", "debug",
            "--allow-http", "--allow-network", "127.0.0.0/8", "--monitor", "127.0.0.1:0",
            *(("--workers", str(workers)) if workers > 1 else ()),
        )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """True if the node has ended by itself."""
        return self._process is not None and self._process.poll() is not None and not self._ended

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start a process; it owns nothing yet."""
        self.read_log()
        self.said.clear()
        self._ended = False
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ANGARIUM_")}
        constants = json.dumps(RETRIES | json.loads(clean.get(SHORTENED, "{}")))
        environment = clean | {SHORTENED: constants} | self._clock
        self._process = await self.forks.start_quiet(
            self._arguments, self._log, self._log.parent, environment, self._descriptors
        )

    async def kill(self) -> None:
        """SIGKILL, awake or asleep; returns when it is gone."""
        if self.running:
            await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM; returns when it has handed everything over and ended well."""
        assert await self._end(signal.SIGTERM) == 0, self.said[-5:]

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._ended = True
        self._process.send_signal(number)
        status = await self._process.ended()
        self.read_log()
        return status

    def sleep(self) -> None:
        """SIGSTOP: it does nothing, and does not know."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def worker_pids(self) -> dict[str, int]:
        """The newest process of each worker, if it has several."""
        self.read_log()
        return {line["worker"]: line["pid"] for line in self.said if line["event"] == "worker.started"}

    def step_clock(self) -> None:
        """Set the wall clock of a node that was given a clock of its own."""
        os.kill(self.pid, signal.SIGUSR2)

    def times(self, event: str) -> int:
        """Counts how often the process has logged that."""
        self.read_log()
        return sum(line["event"] == event for line in self.said)

    @property
    def monitor(self) -> str:
        """The address of the running process's health and metrics; empty: not yet."""
        self.read_log()
        ports = [line["port"] for line in self.said if line["event"] == "monitor.listening"]
        return f"http://127.0.0.1:{ports[-1]}" if ports else ""

    def read_log(self) -> None:
        """Take what has been logged since; a last line may still be on its way."""
        if not self._log.exists():
            return
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._read_to += len(whole + newline)
        lines = [_line(text) for text in whole.splitlines()]
        self.said += lines
        self.complaints += [f"{self.name}: {line}" for line in lines if line["level"] == "error"]
        self.complaints += [
            f"{self.name} tells {secret}" for secret in secrets_in(whole.decode(errors="replace"))
        ]

    @property
    def cpu_s(self) -> float:
        """The processor time of the running process so far, user and system (proc_pid_stat(5))."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, which: str) -> float:
        """`VmRSS` is what it takes, `VmHWM` the most that it ever took (proc_pid_status(5))."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{which}:"))


def _line(text: bytes) -> dict[str, Any]:
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:
        return {"level": "error", "event": "no.log_line", "message": text.decode(errors="replace")}
    return line


def owner_of_port(port: int, to: int, nodes: Collection[Node]) -> str:
    """The name of the node whose TCP connection leads from `port` to `to` (proc_net_tcp(5)), if known.

    Connections that lead elsewhere may begin at the same port. A node that is alone is not looked for: each
    time, the system would list thousands of connections that have ended.
    """
    if not HAS_PROC:
        return ""
    if len(nodes) == 1:
        return next((node.name for node in nodes if node.running), "")
    ends = f":{port:04X}", f":{to:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    sockets = {f"socket:[{row[9]}]" for row in rows if (row[1][-5:], row[2][-5:]) == ends}
    for node in nodes:
        if node.running and not sockets.isdisjoint(_descriptors(node.pid)):
            return node.name
    return ""


def _descriptors(pid: int) -> list[str]:
    """The open descriptors of a process, as far as it lives and keeps them meanwhile."""
    found = []
    with suppress(OSError):
        for each in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    return found
