"""`angarium minutes`: throughput and latency of a receiver by minute, from the ledger."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.ledger_records.period import period
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.ledger_queries.minutes import Minute

HEADINGS = (
    "minute",
    "attempts",
    "delivered",
    "failed",
    "throttled",
    "dead",
    "latency",
    "longest",
    "mean late",
    "most late",
)
NARROW_COLUMNS = ("minute", "attempts", "delivered", "failed", "dead", "latency", "mean late")


@click.command("minutes", short_help="Show throughput and latency by minute, from the ledger.")
@names.receiver("receiver")
@period(default="1h")
@click.option("--wide", is_flag=True, help="Show all columns, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", "prefix")
def minutes(receiver: str, wide: bool, as_json: bool, **given: Any) -> None:
    """Show the attempts to a receiver by minute: how many, how they ended, how long they took.

    Latency is the mean of the attempts, and the longest; lateness the mean time from accepting an event to
    delivering it, and the longest. Minutes in which nothing happened are left out.
    """
    from angarium.cli.ledger_records import ledger_questions
    from angarium.operations.ledger_queries.minutes import find_minutes

    settings = options.settings_of(given)
    since, until = ledger_questions.span(given)
    found = ledger_questions.consult(settings, lambda ledger: find_minutes(ledger, receiver, since, until))
    if as_json:
        output.say_json(found)
        return
    all_of_it = wide or not output.on_terminal()
    headings = HEADINGS if all_of_it else NARROW_COLUMNS
    rows = [cells(each) for each in found.minutes]
    output.say_table(headings, [[row[heading] for heading in headings] for row in rows], wide=wide)
    ledger_questions.notes(found.ledger, since)


def cells(each: "Minute") -> dict[str, Any]:
    """The row of a minute, by column."""
    return {
        "minute": f"{each.at[:16]}Z",
        "attempts": each.attempts,
        "delivered": each.delivered,
        "failed": each.failed,
        "throttled": each.throttled,
        "dead": each.dead,
        "latency": _timed(each.latency_ms, "ms"),
        "longest": _timed(each.latency_ms_max, "ms"),
        "mean late": _timed(each.late_s, "s"),
        "most late": _timed(each.late_s_max, "s"),
    }


def _timed(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.3g} {unit}"
