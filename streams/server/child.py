"""A child process that ends with this process, in any way: Angarium's side of `watchdog.py`."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from streams.server import watchdog


class Child:
    """A program under its watchdog, started by `spawn`; it ends by `stop`, by `kill`, or with this process.

    A fork of this process that lives on (multiprocessing's "fork") would keep the pipe open, and the child
    alive.
    """

    def __init__(self, process: asyncio.subprocess.Process, order_fd: int) -> None:
        self._process = process
        self._order_fd: int | None = order_fd

    @classmethod
    async def spawn(
        cls,
        command: list[str],
        *,
        log: Path,
        grace_s: float,
        inherit: list[int],
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Start `command`; its output is appended to `log`, and it inherits the descriptors `inherit`.

        `environ` replaces our environment.

        It gets a session of its own: Ctrl-C in the terminal reaches only this process, which still needs the
        child to finish its work.
        """
        watched = (sys.executable, "-I", "-S", watchdog.__file__, str(grace_s), *command)
        stdin, order_fd = os.pipe()
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                process = await asyncio.create_subprocess_exec(
                    *watched,
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    pass_fds=inherit,
                    env=environ,
                    start_new_session=True,
                )
            finally:
                os.close(output)
        except BaseException:
            os.close(order_fd)
            raise
        finally:
            os.close(stdin)
        return cls(process, order_fd)

    @property
    def pid(self) -> int:
        """The pid of the watcher, whose child the program is."""
        return self._process.pid

    @property
    def program_pid(self) -> int | None:
        """The pid of the program itself, if the system shows it (Linux)."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    @property
    def has_ended(self) -> bool:
        """True if the process is known to have ended."""
        return self._process.returncode is not None

    async def stop(self) -> None:
        """Stop the program: SIGTERM, after the grace period SIGKILL; returns when it has ended."""
        if self._order_fd is not None:
            os.close(self._order_fd)
            self._order_fd = None
        await self._process.wait()

    async def kill(self) -> None:
        """Kill the program with SIGKILL; returns when it has ended."""
        if self._order_fd is not None:
            with contextlib.suppress(BrokenPipeError):  # The child has ended by itself.
                os.write(self._order_fd, watchdog.KILL)
        await self.stop()

    async def wait(self) -> None:
        """Return when the program has ended, for any reason."""
        await self._process.wait()
