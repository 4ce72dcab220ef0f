"""`angarium receiver test-filter`: what the last events would have done with a filter."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.configurations.trials.filter_trial import FilterTrial, TriedEvent

HEADINGS = ("STORED", "TYPE", "ID", "RESULT")


@click.command("test-filter", short_help="Try a receiver's filter on the last events.")
@names.receiver("name")
@click.option("--filter", "expression", help="Another filter, in JMESPath, than the receiver's own.")
@click.option(
    "--last", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many events to try."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@options.settings_flags(*options.CONNECTION)
def filter_trial(name: str, expression: str | None, last: int, as_json: bool, **given: Any) -> None:
    """Show which of the last events a receiver would get, by its region and its filter. Nothing is sent.

    The events are the last ones of its tenant that the receiver subscribes to, the oldest first.
    """
    from angarium.operations.configurations.trials.filter_trial import try_filter

    settings = options.settings_of(given)
    done = perform(settings, lambda access: try_filter(access, name, expression, last))
    if as_json:
        output.say_json(done)
        return
    if done.events:
        rows = [(each.stored_at, each.type, each.id, _result(each)) for each in done.events]
        output.say_table(HEADINGS, rows)
    output.say(_sum(done))
    if done.filter is None and not done.region:
        output.note(f"note: {name} has neither a filter nor a region; try one with --filter")
    if done.cut:
        output.note("note: older events were not looked at, since there are too many")


def _result(event: "TriedEvent") -> str:
    match event.result:
        case "sent":
            return "sent"
        case "filter" | "region":
            return f"not sent: {event.result}"
        case failure:
            return f"not sent: {failure} ({event.why})"


def _sum(done: "FilterTrial") -> str:
    failed = f" ({done.failed} because the filter could not be evaluated)" if done.failed else ""
    return f"{len(done.events)} events: {done.sent} sent, {done.not_sent} not sent{failed}"
