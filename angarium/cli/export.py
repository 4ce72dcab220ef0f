"""`angarium export`: receivers as a file that `angarium apply` takes."""

from typing import Any

import click

from angarium.cli import names, options
from angarium.cli.perform import CommandFailed, perform
from angarium.terminal import output


@click.command("export", short_help="Write receivers down, for apply.")
@names.tenant("tenant")
@click.option(
    "--json", is_flag=True, help="Accepted for consistency; the output is always JSON.", expose_value=False
)
@options.takes(*options.CONNECTION)
def export(tenant: str | None, **given: Any) -> None:
    """Write the configurations of all receivers, or of a tenant's, as the JSON that `angarium apply` takes.

    Secrets and values of headers are hidden (…); applied to the same installation, they stay as they are.
    """
    from angarium.operations.receivers.export import export

    done = perform(options.settings_of(given), lambda to: export(to, tenant))
    output.say_json({"receivers": done.receivers})
    if done.unreadable:
        raise CommandFailed(f"left out, since nobody can read it: {', '.join(done.unreadable)}")
