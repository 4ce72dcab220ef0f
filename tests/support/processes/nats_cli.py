"""Runs the nats CLI, and returns its whole output."""

import asyncio
import json
import os
import pty
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

NATS = shutil.which("nats", path=f"{os.environ.get('PATH', '')}:{Path.home() / 'go/bin'}")

needs_nats_cli = pytest.mark.skipif(
    NATS is None, reason="the nats CLI is not installed: `go -C .ci/natscli install tool`"
)


class NatsCli:
    """`await cli("kv", "ls", "angarium_receivers")`, without the contexts of the user who runs the tests."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._environment = os.environ | {"XDG_CONFIG_HOME": str(directory)}

    async def __call__(self, *arguments: str) -> str:
        """Runs a command to its end, which has to be a good one; returns its output."""
        process = await self._start(arguments, subprocess.DEVNULL, subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def on_terminal(self, *arguments: str) -> str:
        """Runs a command at a terminal, without which some do nothing (pty(7))."""
        terminal, its_side = pty.openpty()
        try:
            process = await self._start(arguments, its_side, its_side)
        finally:
            os.close(its_side)
        output = await asyncio.to_thread(_read_all, terminal)
        assert await process.wait() == 0, output
        return output

    async def _start(self, arguments: Sequence[str], stdin: int, stdout: int) -> asyncio.subprocess.Process:
        assert NATS is not None
        return await asyncio.create_subprocess_exec(
            NATS, "--server", self._url, *arguments, env=self._environment, stdin=stdin, stdout=stdout,
            stderr=subprocess.STDOUT,
        )  # fmt: skip


def _read_all(terminal: int) -> str:
    """Reads until no process has the terminal open any more, which Linux tells by EIO."""
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as file, suppress(OSError):
        while part := file.read(4096):
            shown += part
    return shown.decode()


def last_json(output: str) -> Any:
    """The document in the last line that is one."""
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))
