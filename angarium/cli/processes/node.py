"""`angarium node`: a member of a fleet."""

from typing import Any

import click

from angarium.cli.invocation import options
from angarium.settings import Settings
from angarium.terminal.run import run_long


@click.command(short_help="Run a node that delivers events.")
@options.settings_flags(*options.CONNECTION, "shards", "replicas", *options.NODE)
def node(**given: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C. It then hands its shards over, so that nothing is repeated.

    Run `angarium setup` first. You can run any number of nodes; they share the shards.
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
