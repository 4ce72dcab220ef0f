"""`angarium history`: what happened to a receiver, from the ledger."""

from typing import Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.ledger_queries.period import period
from angarium.terminal import output


@click.command("history", short_help="Show what happened to a receiver, from the ledger.")
@names.receiver("receiver")
@period()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", "prefix")
def history(receiver: str, as_json: bool, **given: Any) -> None:
    """Show what happened to a receiver: paused, changed, resumed, disabled, removed, recovered.

    An outage is listed once it is over; until then the last line says since when it has lasted.

    A configuration is shown with the members that changed and who changed them. NATS keeps the last 8 changes
    of a receiver; if more were made while no ledger ran, the authors of the older ones are not known.
    """
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, period_ms, show_notes
    from angarium.operations.ledger_queries.history import read_history

    settings = options.settings_of(given)
    since, until = period_ms(given)
    found = ask_ledger(settings, lambda ledger: read_history(ledger, receiver, since, until))
    if as_json:
        output.say_json(found)
        return
    for each in found.entries:
        output.say_wrapped(output.visible(each.what), f"{each.at}  ")
    output.say_wrapped(output.visible(found.now), f"{'now':24}  ")
    show_notes(found.ledger)
