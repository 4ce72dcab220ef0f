"""`angarium history`: what happened to a receiver, from the ledger."""

from typing import Any

import click

from angarium.cli import names, options
from angarium.terminal import output


@click.command("history", short_help="What happened to a receiver, from the ledger.")
@names.receiver("receiver")
@click.option("--since", metavar="TIME", help="Only since then: 2h, 3d, 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only from before then.")
@click.option("--json", "as_json", is_flag=True, help="One document, in JSON.")
@options.takes("ledger", "prefix")
def history(receiver: str, as_json: bool, **given: Any) -> None:
    """Tell in words what happened to a receiver: paused, changed, resumed, disabled, offline, and back again.

    A configuration that was put and replaced while no ledger ran is not known: the bucket keeps the last.
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
