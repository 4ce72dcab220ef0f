"""Keeps a second process from writing a ledger's file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from angarium.ledger.store import LedgerError

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def writer_lock(path: Path) -> Iterator[None]:
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
