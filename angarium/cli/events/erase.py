"""`angarium erase`: erases the content of an event from every store."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import CommandFailed, done
from angarium.terminal import output
from angarium.terminal.run import confirm, run

if TYPE_CHECKING:
    from angarium.access import Access
    from angarium.operations.events.erase import ErasureStatus

ERASURE_POLL_S = 0.5
INTERRUPTED = "angarium: interrupted; the erasure continues, and the same command shows its progress\n"


@click.command("erase", short_help="Erase the content of an event everywhere.")
@click.option("--event", required=True, metavar="ID", help="The event's id (webhook-id).")
@click.option("--tenant", metavar="TENANT", help="Its tenant, if there are several.")
@click.option(
    "--wait", default="2m", show_default=True, metavar="AGE", help="Maximum time to wait until it is done."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@options.settings_flags(*options.CONNECTION)
def erase(event: str, tenant: str | None, wait: str, yes: bool, as_json: bool, **given: Any) -> None:
    """Erase the body and headers of an event from streams, dead letters, recorded answers and ledgers.

    Waiting deliveries are discarded and recorded with the reason erased. Numbers, ids, times and counters
    stay, and so does the record of who asked and when. Nodes do the work: it continues if this command ends.
    Asks for confirmation. An event that no stream has is erased from ledgers.
    """
    from angarium import quantities
    from angarium.access import with_access

    settings, wait_s = options.settings_of(given), options.quantity("--wait", quantities.parse_age, wait)

    def agreed(tenant: str) -> bool:
        if yes:
            return True
        if not output.can_ask():
            raise click.UsageError(f"this erases {event} of {tenant} for good: give --yes to confirm")
        return confirm(f"permanently erase {event} of {tenant}")

    status = run(
        with_access(settings, lambda access: _erased(access, tenant, event, wait_s, agreed)),
        interrupted=INTERRUPTED,
    )
    if as_json:
        output.say_json(status)
    elif status.done:
        output.say(summary(status))
    if not status.done:
        why = status.waits_for or "no node has begun"
        raise CommandFailed(
            f"not done yet ({why}); nodes continue with it, and the same command shows how far it is"
        )


async def _erased(
    access: "Access", tenant: str | None, event: str, wait_s: float, agreed: Callable[[str], bool]
) -> "ErasureStatus":
    """The record, once it is done, or the time is over. Raises CommandFailed."""
    import asyncio

    from angarium.operations.events.erase import get_erasure, only_tenant, request_erasure
    from angarium.operations.live.tail import is_known

    if tenant is None:
        tenant = await done(access, await only_tenant(access))
    elif await is_known(access, tenant) is False:
        names.note_unknown(tenant)
    if not agreed(tenant):
        raise CommandFailed(f"{event} was not erased")
    status = await done(access, await request_erasure(access, tenant, event))
    deadline = asyncio.get_running_loop().time() + wait_s
    said = status.waits_for
    while not status.done and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(ERASURE_POLL_S)
        status = await done(access, await get_erasure(access, tenant, event))
        if status.waits_for and status.waits_for != said and output.is_terminal():
            output.note(f"waiting: {output.visible(status.waits_for)}")
        said = status.waits_for
    return status


def summary(status: "ErasureStatus") -> str:
    """The result for people: how much was erased where, or that no stream had the event."""
    from angarium.quantities import count_text

    if not status.events + status.deliveries + status.dead_letters + status.journal_messages:
        return (
            f"nothing to erase: no stream has the event {status.event} of {status.tenant}; the request is "
            f"recorded, so that ledgers erase their rows of it"
        )
    deliveries = "1 delivery" if status.deliveries == 1 else f"{status.deliveries} deliveries"
    counts = (
        f"{count_text(status.events, 'event')}, {deliveries} ({status.discarded} of them "
        f"waiting), {count_text(status.dead_letters, 'dead letter')}, "
        f"{count_text(status.journal_messages, 'message')} of the journal"
    )
    return f"erased {status.event} of {status.tenant}: {counts}"
