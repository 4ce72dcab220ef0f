"""`angarium job …`: lists, shows and stops replays and redrives of the HTTP API and of commands."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.jobs.plans import JobDocument

LIST_MAX = 50


@click.group(short_help="List, show and stop jobs: replays and long redrives.")
def job() -> None:
    """List and show jobs: replays, and long redrives. Those that were begun over HTTP can be stopped."""


@job.command("list", short_help="List the jobs.")
@names.tenant("tenant")
@click.option("--limit", type=click.IntRange(0), default=LIST_MAX, show_default=True, help="0: all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
@options.settings_flags(*options.CONNECTION)
def list_(tenant: str | None, limit: int, as_json: bool, **given: Any) -> None:
    """List the jobs of a tenant, or of all, newest first: the last one of each receiver and tenant.

    Replays that were begun on the command line are listed, too, with who began them.
    """
    from angarium.operations.jobs.listing import list_jobs

    listed = perform(options.settings_of(given), lambda access: list_jobs(access, tenant, limit or None))
    if as_json:
        for each in listed.jobs:
            output.say_json_line(each)
    else:
        output.say_table(("job", "state", "began", "looked at", "sent", "by"), map(cells, listed.jobs))
    for why in listed.unreadable:
        output.note(f"note: {why}")
    if listed.next is not None:
        output.note(f"note: there are more than {limit}; --limit 0 lists all")


@job.command(short_help="Show a job.")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
def show(job_id: str, as_json: bool, **given: Any) -> None:
    """Show the progress of a JOB, and why it waits or has failed."""
    from angarium.operations.jobs.show import show

    _say(perform(options.settings_of(given), lambda access: show(access, job_id)), as_json=as_json)


@job.command(short_help="Stop a job.")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
def stop(job_id: str, as_json: bool, **given: Any) -> None:
    """Stop a JOB. Its process notices within seconds; events that were sent stay sent."""
    from angarium.operations.jobs.stop import stop

    _say(perform(options.settings_of(given), lambda access: stop(access, job_id)), as_json=as_json)


def _say(found: "JobDocument", *, as_json: bool) -> None:
    if as_json:
        output.say_json(found)
        return
    output.say(f"{found.id}: {found.state}, sent {found.sent}, looked at {_done(found)}")
    by = f" by {output.visible(found.by)} ({found.origin})" if found.by else ""
    output.say(f"  began {found.began_at}{by}" + (f", ended {found.ended_at}" if found.ended_at else ""))
    for reason, count in sorted(found.left_out.items()):
        output.say(f"  {count} not sent: {reason}")
    if found.again is not None:
        output.say(f"  angarium-again: {found.again}")
    if found.why is not None:
        output.say(f"  {output.visible(found.why)}")
    if found.kept_since is not None:
        output.note(f"note: events published before {found.kept_since} are no longer kept")
    if found.purged:
        output.note("note: some that were to be sent were purged meanwhile")


def cells(each: "JobDocument") -> tuple[object, ...]:
    """The row of a job, with its time to the minute, as `--since` takes it."""
    return each.id, each.state, f"{each.began_at[:16]}Z", _done(each), each.sent, each.by or "-"


def _done(each: "JobDocument") -> str:
    """The messages that were looked at, of all; a redrive counts them when it has looked at a page."""
    return f"{each.looked_at} of {each.total}" if each.total else "-"
