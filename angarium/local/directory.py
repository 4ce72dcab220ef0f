"""The directory of `angarium dev`: which process runs in it, and which port its NATS had last.

The lock is a flock, which the kernel releases however its holder ends; the locked file names the holder, for
people. The server's own lock is a separate one: it lasts until nats-server has ended, a moment longer.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from actors.errors import AngariumError
from streams.nats.errors import ServerError
from streams.server.embedded import USUAL_PORT

USUAL_API_PORT = 8080


class Occupied(AngariumError):
    """Another `angarium dev` runs in the directory."""


class Occupant(Struct, frozen=True):
    """The process that runs in a directory; `nats` is empty until its server runs."""

    pid: int
    nats: str = ""


class DevDirectory:
    """A directory that this process has to itself, created by `occupied`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def last_port(self) -> int:
        """The port of the last run, 4222 before the first one."""
        return self._port("port", USUAL_PORT)

    @property
    def last_api_port(self) -> int:
        """The port of the last run's HTTP API, 8080 before the first one."""
        return self._port("api-port", USUAL_API_PORT)

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

    def _port(self, name: str, usual: int) -> int:
        try:
            port = int((self.path / name).read_text())
        except (OSError, ValueError):
            return usual
        return port if 0 < port < 1 << 16 else usual

    def serves(self, port: int, url: str) -> None:
        """Remember the port, and write down the URL of NATS for others that find the directory occupied."""
        _write(os.open(self.path / "port", _FLAGS | os.O_TRUNC, 0o600), b"%d\n" % port)
        self.tell(url)

    def tell(self, url: str) -> None:
        """Write down which process runs here."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, msgspec.json.encode(Occupant(os.getpid(), url)), 0)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def occupied(path: Path) -> Iterator[DevDirectory]:
    """Hold the directory, which is created if it is missing. Raises `Occupied` and `ServerError`."""
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
            raise Occupied(_who(path, os.pread(lock, 4096, 0))) from None
        directory = DevDirectory(path, lock)
        directory.tell("")
        yield directory
    finally:
        os.close(lock)


def _who(path: Path, said: bytes) -> str:
    """Explain why a second process cannot start; the first may still be writing its name."""
    try:
        occupant = msgspec.json.decode(said, type=Occupant)
    except msgspec.DecodeError:
        return f"another angarium dev is starting in {path}: use it, or give this one another --dir"
    where = f", its NATS is {occupant.nats}" if occupant.nats else ""
    return (
        f"another angarium dev runs in {path} (pid {occupant.pid}{where}): use it, stop it, or give this "
        "one another --dir"
    )


def _write(file: int, data: bytes) -> None:
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
