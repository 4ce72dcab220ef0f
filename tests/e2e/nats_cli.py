"""The nats CLI, the tool that every operator of NATS has at hand: run, and what it printed taken whole."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NATS = shutil.which("nats", path=f"{os.environ.get('PATH', '')}:{Path.home() / 'go/bin'}")

needs_nats_cli = pytest.mark.skipif(
    NATS is None, reason="the nats CLI is not installed: `go -C .ci/natscli install tool`"
)


class NatsCli:
    """`await cli("kv", "ls", "angarium_receivers")`, without the contexts of whoever runs the tests."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._environment = os.environ | {"XDG_CONFIG_HOME": str(directory)}

    async def __call__(self, *arguments: str) -> str:
        """Run it to its end, which has to be a good one; returns what it printed."""
        assert NATS is not None
        process = await asyncio.create_subprocess_exec(
            NATS, "--server", self._url, *arguments, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()


def last_json(output: str) -> Any:
    """The document in the last line that is one."""
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))
