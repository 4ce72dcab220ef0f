"""`angarium ledger`: the journal, followed into a file that can be asked."""

from typing import Any

import click

from angarium.cli import options
from angarium.settings import Settings
from angarium.terminal.run import end_on_sigterm, run_long

KEEP_MIN_S = 60


@click.command("ledger", short_help="Keep what happened in a file that can be asked.")
@click.option(
    "--to", "ledger", metavar="URL", help="Where to keep it, sqlite:///path/of/a/file [ANGARIUM_LEDGER]."
)
@click.option(
    "--keep",
    default="30d",
    show_default=True,
    metavar="AGE",
    help="How long: 12h, 30d, 8w; older rows are dropped.",
)
@options.takes(*options.CONNECTION)
def ledger(keep: str, **given: Any) -> None:
    """Follow the journal into a ledger until Ctrl-C: every attempt, what became of every event, and why.

    It reads what the nodes have recorded and costs them nothing. It goes on where it stopped; deleted, it is
    rebuilt as far back as the journal reaches. `angarium dev` runs one. Ask it by `angarium event`,
    `attempts`, `history`, `audit`, `top` and `inspect --at`, or in SQL (docs/ledger.md).
    """
    from angarium import quantities

    settings, keep_s = options.settings_of(given, log_level="info"), quantities.age(keep)
    if keep_s < KEEP_MIN_S:
        raise click.UsageError(f"--keep {keep}: keep a minute at least")
    run_long(_follow(settings, keep_s))


async def _follow(settings: Settings, keep_s: float) -> None:
    """Follow until Ctrl-C or SIGTERM, which are the usual end of it."""
    import asyncio
    from contextlib import suppress

    from angarium.ledger.following import follow

    end_on_sigterm()
    with suppress(asyncio.CancelledError):
        await follow(settings, keep_s)
