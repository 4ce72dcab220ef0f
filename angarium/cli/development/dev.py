"""`angarium dev`: everything on this machine, NATS included."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.terminal import output
from angarium.terminal.run import run_long

if TYPE_CHECKING:
    from angarium.development.dev import Ready, Step
    from angarium.development.http_api import HttpApi

USUAL_NATS = "nats://127.0.0.1:4222"


@click.command(short_help="Run everything on this machine, NATS included.")
@click.option(
    "--dir",
    "directory",
    default=".angarium",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the NATS store and of the ledger.",
)
@click.option(
    "--servers",
    type=click.Choice(("1", "3")),
    help="Number of nats-servers, with a copy of all data each (default: that of the last run, else 1).",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of (the first) NATS (default: that of the last run in DIR, else 4222, else a free one).",
)
@click.option(
    "--api-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of the HTTP API (default: that of the last run in DIR; at first 8080).",
)
@options.settings_flags(*options.CONNECTION, *options.INSTALLATION, *options.NODE)
def dev(directory: Path, servers: str | None, port: int | None, api_port: int | None, **given: Any) -> None:
    """Run NATS, a node, a ledger and the HTTP API on this machine until Ctrl-C. The store is kept.

    With --servers 3 it shows what the loss of a NATS server means: kill any of the three.

    Use it on your own machine only: its NATS has no password, so every user of the machine can use it.

    Receivers may have http:// URLs and loopback addresses. With --nats it uses a running server. It ignores
    the server in angarium.toml, since that may be the one in production.
    """
    from angarium.development.dev import develop, servers_in

    server = given["nats"]
    ours = {"--port": port, "--api-port": api_port, "--servers": servers}
    which = next((flag for flag, value in ours.items() if value), None)
    if server and which:
        raise click.UsageError(
            f"{which} is for the embedded server, --nats is for another one; give one of them"
        )
    kept = {} if server else {"ledger": f"sqlite:///{directory / 'ledger.db'}"}
    if not server:
        given["replicas"] = int(servers or servers_in(directory) or 1)
    settings = options.settings_of(given, log_level="info", **kept)
    run_long(develop(settings, None if server else directory, port, api_port, _show_step))


def _show_step(step: "Step") -> None:
    """Show the steps and what they wait for, on stderr, until the line that says that it is ready."""
    from angarium.development import dev

    match step:
        case dev.Starting(directory, 1):
            output.note(f"starting nats-server, with its store in {directory}")
        case dev.Starting(directory, servers):
            output.note(f"starting {servers} nats-servers, with their stores in {directory}")
        case dev.Serving(url, port, wanted, pid_file):
            if port != wanted:
                output.note(f"port {wanted} is taken: NATS uses {port}, and keeps it for this directory")
            output.note(f"nats-server runs on {url}; its pid is in {pid_file}")
        case dev.Claiming(shards, after_crash_s):
            output.note(f"claiming {shards} shards; after a crash that takes about {after_crash_s:.0f} s")
        case dev.Ready():
            _show_ready(step)


def _show_ready(ready: "Ready") -> None:
    """Show what runs, what is allowed here that is not elsewhere, and what to type next."""
    where = "" if ready.directory is None else f" (store: {ready.directory})"
    nats = ",".join(ready.urls)
    output.say(f"ready: NATS on {nats}{where}, a node with {ready.shards} shards")
    if ready.api is not None:
        _show_api(ready.api)
    output.say("allowed here, not elsewhere: receivers on http:// and on loopback addresses")
    export = [] if nats == USUAL_NATS else [f"  export ANGARIUM_NATS={nats}"]
    for line in (
        "in another terminal:",
        "  angarium listen",
        "and in a third:",
        *export,
        "  angarium receiver put acme.billing --url http://127.0.0.1:9000/ --rate 10/second",
        *_publishing(ready),
        "  angarium inspect acme.billing",
        "Ctrl-C stops it cleanly.",
    ):
        output.say(line)


def _show_api(api: "HttpApi") -> None:
    """Show where the HTTP API is, and a token for everything."""
    if api.port != api.wanted:
        output.note(f"port {api.wanted} is taken: HTTP uses {api.port}, and keeps it for this directory")
    output.say(f"HTTP on {api.url}, token: {api.token}")
    output.say(f"console on {api.url}/console: sign in with that token")


def _publishing(ready: "Ready") -> list[str]:
    """Show how to publish an event, by curl where there is an API."""
    if ready.api is None:
        return ["  angarium publish acme.billing '{\"order\": 7}' --type order.created"]
    return [
        f"  curl --json '{{\"order\": 7}}' -H 'Authorization: Bearer {ready.api.token}' \\",
        f"    {ready.api.url}/v1/tenants/acme/receivers/billing/events/order.created",
    ]
