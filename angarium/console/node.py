"""`angarium node`: a member of a fleet."""

from typing import Any

import click

from angarium.console import flags


@click.command(short_help="Run a node: a member of a fleet.")
@flags.takes(*flags.CONNECTION, "shards", "replicas", *flags.NODE)
def node(**given: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C; then it hands its shards over, so that nothing is repeated.

    `angarium setup` must have run. Any number of nodes may run; each takes its share of the shards.
    """
    settings = flags.settings_of(given)

    from angarium.app import run_node
    from angarium.console.looping import run

    run(run_node(settings))
