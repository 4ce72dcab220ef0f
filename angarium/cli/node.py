"""`angarium node`: a member of a fleet."""

from typing import Any

import click

from angarium.cli import options
from angarium.settings import Settings
from angarium.terminal.run import run_long


@click.command(short_help="Run a node: a member of a fleet.")
@options.takes(*options.CONNECTION, "shards", "replicas", *options.NODE)
def node(**given: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C; then it hands its shards over, so that nothing is repeated.

    `angarium setup` must have run. Any number of nodes may run; each takes its share of the shards.
    """
    run_long(_serve(options.settings_of(given, log_level="info")))


async def _serve(settings: Settings) -> None:
    """Look at the installation, since a node on a wrong one would wait without end or worse, then run."""
    from angarium.connecting import installation, open_jetstream
    from angarium.node.app import run_node
    from streams.installation.setup import check

    async with open_jetstream(settings) as js:
        problems = await check(js, installation(settings))
    if problems:
        more = f" (and {len(problems) - 1} more; see angarium doctor)" if len(problems) > 1 else ""
        raise click.ClickException(f"{problems[0]}{more}")
    await run_node(settings)
