"""`angarium minutes`: throughput and latency of a receiver by minute, from the ledger."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli import names, options
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.records.minutes import Minute

HEADINGS = (
    "minute",
    "attempts",
    "delivered",
    "failed",
    "throttled",
    "dead",
    "latency",
    "longest",
    "late",
    "latest",
)


@click.command("minutes", short_help="Show throughput and latency by minute, from the ledger.")
@names.receiver("receiver")
@click.option(
    "--since",
    metavar="TIME",
    default="1h",
    show_default=True,
    help="From this time on: 2h, 3d, 2026-01-31T12:00:00Z.",
)
@click.option("--until", metavar="TIME", help="Up to this time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.takes("ledger", "prefix")
def minutes(receiver: str, as_json: bool, **given: Any) -> None:
    """Show the attempts to a receiver by minute: how many, how they ended, how long they took.

    Latency is the mean of the attempts, and the longest; lateness the mean time from storing an event to
    delivering it, and the longest. Minutes in which nothing happened are left out.
    """
    from angarium.cli import ledger_questions
    from angarium.operations.records.minutes import find_minutes

    settings = options.settings_of(given)
    since, until = ledger_questions.span(given)
    found = ledger_questions.consult(settings, lambda of: find_minutes(of, receiver, since, until))
    if as_json:
        output.say_json(found)
        return
    output.say_table(HEADINGS, map(cells, found.minutes))
    ledger_questions.notes(found.ledger)


def cells(each: "Minute") -> list[Any]:
    """The row of a minute."""
    return [
        f"{each.at[:10]} {each.at[11:16]}Z", each.attempts, each.delivered, each.failed, each.throttled,
        each.dead, _timed(each.latency_ms, "ms"), _timed(each.latency_ms_max, "ms"), _timed(each.late_s, "s"),
        _timed(each.late_s_max, "s"),
    ]  # fmt: skip


def _timed(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.3g} {unit}"
