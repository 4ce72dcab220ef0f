"""`angarium node` as a child process, for `demo`, `bench` and tests that kill a node.

It reads only the settings that it is given, neither `./angarium.toml` nor environment variables. So a demo
never works on the installation to which the current directory belongs. Like the embedded server, it ends with
its parent, even if the parent is killed (`streams.server.child`).
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE

from actors.errors import AngariumError
from angarium import package_check
from angarium.settings import VARIABLE_PREFIX
from streams.server.child import Child

KILL_AFTER_S = 15.0
"""Time from SIGTERM to SIGKILL: longer than the node itself waits for attempts in flight."""
READY_TIMEOUT_S = 180.0
"""A node first reads the configurations of all receivers; a million take about a minute."""
START_POLL_S = 0.02

LOOPBACK = ("127.0.0.0/8", "::1/128")
Setting = str | float | Sequence[str]


class NodeFailed(AngariumError):
    """The node ended by itself, or was not ready in time; the text says where to read why."""


class LocalNode:
    """One node at a time over one directory, which holds its settings and its log.

    `settings` are those of `angarium.settings`; they override the defaults for this machine, which allow
    receivers on http:// and on loopback addresses. `python` comes before `-m angarium`: options of Python, or
    a profiler.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Setting], python: Sequence[str] = ()) -> None:
        self.log = directory / "node.log"
        self._config = directory / "node.toml"
        self._settings = {
            "allow_http": True, "allow_networks": LOOPBACK, "log_format": "json", **settings,
        }  # fmt: skip
        self._python = python
        self._child: Child | None = None
        self._log_start = 0

    async def start(self) -> None:
        """Start the process; it is not ready yet."""
        self._config.write_text(
            "".join(f"{name} = {json.dumps(value)}\n" for name, value in self._settings.items())
        )
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [
            *package_check.python(),
            *self._python,
            "-m",
            "angarium",
            "node",
            "--config",
            str(self._config),
        ]
        self._child = await Child.spawn(
            command, log=self.log, grace_s=KILL_AFTER_S, inherit=[], environ=clean_environment()
        )

    async def until_ready(self) -> None:
        """Return once it owns every shard. Raises NodeFailed."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not self._has_logged("node.ready"):
                    self.check()
                    await asyncio.sleep(START_POLL_S)
        except TimeoutError:
            raise NodeFailed(
                f"the node was not ready within {READY_TIMEOUT_S:.0f} s; see {self.log}"
            ) from None

    async def command(self, *arguments: str) -> str:
        """Run another command on the same installation; returns its output. Raises NodeFailed."""
        command = [*package_check.python(), "-m", "angarium", *arguments, "--config", str(self._config)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=clean_environment()
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise NodeFailed(f"{' '.join(arguments)}: {errors.decode().strip()}")
        return output.decode().strip()

    def check(self) -> None:
        """Raise NodeFailed if the node that was started has ended by itself."""
        if self._child is None or self._child.has_ended:
            raise NodeFailed(f"the node exited by itself; {self.log} says why")

    def _has_logged(self, event: str) -> bool:
        """True if the log since this start contains the event."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return f'"event": "{event}"'.encode() in log.read()

    @property
    def pid(self) -> int | None:
        """The pid of the node's own process, if the system shows it (Linux); its parent is the watchdog."""
        return None if self._child is None else self._child.program_pid

    async def kill(self) -> None:
        """End the node with SIGKILL, like a crash."""
        if self._child is not None:
            await self._child.kill()
            self._child = None

    async def stop(self) -> None:
        """Let the node hand over its shards and end; does nothing if none runs."""
        if self._child is not None:
            await self._child.stop()
            self._child = None


def clean_environment() -> dict[str, str]:
    """Our environment without any setting of Angarium's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE_PREFIX)}
