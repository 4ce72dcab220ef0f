"""`angarium minutes`: throughput and latency of a receiver by minute, from the ledger."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from angarium import quantities
from angarium.cli.invocation import names, options
from angarium.cli.ledger_queries.period import period
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.ledger_queries.minutes import Minute

HEADINGS = (
    "minute",
    "attempts",
    "posts",
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

    An attempt is of one event; a POST of a receiver with batches has several. Latency is the mean of the
    attempts, and the longest; lateness the mean time from accepting an event to
    delivering it, and the longest. Minutes in which nothing happened are left out.
    """
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, period_ms, show_notes
    from angarium.operations.ledger_queries.minutes import find_minutes

    settings = options.settings_of(given)
    since, until = period_ms(given)
    found = ask_ledger(settings, lambda ledger: find_minutes(ledger, receiver, since, until))
    if as_json:
        output.say_json(found)
        return
    say([cells(each) for each in found.minutes], wide=wide)
    show_notes(found.ledger, since)


def say(rows: list[dict[str, Any]], *, wide: bool) -> None:
    """Print the rows, all columns if they fit the terminal."""
    everything = [list(row.values()) for row in rows]
    if wide or not output.is_terminal() or output.fits(HEADINGS, everything):
        output.say_table(HEADINGS, everything, wide=wide)
        return
    output.say_table(NARROW_COLUMNS, [[row[heading] for heading in NARROW_COLUMNS] for row in rows])
    output.note_left_out(HEADINGS, NARROW_COLUMNS)


def cells(each: "Minute") -> dict[str, Any]:
    """The row of a minute, by column."""
    return {
        "minute": f"{each.at[:16]}Z",
        "attempts": each.attempts,
        "posts": each.posts,
        "delivered": each.delivered,
        "failed": each.failed,
        "throttled": each.throttled,
        "dead": each.dead,
        "latency": _text(quantities.milliseconds_text, each.latency_ms),
        "longest": _text(quantities.milliseconds_text, each.latency_ms_max),
        "mean late": _text(quantities.seconds_text, each.late_s),
        "most late": _text(quantities.seconds_text, each.late_s_max),
    }


def _text(write: Callable[[float], str], value: float | None) -> str | None:
    return None if value is None else write(value)
