"""`angarium dev`: everything on this machine, NATS included."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from angarium.cli import options
from angarium.terminal import output
from angarium.terminal.run import run_long

if TYPE_CHECKING:
    from angarium.local.dev import Ready, Step

USUAL_NATS = "nats://127.0.0.1:4222"


@click.command(short_help="Run everything on this machine, NATS included.")
@click.option(
    "--dir",
    "directory",
    default=".angarium",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where NATS keeps its store, and the ledger lies.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of NATS (default: that of the last run in DIR; at first 4222; a free one if it is taken).",
)
@options.takes(*options.CONNECTION, *options.INSTALLATION, *options.NODE)
def dev(directory: Path, port: int | None, **given: Any) -> None:
    """Run NATS, set it up, and run a node and a ledger, until Ctrl-C. The store stays and is used again.

    It is for your own machine: its NATS has no password, so that everybody on the machine may use it.

    Receivers may be on http:// and on this machine's loopback addresses. With --nats a server that is there
    already is used; the one in angarium.toml is not, since it may be the one in production.
    """
    from angarium.local.dev import develop

    server = given["nats"]
    if server and port:
        raise click.UsageError("--port is for a server of its own, --nats names another; give one")
    kept = {} if server else {"ledger": f"sqlite:///{directory / 'ledger.db'}"}
    settings = options.settings_of(given, log_level="info", **kept)
    run_long(develop(settings, None if server else directory, port, _tell))


def _tell(step: "Step") -> None:
    """Show what it does now and waits for; on stderr, up to the one line that says that it is ready."""
    from angarium.local import dev

    match step:
        case dev.Starting(directory):
            output.note(f"starting nats-server, its store is {directory}")
        case dev.Serving(url, port, wanted, pid_file):
            if port != wanted:
                output.note(f"port {wanted} is taken: NATS is on {port}, from now on in this directory")
            output.note(f"nats-server runs on {url}; its pid is in {pid_file}")
        case dev.Claiming(shards, wait_max_s):
            output.note(f"claiming {shards} shards; after a crash that takes up to {wait_max_s:g} s")
        case dev.Ready():
            _tell_ready(step)


def _tell_ready(ready: "Ready") -> None:
    """Show what runs, what is allowed here that is not elsewhere, and what to type next."""
    where = "" if ready.directory is None else f" (store: {ready.directory})"
    output.say(f"ready: NATS on {ready.url}{where}, a node with {ready.shards} shards")
    output.say("allowed here, not elsewhere: receivers on http:// and on loopback addresses")
    export = [] if ready.url == USUAL_NATS else [f"  export ANGARIUM_NATS={ready.url}"]
    for line in (
        "in another terminal:",
        "  angarium listen",
        "and in a third:",
        *export,
        "  angarium receiver put acme.billing --url http://127.0.0.1:9000/ --rate 10/second",
        "  angarium publish acme.billing '{\"order\": 7}' --type order.created",
        "  angarium inspect acme.billing",
        "Ctrl-C ends it in order.",
    ):
        output.say(line)
