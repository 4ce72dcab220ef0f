"""`angarium history`: what happened to a receiver, from the ledger."""

from typing import Any

import click

from angarium.cli import names, options
from angarium.terminal import output


@click.command("history", short_help="Show what happened to a receiver, from the ledger.")
@names.receiver("receiver")
@click.option("--since", metavar="TIME", help="Only since this time: 2h, 3d, 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.takes("ledger", "prefix")
def history(receiver: str, as_json: bool, **given: Any) -> None:
    """Show what happened to a receiver: paused, changed, resumed, disabled, offline, recovered.

    If a configuration was put and replaced while no ledger ran, it is missing: NATS keeps the last one only.
    """
    from angarium.cli import record_words as words
    from angarium.operations.records import history as operation

    settings = options.settings_of(given)
    since, until = words.span(given)
    told = words.consult(settings, lambda of: operation.history(of, receiver, since, until))
    if as_json:
        output.say_json(told)
        return
    for each in told.entries:
        output.say(f"{words.moment(each.at)}  {output.visible(each.what)}")
    output.say(f"{'now':24}  {output.visible(told.now)}")
    words.notes(told.ledger)
