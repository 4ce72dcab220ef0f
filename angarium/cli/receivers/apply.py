"""`angarium apply`: receivers as a file declares them, with the plan shown first."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from angarium.cli.invocation import options
from angarium.cli.invocation.perform import CommandFailed, WrongRequest, perform
from angarium.terminal import output
from angarium.terminal.run import confirm

if TYPE_CHECKING:
    from angarium.operations.declarations.apply import AppliedDocument, ReceiverChange

SIGNS = {"create": "+", "change": "~", "remove": "-", "keep": "="}


@click.command("apply", short_help="Change receivers to match a file.")
@click.option(
    "-f", "--file", "file", type=click.File("rb"), required=True,
    help="JSON, or TOML if the name ends in .toml; - is JSON from stdin.",
)  # fmt: skip
@click.option("--tenant", metavar="TENANT", help="Only this tenant (default: those in the file).")
@click.option("--prune", is_flag=True, help="Remove receivers that are not in the file.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan and the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING, *options.EDGE)
def apply(
    file: BinaryIO, tenant: str | None, prune: bool, dry_run: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Change receivers to match a file: {"receivers": {"TENANT.NAME": {"url": …}}}.

    Everything is checked before anything is stored, and the plan is shown first. Members that the file leaves
    out go back to their defaults, except secrets and a pause, which stay. `angarium export` writes such a
    file; values that it hides (…) stay as they are.
    """
    from actors.errors import InvalidPolicy
    from angarium.operations.declarations.apply import apply
    from angarium.operations.declarations.declared import DOCUMENT_MAX, read_declared
    from angarium.operations.failures import NotDone

    settings = options.settings_of(given)
    try:
        declared = read_declared(file.read(DOCUMENT_MAX + 1), toml=file.name.endswith(".toml"))
    except InvalidPolicy as error:
        raise WrongRequest(_wrong(file.name, error.problems)) from None

    def agreed(plan: "list[ReceiverChange]") -> bool:
        if not as_json:
            for line in lines(plan):
                output.say(line)
        changing = [each for each in plan if each.action != "keep"]
        if dry_run or yes or not changing:
            return not dry_run
        if output.can_ask():
            return confirm("apply this")
        if any(each.action == "remove" for each in changing):
            raise click.UsageError(
                "receivers would be removed, and their waiting events discarded; confirm with --yes"
            )
        return True

    async def located(access: Any) -> "AppliedDocument | NotDone":
        done = await apply(access, declared, tenant=tenant, prune=prune, agreed=agreed)
        if isinstance(done, NotDone) and done.problems:
            return NotDone(kind="invalid", text=_wrong(file.name, done.problems))
        return done

    done = perform(settings, located)
    if as_json:
        from msgspec import to_builtins

        from angarium.cli.receivers.draft import document

        output.say_json(to_builtins(done) | {"stored": list(map(document, done.stored))})
    else:
        for line in outcome(done):
            output.say(line)
    if done.failed:
        raise CommandFailed("; ".join(f"{name}: {why}" for name, why in done.failed.items()))
    if not done.agreed and not dry_run:
        raise CommandFailed("nothing was changed")


def _wrong(name: str, problems: Any) -> str:
    return f"{name}: {'; '.join(problems)}"


def lines(plan: "list[ReceiverChange]") -> Iterator[str]:
    """The plan for people: the changes, and how many receivers stay as they are."""
    kept = sum(each.action == "keep" for each in plan)
    for step in plan:
        if step.action == "keep":
            continue
        discarded = " (its waiting events are discarded)" if step.action == "remove" else ""
        yield f"{SIGNS[step.action]} {step.action} {step.receiver}{discarded}"
        yield from (f"    {change}" for change in step.changes)
        yield from (f"    note: {note}" for note in step.notes)
    if kept:
        yield f"= {kept} {'stays as it is' if kept == 1 else 'stay as they are'}"


def outcome(done: "AppliedDocument") -> Iterator[str]:
    """The result for people, with the secrets that were made."""
    for put in done.stored:
        if put.secret is not None:
            yield f"secret of {put.receiver}: {put.secret} (not shown again)"
    if done.agreed:
        yield f"stored {len(done.stored)}, removed {len(done.removed)}"
