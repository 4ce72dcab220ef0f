"""`angarium node`: a member of a fleet, or several under one supervisor."""

import socket
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.settings import Settings
from angarium.terminal.run import run_long

if TYPE_CHECKING:
    from angarium.access import Access


@click.command(short_help="Run a node that delivers events.")
@options.settings_flags(*options.CONNECTION, "shards", "replicas", "workers", *options.NODE)
@click.option("--supervised", type=int, hidden=True, help="Descriptor of the socket to the supervisor.")
def node(supervised: int | None, **given: Any) -> None:
    """Run a node until SIGTERM, Ctrl-C, or the end of its terminal.

    It then hands its shards over, so that nothing is repeated.

    Run `angarium setup` first. You can run any number of nodes; they share the shards. A node uses one core:
    with --workers one command runs several, and starts those again that end.
    """
    if supervised is not None:
        _be_worker(socket.socket(fileno=supervised))
        return
    settings = options.settings_of(given, log_level="info")
    if settings.workers == 1:
        run_long(_serve(settings))
    else:
        run_long(_supervise(settings))


def _be_worker(supervisor: socket.socket) -> None:
    from angarium import logs
    from angarium.workers import supervisor_pipe

    settings, runs = supervisor_pipe.join_supervisor()
    logs.configure(settings.log_format, settings.log_level, node=settings.node)
    run_long(_serve(settings, supervisor=supervisor, runs=runs))


async def _serve(settings: Settings, **supervised: Any) -> None:
    """Run a node; `supervised` is what `run_node` takes for a worker."""
    from angarium.node.app import run_node

    await _check(settings)
    await run_node(settings, **supervised)


async def _supervise(settings: Settings) -> None:
    """Run the workers. What would stop all of them is said once, before any is started."""
    from angarium import logs
    from angarium.workers.supervisor import supervise

    logs.configure(settings.log_format, settings.log_level, node=settings.node)
    await _check(settings)
    await supervise(settings)


async def _check(settings: Settings) -> None:
    """Look at the installation, since a node on a wrong one would wait forever, or do harm."""
    from angarium.access import with_access

    await with_access(settings, _check_with)


async def _check_with(access: "Access") -> None:
    from angarium.operations.needed_permissions import check_permissions
    from streams.installation.setup import check

    if problems := await check(access.js, access.installation):
        more = f" (and {len(problems) - 1} more; see angarium doctor)" if len(problems) > 1 else ""
        raise click.ClickException(f"{problems[0]}{more}")
    names = access.names
    await check_permissions(
        access,
        reads=(names.receivers, names.nodes, names.journal, names.deliveries, names.events),
        writes=(names.node(access.settings.node), names.journal_of(0)),
    )
