"""The real nats-server as a child process, for `dev`, `demo`, `bench` and tests (POSIX systems).

All its files are in one directory: store, configuration, log, and a lock that keeps a second server away from
the store, which nats-server itself does not. The lock is a `flock` on a descriptor that the server inherits,
so it is held exactly as long as a process may write. `watchdog.py` makes sure that no server outlives this
process. Other users of the machine cannot read the directory, since it contains events and secrets in plain
text. We write into no files of other users either: a link made by another user could make us overwrite one of
our own files.

The server itself chooses a free port (we ask for port -1) and says when it is ready (it writes a ports file
after JetStream has recovered): only the server can do both without a race.
"""

import asyncio
import fcntl
import json
import os
import shutil
import socket
import time
from pathlib import Path

from msgspec import Struct

from streams.nats.errors import ServerError
from streams.server import binary
from streams.server.child import Child
from streams.server.running import RunningServer

HOST = "127.0.0.1"
USUAL_PORT = 4222
LOG_BYTES_MAX = 10 << 20

OWN_FILES = frozenset({
    "api-port", "dev.json", "jetstream", "lock", "nats-server.conf", "nats-server.pid", "port", "ports",
    "token",
})  # fmt: skip
"""Names of the server's files in the directory, except the logs; `angarium dev` keeps some of them."""

READY_TIMEOUT_S = 60.0
"""Time until the server must be ready; a store of some gigabytes takes seconds to recover."""
KILL_AFTER_S = 10.0
"""Time from SIGTERM to SIGKILL."""
PREDECESSOR_TIMEOUT_S = KILL_AFTER_S + 5.0
"""Time that a start waits for the store or the port, which a predecessor may still hold."""
START_POLL_S = 0.02
SILENT_ROUTES = {"ping_interval": "2s", "ping_max": 2, "write_deadline": "3s"}
"""Bounds after which a server leaves another that says nothing; nats-server's own are 30 s and 10 s."""


class Routes(Struct, frozen=True):
    """A server of a cluster: its name, its port for the other servers, and the ports of all."""

    name: str
    port: int
    ports: tuple[int, ...]


class EmbeddedServer(RunningServer):
    """One nats-server over one directory: `async with EmbeddedServer(directory) as server: server.url`.

    - `port`: None takes `usual_port` (None: 4222), or a free one if that is taken; 0 takes a free one; any
      other must be free. A server that is started again keeps its port, so that its clients find it.
    - `sync_interval`: "always" syncs the store before each acknowledgement; None is the server's two minutes.
    - `max_payload`: in bytes; None is the server's 1 MiB.
    - `routes`: for one of several servers, which has a monitoring port, too.

    `max_file_store` limits the store, in bytes, from the next start on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        usual_port: int | None = None,
        sync_interval: str | None = None,
        max_payload: int | None = None,
        routes: Routes | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "nats-server.log"
        self._port = port
        self._usual_port = usual_port or USUAL_PORT
        self._bound: int | None = None
        self._sync_interval = sync_interval
        self._max_payload = max_payload
        self._routes = routes
        self._child: Child | None = None
        self.max_file_store: int | None = None

    @property
    def url(self) -> str:
        """The URL of the server, even after it has ended."""
        return f"nats://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port of the server, even after it has ended."""
        if self._bound is None:
            raise RuntimeError("the server has no address before its first start")
        return self._bound

    @property
    def monitor_url(self) -> str:
        """The URL of the monitoring port of a running server in a cluster."""
        return self._address("monitoring")

    @property
    def pid_file(self) -> Path:
        """The file that holds the process id of the running nats-server."""
        return self.directory / "nats-server.pid"

    async def start(self) -> None:
        """Start the server, and return when it serves.

        Raises ServerError if nats-server is missing or too old, if the directory cannot be written to, if
        store or port are in use, or if the server gave up.
        """
        if self._child is not None:
            raise RuntimeError("the server is already started")
        program = await asyncio.to_thread(binary.find_nats_server)
        try:
            lock = await self._lock()
            try:
                await asyncio.to_thread(_close, self.directory)
                await self._start(program, lock)
            finally:
                os.close(lock)
        except OSError as error:
            raise ServerError(
                f"cannot store data in {self.directory} ({error.filename}: {error.strerror}): "
                "make it writable, or choose another directory"
            ) from error

    async def stop(self) -> None:
        """Stop the server cleanly; does nothing if none was started.

        Its pid file goes, too: a `kill` with an old one may hit another process.
        """
        if self._child is not None:
            await self._child.stop()
            self._child = None
            self.pid_file.unlink(missing_ok=True)

    async def kill(self) -> None:
        """End the server with SIGKILL, like a crash; `start` then continues with its store."""
        if self._child is not None:
            await self._child.kill()
            self._child = None

    async def wait(self) -> None:
        """Return when the server has ended, for any reason."""
        if self._child is not None:
            await self._child.wait()

    async def _start(self, program: Path, lock: int) -> None:
        """Try until the server serves; start again if another process took the port first."""
        deadline = time.monotonic() + (PREDECESSOR_TIMEOUT_S if self._bound else 0)
        while True:
            port = self._choose_port()
            if port is None:
                if time.monotonic() >= deadline:
                    raise ServerError(
                        f"port {self._bound or self._port} of {HOST} is in use or not allowed: choose another"
                    )
                await asyncio.sleep(START_POLL_S)
            elif await self._serves_at(program, lock, port):
                return
            elif port == 0 or is_port_free(port):
                raise ServerError(f"nats-server exited at once: {self._end_of_log()} (see {self.log})")

    def _choose_port(self) -> int | None:
        """The port to try, 0 for a free one; None as long as the only acceptable one is taken."""
        fixed = self._bound or self._port
        if fixed:
            return fixed if is_port_free(fixed) else None
        return self._usual_port if self._port is None and is_port_free(self._usual_port) else 0

    async def _serves_at(self, program: Path, lock: int, port: int) -> bool:
        """Run the server; False if it ended before it was ready. Unless it serves, nothing is left."""
        command = [str(program), "-c", str(self._write_config(port))]
        child = await Child.spawn(command, log=self.log, grace_s=KILL_AFTER_S, inherit=[lock])
        bound = None
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                bound = await self._until_ready(child)
        except TimeoutError as error:
            raise ServerError(
                f"nats-server was not ready within {READY_TIMEOUT_S:.0f} s (see {self.log})"
            ) from error
        finally:
            if bound is None:
                await child.stop()
        if bound is None:
            return False
        self._bound, self._child = bound, child
        return True

    async def _until_ready(self, child: Child) -> int | None:
        """The port on which the server serves; None if it ended before."""
        while not child.has_ended:
            if (port := self._read_port()) is not None:
                return port
            await asyncio.sleep(START_POLL_S)
        return None

    @property
    def _ports(self) -> Path:
        return self.directory / "ports"

    def _write_config(self, port: int) -> Path:
        """Write the server's configuration (JSON is a subset of its format); remove the old ports file."""
        shutil.rmtree(self._ports, ignore_errors=True)
        self._ports.mkdir(mode=0o700)
        config: dict[str, object] = {
            "host": HOST,
            "port": port or -1,
            "ports_file_dir": str(self._ports),
            "pid_file": str(self.pid_file),
            "log_file": str(self.log),
            "logfile_size_limit": LOG_BYTES_MAX,
            "logfile_max_num": 2,
            "jetstream": {"store_dir": str(self.directory)}
            | ({"sync_interval": self._sync_interval} if self._sync_interval else {})
            | ({} if self.max_file_store is None else {"max_file_store": self.max_file_store}),
        }
        if self._max_payload is not None:
            config["max_payload"] = self._max_payload
        if self._routes is not None:
            config |= _clustered(self._routes)
        path = self.directory / "nats-server.conf"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "w") as file:
            file.write(json.dumps(config, indent=2))
        return path

    def _read_port(self) -> int | None:
        """The port from the ports file; None until it is complete."""
        address = self._address("nats")
        return int(address.rpartition(":")[2]) if address else None

    def _address(self, service: str) -> str:
        """An address from the ports file, `{"nats": ["nats://127.0.0.1:4222"]}`; empty before it is there."""
        for file in self._ports.glob("*.ports"):
            try:
                addresses: list[str] = json.loads(file.read_bytes())[service]
            except ValueError:
                return ""
            return addresses[0]
        return ""

    def _end_of_log(self) -> str:
        """The last line of the log, without the server's prefix of process id and time."""
        lines = self.log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        return last.rpartition("] ")[2]

    async def _lock(self) -> int:
        """A descriptor that holds the lock of the directory, which is created if it is missing."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(self.directory, os.stat(self.directory))
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self.directory / "lock", flags, 0o600)
        try:
            await self._wait_for(lock)
        except BaseException:
            os.close(lock)
            raise
        return lock

    async def _wait_for(self, lock: int) -> None:
        deadline = time.monotonic() + PREDECESSOR_TIMEOUT_S
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise ServerError(
                        f"another nats-server uses {self.directory}: stop it, or choose another directory"
                    ) from error
            await asyncio.sleep(START_POLL_S)


def _clustered(routes: Routes) -> dict[str, object]:
    """The configuration of a server in a cluster."""
    others = [f"nats://{HOST}:{port}" for port in routes.ports]
    return {
        "server_name": routes.name,
        "cluster": {
            "name": "angarium",
            "host": HOST,
            "port": routes.port,
            "routes": others,
            **SILENT_ROUTES,
        },
        "http": f"{HOST}:-1",
    }


def _close(directory: Path) -> None:
    """Keep other users of the machine out of files that an older version left readable.

    A directory that contains other files as well stays as it is: it may be a user's project.
    """
    found = list(directory.iterdir())
    ours = [each for each in found if each.name in OWN_FILES or each.name.startswith("nats-server.log")]
    for each in ours:
        _check_owner(each, each.lstat())
    if len(ours) == len(found):
        directory.chmod(0o700)
    for each in ours:
        _close_all(each)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Refuse a file or directory of another user: it may contain links that lead elsewhere."""
    if found.st_uid != os.geteuid():
        raise ServerError(
            f"{path} belongs to another user: choose another directory, or chown it if it is yours"
        )


def _close_all(path: Path) -> None:
    """Make a file, or a directory with all its contents, private; links are skipped: they lead elsewhere."""
    if path.is_symlink():
        return
    if path.is_dir():
        path.chmod(0o700)
        for each in path.iterdir():
            _close_all(each)
    else:
        path.chmod(0o600)


def is_port_free(port: int) -> bool:
    """True if a server could listen on the port now, tested in the same way as nats-server does."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
