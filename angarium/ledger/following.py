"""Runs the ledger's writer for an installation."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from angarium.connecting import installation, open_jetstream
from angarium.ledger.sqlite import written
from angarium.ledger.store import LedgerError, path_of
from angarium.ledger.writer import Writer
from angarium.settings import Settings

KEEP_DEFAULT_S = 30 * 86_400.0
"""Default time that rows are kept."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


async def follow(settings: Settings, keep_s: float = KEEP_DEFAULT_S, *, beside_a_node: bool = False) -> None:
    """Follow the journal until cancelled. Raises LedgerError and ConnectError."""
    path = path_of(settings.ledger)
    async with open_jetstream(settings, second=beside_a_node) as js, written(path) as store:
        with alone(path):
            await Writer(js, installation(settings).names, store, keep_s=keep_s).run()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the one process that writes this ledger. Raises LedgerError if another one does.

    The tables refuse a second writer, too, but they refuse the one that writes later, which may be the one
    that has been running. The lock is a file of its own, since closing the ledger's file would drop the locks
    of SQLite.
    """
    name = f"{path}.lock"
    try:
        lock = os.open(name, _FLAGS, 0o600)
    except OSError as error:
        raise _unlockable(name, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(f"another process writes {path}: use it, or choose another file") from None
        except OSError as error:
            raise _unlockable(name, error) from error
        yield
    finally:
        os.close(lock)


def _unlockable(name: str, error: OSError) -> LedgerError:
    return LedgerError(f"cannot lock {name} ({error.strerror}): make it writable, or choose another ledger")
