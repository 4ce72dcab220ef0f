"""`angarium erase`: what an event held leaves every store."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli import options
from angarium.cli.perform import CommandFailed, done
from angarium.terminal import output
from angarium.terminal.run import run

if TYPE_CHECKING:
    from angarium.connecting import Access
    from angarium.operations.erase import ErasureStatus

LOOK_EVERY_S = 0.5


@click.command("erase", short_help="Erase what an event held, everywhere.")
@click.option("--event", required=True, metavar="ID", help="The event's id (webhook-id).")
@click.option("--tenant", metavar="TENANT", help="Its tenant, if there are several.")
@click.option(
    "--wait", default="2m", show_default=True, metavar="AGE", help="Maximum time to wait until it is done."
)
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@options.takes(*options.CONNECTION)
def erase(event: str, tenant: str | None, wait: str, as_json: bool, **given: Any) -> None:
    """Erase the body and headers of an event from streams, dead letters, recorded answers and ledgers.

    Deliveries that wait are discarded, on record, with the reason erased. Numbers, ids, times and counters
    stay, and so does the record of who asked and when. Nodes do the work: it goes on if this command ends.
    """
    from angarium import quantities
    from angarium.connecting import accessed

    settings, wait_s = options.settings_of(given), quantities.age(wait)
    status = run(accessed(settings, lambda to: _erased(to, tenant, event, wait_s)))
    if as_json:
        output.say_json(status)
    elif status.done:
        output.say(_words(status))
    if not status.done:
        why = status.waits_for or "no node has begun"
        raise CommandFailed(
            f"not done yet ({why}); nodes go on with it, and the same command shows how far it is"
        )


async def _erased(to: "Access", tenant: str | None, event: str, wait_s: float) -> "ErasureStatus":
    """The record, once it is done, or the time is over. Raises CommandFailed."""
    import asyncio

    from angarium.operations.erase import get_erasure, only_tenant, request_erasure

    tenant = tenant or done(await only_tenant(to))
    status = done(await request_erasure(to, tenant, event, _operator()))
    deadline = asyncio.get_running_loop().time() + wait_s
    said = status.waits_for
    while not status.done and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(LOOK_EVERY_S)
        status = done(await get_erasure(to, tenant, event))
        if status.waits_for and status.waits_for != said and output.on_terminal():
            output.note(f"waiting: {output.visible(status.waits_for)}")
        said = status.waits_for
    return status


def _operator() -> str:
    """Name who asks, for the record: the user and the host of this command."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user without a name, as in containers.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _words(status: "ErasureStatus") -> str:
    counts = (
        f"events {status.events}, deliveries {status.deliveries} ({status.discarded} were waiting), "
        f"dead letters {status.dead_letters}, messages of the journal {status.journal_messages}"
    )
    return f"erased {status.event} of {status.tenant}: {counts}"
