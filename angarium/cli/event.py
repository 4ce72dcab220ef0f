"""`angarium event`: one event's journey over all receivers, from the ledger."""

from typing import Any

import click

from angarium.cli import options
from angarium.terminal import output

ANSWER_MAX = 200
"""Characters of an answer that are shown; `--json` has all that is kept."""


STILL_WAITING = "a receiver where it still waits is not listed; angarium inspect TENANT.NAME shows what waits"


@click.command("event", short_help="Show what happened to an event, from the ledger.")
@click.argument("event_id", metavar="ID")
@click.option(
    "--tenant", metavar="TENANT", help="Only receivers of this tenant; other tenants may use the same id."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.takes("ledger", "prefix")
def event(event_id: str, tenant: str | None, as_json: bool, **given: Any) -> None:
    """Show which receivers got an event, with its number, each attempt, and how it ended.

    A receiver is listed once its first attempt has started. Before that, `angarium inspect` shows what waits.
    """
    from angarium.cli import attempt_table, ledger_questions
    from angarium.operations.records.journey import journey

    settings = options.settings_of(given)
    found = ledger_questions.consult(settings, lambda of: journey(of, event_id, tenant))
    if as_json:
        output.say_json(found)
        return
    for delivery in found.deliveries:
        output.say(headline(delivery))
        for each in delivery["attempts"]:
            took = f"{each['latency_ms']:.0f} ms"
            output.say(
                f"  {attempt_table.moment(each['at'])}  attempt {each['attempt']}: "
                f"{output.visible(attempt_table.outcome(each))}, {took}"
            )
            if each["answer"]:
                output.say(f"    answered: {output.first_of(each['answer'], ANSWER_MAX)}")
    output.note(f"note: {STILL_WAITING}")
    ledger_questions.notes(found.ledger)


def headline(delivery: dict[str, Any]) -> str:
    """A delivery in a line: `acme.billing #17 (order.created): delivered 2026-…, stored …`."""
    from angarium.cli import attempt_table

    kind = f" ({delivery['type']})" if delivery["type"] else ""
    name = f"{delivery['receiver']} #{delivery['sequence']}{kind}"
    again = ", sent again" if delivery["again"] else ""
    stored = f"stored {attempt_table.moment(delivery['stored_at'])}{again}"
    ended = attempt_table.moment(delivery["ended_at"])
    match delivery["state"]:
        case "open":
            return f"{name}: under way, {stored}"
        case "unknown":
            return f"{name}: it is not known how it ended, {stored}"
        case "dead":
            return f"{name}: dead letter ({delivery['reason']}) {ended}, {stored}"
        case "discarded" if delivery["reason"]:
            return f"{name}: discarded ({delivery['reason']}) {ended}, {stored}"
        case state:
            return f"{name}: {state} {ended}, {stored}"
