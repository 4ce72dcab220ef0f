"""`angarium later …`: timed events."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import completion, names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.events.list_timed import TimedEvent

LIST_MAX = 50


@click.group(short_help="List and cancel timed events.")
def later() -> None:
    """List and cancel timed events, as `angarium publish --at` publishes them."""


@later.command("list", short_help="List the waiting events, the next first.")
@names.tenant("tenant")
@click.option(
    "--receiver", metavar="TENANT.NAME", shell_complete=completion.receivers,
    help="Only events for this one receiver.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(0), default=LIST_MAX, show_default=True, help="0: all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@options.settings_flags(*options.CONNECTION)
def list_(tenant: str | None, receiver: str | None, limit: int, as_json: bool, **given: Any) -> None:
    """List the timed events of a tenant, or of all, the next first."""
    from actors.ids import split_receiver
    from angarium.operations.events.list_timed import list_timed_up_to

    settings, name = options.settings_of(given), ""
    if receiver is not None:
        whose, name = split_receiver(receiver)
        if tenant not in (None, whose):
            raise click.UsageError(f"--receiver: {receiver} is no receiver of {tenant}")
        tenant = whose
    listed = perform(settings, lambda access: list_timed_up_to(access, tenant, name, limit or None))
    if as_json:
        for each in listed.events:
            output.say_json_line(each)
    else:
        rows = [_cells(each) for each in listed.events]
        output.say_table(("due", "id", "for", "type"), rows)
    if listed.next is not None:
        output.note(f"note: there may be more than {limit}; --limit 0 lists all")


@later.command(short_help="Cancel a waiting event.")
@click.argument("tenant")
@click.argument("event", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
def cancel(tenant: str, event: str, as_json: bool, **given: Any) -> None:
    """Cancel the event ID of TENANT, which waits for its time. After that message it is never delivered."""
    from angarium.operations.events.cancel_timed import cancel_timed

    done = perform(options.settings_of(given), lambda access: cancel_timed(access, tenant, event))
    if as_json:
        output.say_json(done)
        return
    for each in done.cancelled:
        output.say(f"cancelled {each.id}, which was due at {each.due_at}")
    if done.before and not done.cancelled:
        output.say(f"{event} was cancelled before")
    if done.too_late:
        output.note(f"note: {done.too_late} of this id were due before, and are delivered")


def _cells(each: "TimedEvent") -> tuple[str, str, str, str]:
    """The row of an event."""
    receiver = f"{each.tenant}.{each.receiver}" if each.receiver else each.tenant
    return f"{each.due_at[:19]}Z", each.id, receiver, each.type
