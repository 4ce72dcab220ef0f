"""`angarium export`: receivers as a file that `angarium apply` takes."""

from typing import Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import CommandFailed, perform
from angarium.terminal import output


@click.command("export", short_help="Print all receivers, as a file for apply.")
@names.tenant("tenant")
@click.option(
    "--json", is_flag=True, help="Accepted for consistency; the output is always JSON.", expose_value=False
)
@options.settings_flags(*options.CONNECTION, *options.SEALING)
def export(tenant: str | None, **given: Any) -> None:
    """Print the configurations of all receivers, or of a tenant's, as JSON for `angarium apply`.

    Secrets and header values are hidden (…). If you apply the file to the same installation, they stay.
    """
    from angarium.operations.declarations.export import export

    done = perform(options.settings_of(given), lambda access: export(access, tenant))
    output.say_json({"receivers": done.receivers})
    if tenant is not None and not done.receivers and not done.unreadable:
        names.note_unknown(tenant)
    if done.unreadable:
        raise CommandFailed(f"left out, since it cannot be read: {', '.join(done.unreadable)}")
