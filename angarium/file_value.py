"""A value that is read from files, and read again when one of them changes.

`reload_when_changed` asks at an interval whether they have changed. If they cannot be used, the old value
stays, and the log says so once for each change: a certificate and its key are often replaced one after the
other.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from actors.errors import BadInput

log = logging.getLogger(__name__)

FILES_CHECKED_EVERY_S = 5.0
"""Interval at which a process checks whether the files of its settings have changed."""

T = TypeVar("T")

_FileStates = tuple[tuple[int, int, int] | None, ...]


class UnusableSetting(BadInput):
    """A setting whose files, password or address cannot be used; the text names it and the remedy."""


class FileValue(Generic[T]):
    """A value and how to read it. Without files it stays.

    - `name`: that of the setting, for messages. `files`: by the names of its members.
    - `version`: how often the value has been replaced.
    """

    def __init__(self, name: str, files: Mapping[str, str], read: Callable[[], T]) -> None:
        self._name = name
        self._files = files
        self._read = read
        self._file_states = self._read_states()
        self.version = 0
        try:
            self.value = read()
        except (OSError, ValueError) as error:
            why = self._why(error)
            raise UnusableSetting(f"{name}: {why}; correct the setting, or what it names") from None

    def refresh(self) -> bool:
        """Read the value again if a file has changed; returns True if it was replaced. It reads files."""
        if (states := self._read_states()) == self._file_states:
            return False
        self._file_states = states
        try:
            self.value = self._read()
        except (OSError, ValueError) as error:
            log.warning("file.not_reloaded", extra={"setting": self._name, "why": self._why(error)})
            return False
        self.version += 1
        log.info("file.reloaded", extra={"setting": self._name})
        return True

    def _read_states(self) -> _FileStates:
        return tuple(_identity(each) for each in self._files.values())

    def _why(self, error: OSError | ValueError) -> str:
        """The reason without paths and contents: they may be secrets."""
        for member, file in self._files.items():
            try:
                open(file, "rb").close()
            except OSError as unread:
                return f"{member}: {unread.strerror or type(unread).__name__}"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        if isinstance(error, OSError):
            return error.strerror or type(error).__name__
        return str(error)


class Refreshable(Protocol):
    """A value that can be read again (`FileValue`)."""

    def refresh(self) -> bool: ...


async def reload_when_changed(values: Sequence[Refreshable], on_change: Callable[[], None]) -> None:
    """Read values again when their files change, until cancelled; `on_change` is called after that."""
    while values:
        await asyncio.sleep(FILES_CHECKED_EVERY_S)
        # In a thread: a file may lie on a disk that is slow, and authorities take milliseconds to read.
        if any(await asyncio.to_thread(lambda: [each.refresh() for each in values])):
            on_change()


def _identity(file: str) -> tuple[int, int, int] | None:
    """The traits that change with a file; None if there is none. Links are followed: Kubernetes uses them."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
