"""`angarium receiver set`: changes members of a configuration, and shows the difference."""

from typing import Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.cli.receivers.flags import flags
from angarium.terminal import output


@click.command("set", short_help="Change members of a receiver's configuration.")
@names.receiver("name")
@flags
@click.option(
    "--event", "events", multiple=True, metavar="PATTERN", help="Event types that it gets (replaces all)."
)
@click.option("--direct-only", is_flag=True, help="Only events sent directly to this receiver.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Request header (repeatable).")
@click.option(
    "--unset", "unset", multiple=True, metavar="MEMBER", help="Reset to its default: rate, headers.x-team, …"
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING, *options.EDGE)
def set_members(name: str, unset: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Change one or several members of a receiver's configuration; all others stay as they are.

    Shows what changes. If another user changes the receiver at the same moment, nothing is done.
    """
    from angarium.cli.receivers import draft
    from angarium.operations.configurations.patch import patch_configuration

    change = draft.from_flags(given, partial=True)
    for path in unset:
        draft.take_away(change, path)
    if not change:
        raise click.UsageError("nothing to change; give a flag, such as --rate 5/second, or --unset MEMBER")
    settings = options.settings_of(given)
    done = perform(settings, lambda access: patch_configuration(access, name, change, dry_run=dry_run))
    changed = {each.member.lower() for each in done.changes}
    for path in unset:
        # Some members are shown as a whole.
        is_changed = any(f"{path.lower()}.".startswith(f"{each}.") for each in changed)
        if not is_changed and "." in path:
            output.note(f"note: {output.visible(path)} is not set")
    for note in done.notes:
        output.note(f"note: {note}")
    if as_json:
        output.say_json(draft.document(done))
        return
    verb = "would change" if dry_run else "changed" if done.changes else "unchanged:"
    output.say(f"{verb} {name} (revision {done.revision})")
    for each in done.changes:
        output.say(f"  {each}")
