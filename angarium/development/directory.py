"""The directory of `angarium dev`: which process runs in it, and which ports its NATS had last.

The lock is a flock, which the kernel releases when its holder ends in any way; the locked file names the
holder, for people. The server's own lock is separate: it lasts until nats-server has ended, a moment longer.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from actors.errors import AngariumError
from streams.nats.errors import ServerError
from streams.server.embedded import USUAL_PORT

USUAL_API_PORT = 8080
PORT_MAX = (1 << 16) - 1


class DirectoryInUse(AngariumError):
    """Another `angarium dev` runs in the directory."""


class DirectoryOwner(Struct, frozen=True):
    """The process that runs in a directory; `nats` is empty until its server runs."""

    pid: int
    nats: str = ""


class DevDirectory:
    """A directory that this process has to itself, created by `hold_directory`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def wanted_ports(self, first: int | None, count: int) -> list[int]:
        """The ports to take if they are free: those of the last run, else 4222 and the next ones.

        `first` is the one that the first server must take, if any.
        """
        last = self._ports("port")
        if len(last) != count or first not in (None, last[0]):
            start = first or USUAL_PORT
            return [min(start, PORT_MAX - count) + number for number in range(count)]
        return last

    @property
    def last_api_port(self) -> int:
        """The port of the last run's HTTP API, 8080 before the first one."""
        return next(iter(self._ports("api-port")), USUAL_API_PORT)

    @property
    def token(self) -> str:
        """The token of the last run, if there was one."""
        try:
            return (self.path / "token").read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def serves_api(self, port: int) -> None:
        """Remember the port of the HTTP API."""
        _write(os.open(self.path / "api-port", _FLAGS | os.O_TRUNC, 0o600), b"%d\n" % port)

    def keep_token(self, text: str) -> None:
        """Remember a token, in a file that only we can read."""
        file = os.open(self.path / "token", _FLAGS | os.O_TRUNC, 0o600)
        os.fchmod(file, 0o600)
        _write(file, text.encode() + b"\n")

    def _ports(self, name: str) -> list[int]:
        try:
            ports = [int(line) for line in (self.path / name).read_text().splitlines()]
        except (OSError, ValueError):
            return []
        return ports if all(0 < port <= PORT_MAX for port in ports) else []

    def serves(self, servers: Sequence[tuple[int, str]]) -> None:
        """Remember the ports, and write down the URLs of NATS for others that find the directory in use."""
        ports = b"".join(b"%d\n" % port for port, _ in servers)
        _write(os.open(self.path / "port", _FLAGS | os.O_TRUNC, 0o600), ports)
        self.write_owner(",".join(url for _, url in servers))

    def write_owner(self, url: str) -> None:
        """Write down which process runs here."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, msgspec.json.encode(DirectoryOwner(os.getpid(), url)), 0)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def hold_directory(path: Path) -> Iterator[DevDirectory]:
    """Hold the directory, which is created if it is missing. Raises `DirectoryInUse` and `ServerError`."""
    path = path.absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "dev.json", _FLAGS, 0o600)
    except OSError as error:
        raise ServerError(
            f"cannot store data in {path} ({error.filename}: {error.strerror}): "
            "make it writable, or choose another directory"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(_in_use_text(path, os.pread(lock, 4096, 0))) from None
        directory = DevDirectory(path, lock)
        directory.write_owner("")
        _write(os.open(path / "dev.pid", _FLAGS | os.O_TRUNC, 0o600), b"%d\n" % os.getpid())
        try:
            yield directory
        finally:
            # A `kill` with an old pid may hit another process.
            (path / "dev.pid").unlink(missing_ok=True)
    finally:
        os.close(lock)


def nats_of(path: Path) -> str:
    """The URLs of the NATS of the `angarium dev` that runs in the directory; empty if none runs there."""
    try:
        file = path / "dev.json"
        if file.stat().st_uid != os.getuid():
            return ""  # Another user decides nothing for us.
        owner = msgspec.json.decode(file.read_bytes(), type=DirectoryOwner)
        os.kill(owner.pid, 0)
    except (OSError, ValueError):
        return ""
    return owner.nats


def api_of(path: Path) -> str | None:
    """The URL of the HTTP API in the directory, if there was one; whether it runs, `nats_of` says."""
    try:
        return f"http://127.0.0.1:{int((path / 'api-port').read_text())}"
    except (OSError, ValueError):
        return None


def _in_use_text(path: Path, content: bytes) -> str:
    """Explain why a second process cannot start; the first may still be writing its name."""
    try:
        owner = msgspec.json.decode(content, type=DirectoryOwner)
    except msgspec.DecodeError:
        return f"another angarium dev is starting in {path}: use it, or give this one another --dir"
    where = f", its NATS is {owner.nats}" if owner.nats else ""
    return (
        f"another angarium dev runs in {path} (pid {owner.pid}{where}): use it, stop it, or give this "
        "one another --dir"
    )


def _write(file: int, data: bytes) -> None:
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
