"""`angarium top`: the receivers that do worst, from the ledger."""

from typing import Any

import click

from angarium.cli import options
from angarium.terminal import output

FAILING_HEADINGS = ("failing for", "receiver", "failures", "last")
LATE_HEADINGS = ("latest", "mean", "receiver", "delivered", "failed")


@click.command("top", short_help="List the worst receivers, from the ledger.")
@click.option(
    "--within", default="1h", show_default=True, metavar="AGE", help="Period for lateness: 15m, 2h, 1d."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Maximum number of each."
)
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.takes("ledger", "prefix")
def top(within: str, limit: int, wide: bool, as_json: bool, **given: Any) -> None:
    """List failing receivers, the longest outage first, and receivers with late events.

    Lateness is the time from storing an event to delivering it.
    """
    from angarium import quantities
    from angarium.cli import record_words as words
    from angarium.operations.records import top as operation

    settings, within_s = options.settings_of(given), quantities.age(within)
    worst = words.consult(settings, lambda of: operation.top(of, within_s, limit))
    if as_json:
        output.say_json(worst)
        return
    cut = () if wide else ("last", "receiver")
    output.say_table(FAILING_HEADINGS, map(words.failing_cells, worst.failing), cut=cut, wide=wide)
    if output.on_terminal():
        output.say()
    output.say_table(LATE_HEADINGS, map(words.late_cells, worst.late), cut=cut[1:], wide=wide)
    words.notes(worst.ledger)
