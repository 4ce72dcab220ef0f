"""The tools that a page's commands need besides Angarium: the nats CLI, Node and Go, with packages.

The packages are pinned in `.ci/samples`. Nothing is fetched here: what is not there is left out, and told of.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.processes.commands import ROOT
from tests.support.processes.nats_cli import NATS

TOOLS = ("nats", "node", "go")
_PINNED = ROOT / ".ci" / "samples"
_BUILT = "./"
"""A program that is started from where it was built, by Go."""


@cache
def missing(tool: str) -> str:
    """Says what a tool lacks, and how to get it; nothing if it is complete."""
    match tool:
        case "nats" if NATS is None:
            return "the nats CLI is not installed: `go -C .ci/natscli install tool`"
        case "node" if not (shutil.which("node") and (_PINNED / "node_modules").exists()):
            return "Node and its packages are not installed: `npm ci --prefix .ci/samples`"
        case "go" if not _go_builds():
            return "Go and its packages are not installed: `go -C .ci/samples build`"
        case _:
            return ""


def can_run(command: str) -> bool:
    """True if everything is there that the command of a page needs."""
    tool, _, _ = command.partition(" ")
    return not missing("go" if tool.startswith(_BUILT) else tool)


def lay_out(directory: Path) -> None:
    """Give the programs in a directory what they import, as installing it there would."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(_PINNED / name, directory)
    (directory / "node_modules").symlink_to(_PINNED / "node_modules")


def _go_builds() -> bool:
    """All packages are there, and from now on in Go's cache."""
    if shutil.which("go") is None:
        return False
    environment = os.environ | {"GOPROXY": "off"}
    return subprocess.run(["go", "build"], cwd=_PINNED, env=environment, capture_output=True).returncode == 0
