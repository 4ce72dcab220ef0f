"""`angarium dev`: everything on this machine, NATS included."""

from pathlib import Path
from typing import Any

import click

from angarium.cli import options
from angarium.terminal.run import run_long


@click.command(short_help="Everything on this machine, NATS included.")
@click.option(
    "--dir",
    "directory",
    default=".angarium",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where NATS keeps its store.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of NATS (default: 4222 or a free one).",
)
@options.takes(*options.CONNECTION, *options.INSTALLATION, *options.NODE)
def dev(directory: Path, port: int | None, **given: Any) -> None:
    """Run NATS, set it up, and run a node, in one go, until Ctrl-C. The store stays and is used again.

    It is for your own machine: its NATS has no password, so that everybody on the machine may use it.

    Receivers may be on http:// and on this machine's loopback addresses. With --nats a server that is there
    already is used; the one in angarium.toml is not, since it may be the one in production.
    """
    from angarium.local.dev import develop

    server = given["nats"]
    if server and port:
        raise click.UsageError("--port is for a server of its own, --nats names another; give one")
    settings = options.settings_of(given, log_level="warning")
    run_long(develop(settings, None if server else directory, port))
