"""`angarium attempts`: the requests to a receiver and its responses, from the ledger."""

from typing import Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.ledger_queries.period import period
from angarium.terminal import output

LIST_MAX = 50


@click.command("attempts", short_help="List the attempts to a receiver, from the ledger.")
@names.receiver("receiver")
@click.option("--failed", is_flag=True, help="Only failed attempts.")
@click.option("--status", metavar="STATUS", help="Only this status, such as 503, or a class, such as 5xx.")
@click.option("--type", "event_type", metavar="TYPE", help="Only events of this type, such as order.created.")
@period()
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=LIST_MAX,
    show_default=True,
    help="Maximum number to show.",
)
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", "prefix")
def attempts(
    receiver: str,
    failed: bool,
    status: str | None,
    event_type: str | None,
    limit: int,
    wide: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """List the attempts to a receiver, newest first, each with its result and how long it took."""
    from angarium.cli.ledger_queries import attempt_table
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, period_ms, show_notes, status_range
    from angarium.ledger.ledger_answers import AttemptFilter
    from angarium.operations.ledger_queries.attempts import find_attempts

    settings = options.settings_of(given)
    since, until = period_ms(given)
    wanted = AttemptFilter(
        failed=failed, status=None if status is None else status_range(status), type=event_type,
        since=since, until=until, limit=limit,
    )  # fmt: skip
    listed = ask_ledger(settings, lambda ledger: find_attempts(ledger, receiver, wanted))
    if as_json:
        output.say_json(listed)
        return
    output.say_table(
        attempt_table.HEADINGS,
        map(attempt_table.cells, listed.attempts),
        cut=() if wide else attempt_table.CUT_COLUMNS,
        wide=wide,
    )
    if listed.more:
        output.note(f"note: {output.newest(limit)}; --limit or --until shows older ones")
    show_notes(listed.ledger, since)
