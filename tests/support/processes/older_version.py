"""Processes of an older version of Angarium, from the history of the repository."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes.commands import ROOT
from tests.support.processes.forks import Forks

OLDER = "613788f6728faca095bd84b315926c9270ea4b90"
"""A commit whose nodes must work in one fleet with today's."""


@contextmanager
def older_version(directory: Path) -> Iterator[Forks]:
    """Forks that run the older version, from a tree in that directory.

    Skips the test where the history is not there: in a shallow clone, or in an archive.
    """
    archive = directory / "older.tar"
    command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), OLDER]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip(f"commit {OLDER[:8]} is not in this repository: git fetch --unshallow")
    tree = directory / "older"
    tree.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)
    forks = Forks(tree, without="aiohttp")
    try:
        yield forks
    finally:
        forks.close()
