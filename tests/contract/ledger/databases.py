"""A PostgreSQL server for tests, tuned for speed: initdb once a run, a copy for each process.

PostgreSQL refuses to run as root; then it runs as the user that Debian's package makes.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

USER = "postgres"
START_TIMEOUT_S = 30.0
SETTINGS = {
    "listen_addresses": "", "fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB",
    "max_connections": "40", "autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0",
    "logging_collector": "off", "dynamic_shared_memory_type": "mmap",
}  # fmt: skip


def missing() -> str | None:
    """Why no PostgreSQL can be had here; None: one can."""
    if _binaries() is None:
        return "there is no PostgreSQL here: apt install postgresql"
    if os.geteuid() == 0 and _user() is None:
        return f"PostgreSQL does not run as root, and there is no user {USER}"
    return None


@contextmanager
def server(template: Path) -> Iterator[str]:
    """A server on a directory of its own; gives the address of its database. `template` is made once."""
    _prepare(template)
    directory = Path(tempfile.mkdtemp(prefix="angarium-pg-"))
    try:
        data = directory / "data"
        shutil.copytree(template, data, symlinks=True)
        _give(directory)
        settings = SETTINGS | {"unix_socket_directories": str(directory)}
        arguments = [f"-c{name}={value}" for name, value in settings.items()]
        with (directory / "log").open("wb") as log:
            command = [str(_program("postgres")), "-D", str(data), *arguments]
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=nothing, stdout=log, stderr=log, user=_user())
        try:
            _until_ready(process, data / "postmaster.pid", directory / "log")
            yield f"postgresql://{USER}@/postgres?host={directory}"
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()
    finally:
        shutil.rmtree(directory)


def _until_ready(process: subprocess.Popen[bytes], status: Path, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (status.exists() and "ready" in status.read_text()):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


def _prepare(template: Path) -> None:
    with Path(f"{template}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if template.exists():
            return
        directory = Path(tempfile.mkdtemp(prefix="angarium-pg-"))
        _give(directory)
        subprocess.run(
            [_program("initdb"), "-D", directory / "data", "-A", "trust", "-U", USER, "-N", "-E", "UTF8",
             "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, user=_user(),
        )  # fmt: skip
        shutil.move(directory / "data", template)
        directory.rmdir()


def _give(directory: Path) -> None:
    """Let the server's user have it."""
    if (user := _user()) is not None:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, user, -1)


def _user() -> int | None:
    """The user that the server runs as, where it is not our own."""
    if os.geteuid():
        return None
    try:
        return pwd.getpwnam(USER).pw_uid
    except KeyError:
        return None


def _program(name: str) -> Path:
    found = _binaries()
    assert found is not None
    return found / name


def _binaries() -> Path | None:
    """Debian keeps them outside the PATH, a folder for each version."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: each.parent.name)
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    return next((each for each in reversed(candidates) if (each / "postgres").exists()), None)
