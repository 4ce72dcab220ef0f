"""`angarium ledger`: copies the journal into a database for queries."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.settings import Settings
from angarium.terminal.run import end_on_sigterm, run_long

if TYPE_CHECKING:
    from angarium.access import Access

KEEP_MIN_S = 60


@click.command("ledger", short_help="Record what happened in SQLite or PostgreSQL, for queries.")
@click.option(
    "--to",
    "ledger",
    metavar="URL",
    help="Where to keep it: sqlite:///path/of/a/file, postgresql://user@host/database [ANGARIUM_LEDGER].",
)
@click.option(
    "--keep",
    default="30d",
    show_default=True,
    metavar="AGE",
    help="How long to keep rows: 12h, 30d, 8w.",
)
@options.settings_flags("ledger_monitor", *options.CONNECTION)
def ledger(keep: str, **given: Any) -> None:
    """Copy the journal into a ledger until Ctrl-C: every attempt, and how each event ended and why.

    It reads what the nodes have recorded and costs them nothing. It continues where it stopped. If you delete
    the file, it is rebuilt as far back as the journal reaches. `angarium dev` runs one. Query it with
    `angarium event`, `attempts`, `history`, `audit`, `top` and `inspect --at`, or in SQL (docs/ledger.md).
    """
    from angarium import quantities

    settings = options.settings_of(given, log_level="info")
    keep_s = options.quantity("--keep", quantities.parse_age, keep)
    if keep_s < KEEP_MIN_S:
        raise click.UsageError(f"--keep {keep}: must be at least a minute")
    _check_address(settings.ledger)
    run_long(_follow(settings, keep_s))


def _check_address(address: str) -> None:
    """Raises click.UsageError if the address is not one of a ledger."""
    from angarium.ledger.address import locate
    from angarium.ledger.store import BadAddress

    try:
        locate(address)
    except BadAddress as error:
        raise click.UsageError(str(error)) from None


async def _follow(settings: Settings, keep_s: float) -> None:
    """Follow until Ctrl-C or SIGTERM, which are the usual end of it."""
    import asyncio
    from contextlib import suppress

    from angarium.access import with_access
    from angarium.ledger.follow import follow

    end_on_sigterm()
    with suppress(asyncio.CancelledError):
        await with_access(settings, _check)
        await follow(settings, keep_s)


async def _check(access: "Access") -> None:
    from angarium.cli.invocation.perform import check_setup
    from angarium.operations.needed_permissions import check_permissions

    await check_setup(access)
    await check_permissions(access, reads=(access.names.journal, access.names.receivers))
