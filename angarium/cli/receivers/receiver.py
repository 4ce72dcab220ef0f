"""`angarium receiver …`: the configurations of receivers, and requests about one of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from actors.machine.scheduling.phases import PHASES
from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.cli.receivers.edit import edit
from angarium.cli.receivers.filter_trial import filter_trial
from angarium.cli.receivers.flags import SECRET_KINDS, flags
from angarium.cli.receivers.rotate import rotate_secret
from angarium.cli.receivers.set import set_members
from angarium.cli.receivers.transform_trial import transform_trial
from angarium.terminal import output
from angarium.terminal.run import confirm

if TYPE_CHECKING:
    from angarium.operations.control_requests.ask import WaitingEvents

_named = names.receiver("name")
SECRETS = ("whsec_", "whs512_", "whsk_")


class _ReceiverCommands(click.Group):
    """The commands for receivers: `show`, which other groups have, is `get` here."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "show" and not context.resilient_parsing:
            raise click.UsageError("No such command 'show'. Did you mean 'get'?", context)
        return super().resolve_command(context, args)


@click.group(cls=_ReceiverCommands, short_help="Configure and control receivers.")
def receiver() -> None:
    """Configure and control receivers. A receiver is named TENANT.NAME, such as acme.billing."""


def _secret(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value and not value.startswith(SECRETS):  # Not shown: it may still be one.
        raise click.BadParameter(
            f"must begin with {', '.join(SECRETS)}; for a new secret, write it after the receiver's name"
        )
    return value


for _command in (set_members, edit, rotate_secret, filter_trial, transform_trial):
    receiver.add_command(_command)


@receiver.command(short_help="Create a receiver, or change it.")
@_named
@click.argument("policy", metavar="[JSON]", required=False)
@click.option("--file", "file", type=click.File("rb"), help="Read the JSON from a file; - is stdin.")
@flags
@click.option(
    "--event", "events", multiple=True, metavar="PATTERN", help="Event types that it gets (repeatable)."
)
@click.option("--direct-only", is_flag=True, help="Only events sent directly to this receiver.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Request header (repeatable).")
@click.option("--paused", is_flag=True, default=None, help="Hold its events back.")
@click.option(
    "--secret", "secrets", multiple=True, metavar="whsec_…", help="Secret to sign with (repeatable)."
)
@click.option("--unsigned", is_flag=True, help="Do not sign.")
@click.option(
    "--add-secret",
    is_flag=False,
    flag_value="",
    callback=_secret,
    metavar="[whsec_…]",
    help="Sign with this secret, or a new one, in addition to the old ones.",
)
@click.option("--secret-kind", type=click.Choice(SECRET_KINDS), help="What a new secret signs with.")
@click.option("--drop-old-secrets", is_flag=True, help="Sign only with the newest secret.")
@click.option("--replace", is_flag=True, help="Drop stored settings that the new configuration lacks.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING, *options.EDGE)
def put(name: str, policy: str | None, file: BinaryIO | None, as_json: bool, **given: Any) -> None:
    """Create a receiver, or replace its configuration: with flags, or with JSON (an argument or a file).

    Only the URL is required; everything else has a default. If the receiver exists, the changes are shown,
    and nothing is dropped silently: repeat the settings that it has, or give --replace.

    You can edit the output of `receiver get` and put it again: hidden values (…) stay as they are. Secrets
    that you do not mention also stay. A new receiver gets a secret, which is shown once. `receiver set`
    changes single members, `receiver rotate-secret` replaces the secret.
    """
    from angarium.cli.receivers import draft
    from angarium.operations.configurations.put import put_configuration

    settings = options.settings_of(given)
    if policy is not None and file is not None:
        raise click.UsageError("the JSON was given twice; give the argument or --file")
    if policy == "-":
        raise click.UsageError("to read the JSON from stdin, give --file -")
    text = file.read() if file is not None else policy.encode() if policy is not None else None
    new = draft.draft(text, given)
    done = perform(settings, lambda access: put_configuration(access, name, new))
    for note in done.notes:
        output.note(f"note: {note}")
    if as_json:
        output.say_json(draft.document(done))
        return
    for line in draft.outcome(done):
        output.say(line)


@receiver.command(short_help="Show a receiver's configuration.")
@_named
@click.option(
    "--json", is_flag=True, help="Accepted for consistency; the output is always JSON.", expose_value=False
)
@options.settings_flags(*options.CONNECTION)
def get(name: str, **given: Any) -> None:
    """Show a receiver's configuration as it was put, with secrets and header values hidden."""
    from angarium.operations.configurations.get import get_configuration

    shown = perform(options.settings_of(given), lambda access: get_configuration(access, name))
    output.say_json(with_whole_numbers(shown.members))
    if shown.problems:
        output.note(f"not in force: {output.visible('; '.join(shown.problems))}")
    if shown.warnings:
        output.note(f"in force, except: {output.visible('; '.join(shown.warnings))}")


@receiver.command("list", short_help="List receivers: phase, waiting events, configuration.")
@names.tenant("tenant")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(PHASES),
    help="Only receivers in this phase (repeatable).",
)
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
def list_receivers(
    tenant: str | None, phases: tuple[str, ...], wide: bool, as_json: bool, **given: Any
) -> None:
    """List all receivers, or those of a tenant: phase, waiting events, age of the oldest, configuration.

    Phases and counts are a few seconds old (angarium inspect shows live ones); - means not known.
    """
    import time

    from angarium.cli.receivers import table
    from angarium.operations.receiver_list.listing import overview

    found = perform(options.settings_of(given), lambda access: overview(access, tenant, phases))
    now = time.time()
    if as_json:
        output.say_json(found.rows)
    else:
        all_of_it = wide or not output.is_terminal()
        headings = table.HEADINGS if all_of_it else table.NARROW_COLUMNS
        rows = [table.cells(row, headings, now) for row in found.rows]
        output.say_table(headings, rows, cut=() if all_of_it else table.CUT_COLUMNS, wide=all_of_it)
        if not all_of_it and any(row.problem for row in found.rows):
            output.note("note: some configurations have a problem; --wide shows it")
    for note in found.notes:
        output.note(f"note: {output.visible(note)}")
    if tenant is not None and not found.exist:
        names.note_unknown(tenant)


@receiver.command(short_help="Remove a receiver.")
@_named
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.settings_flags(*options.CONNECTION)
def rm(name: str, yes: bool, **given: Any) -> None:
    """Remove a receiver. Its waiting events are discarded, and this is recorded. Asks for confirmation."""
    from angarium.operations.configurations.remove import remove_receiver

    done = perform(
        options.settings_of(given), lambda access: remove_receiver(access, name, may_remove(name, yes=yes))
    )
    if not done.removed:
        raise click.ClickException(f"{name} was not removed")
    if not done.discarded:
        output.note(
            "note: the waiting events are not discarded yet; the node that owns the receiver will do it"
        )
    output.say(f"removed {name}")


@receiver.command(short_help="Pause a receiver: its events wait.")
@_named
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def pause(name: str, as_json: bool, **given: Any) -> None:
    """Pause a receiver: its events wait until you resume it. This is stored in its configuration."""
    from angarium.operations.control_requests.operator_actions import pause

    perform(options.settings_of(given), lambda access: pause(access, name))
    if as_json:
        output.say_json({"receiver": name, "paused": True})
    else:
        output.say(f"{name} is paused")


@receiver.command(short_help="Resume a paused, disabled or throttled receiver.")
@_named
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def resume(name: str, as_json: bool, **given: Any) -> None:
    """Resume a receiver: end its pause, disablement, backoff, throttling and learnt pace."""
    from angarium.operations.control_requests.operator_actions import resume

    done = perform(options.settings_of(given), lambda access: resume(access, name))
    if as_json:
        output.say_json({"receiver": name, "paused": False, "forgotten_pace": done.forgotten_pace})
    else:
        output.say(f"{name} is resumed{done.text}")


@receiver.command(short_help="Skip the first waiting event: make it a dead letter.")
@_named
@click.option("--json", "as_json", is_flag=True, help="Print the skipped event as JSON.")
@options.settings_flags(*options.CONNECTION)
def skip(name: str, as_json: bool, **given: Any) -> None:
    """Skip the first waiting event: it becomes a dead letter, and the next one is sent."""
    from angarium.operations.control_requests.operator_actions import skip

    skipped = perform(options.settings_of(given), lambda access: skip(access, name))
    if as_json:
        output.say_json(skipped)
    else:
        output.say(f"number {skipped.sequence} of {name} ({skipped.event_id}) is now a dead letter")


@receiver.command(short_help="Discard a receiver's waiting events.")
@_named
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.settings_flags(*options.CONNECTION)
def forget(name: str, yes: bool, **given: Any) -> None:
    """Discard a receiver's waiting events and clear its failures; both are recorded.

    Asks first if events wait. Its numbers continue after a gap as large as the number of discarded events. It
    first waits for an attempt that is in flight.
    """
    from angarium.operations.control_requests.operator_actions import forget

    if not perform(
        options.settings_of(given), lambda access: forget(access, name, may_discard(name, yes=yes))
    ):
        raise click.ClickException(f"{name} keeps its waiting events")
    output.say(f"{name} has no waiting events any more")


@receiver.command(short_help="Send a receiver a ping.")
@_named
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@options.settings_flags(*options.CONNECTION)
def ping(name: str, as_json: bool, **given: Any) -> None:
    """Post a ping to a receiver, even a paused one, and show its answer.

    The exit status is 1 unless the answer is a 2xx.
    """
    from angarium.operations.control_requests.operator_actions import ping

    pong = perform(options.settings_of(given), lambda access: ping(access, name))
    if as_json:
        output.say_json(pong.answer)
    elif pong.is_accepted:
        output.say(f"{name} answered {pong.status} after {pong.latency_ms:g} ms")
    if not pong.is_accepted:
        why = output.visible(pong.error or f"HTTP {pong.status}")
        raise click.ClickException(f"{name} did not accept the ping: {why}, after {pong.latency_ms:g} ms")


@receiver.command(short_help="Have a receiver prove itself now.")
@_named
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@options.settings_flags(*options.CONNECTION)
def verify(name: str, as_json: bool, **given: Any) -> None:
    """Make the handshake of a receiver now, even if it is paused, and record the outcome.

    Needs `handshake` in its configuration. The exit status is 1 unless the receiver proves itself.
    """
    from angarium.operations.control_requests.operator_actions import verify

    found = perform(options.settings_of(given), lambda access: verify(access, name))
    if as_json:
        output.say_json(found.answer)
    elif found.verified:
        output.say(f"{name} is verified, after {found.latency_ms:g} ms")
    if not found.verified:
        why = output.visible(found.error or f"HTTP {found.status}")
        raise click.ClickException(f"{name} did not prove itself: {why}, after {found.latency_ms:g} ms")


def may_remove(name: str, *, yes: bool) -> "Callable[[WaitingEvents], bool]":
    """Asks whether the receiver may be removed, together with its waiting events."""

    def agreed(waiting: "WaitingEvents") -> bool:
        them = f"{waiting} waiting for it"
        if not waiting.count:
            return _agreed(f"this removes {name}", f"remove {name}")
        return _agreed(f"this removes {name}, and discards {them}", f"remove {name}, and discard {them}")

    return (lambda _: True) if yes else agreed


def may_discard(name: str, *, yes: bool) -> "Callable[[WaitingEvents], bool]":
    """Asks whether the waiting events may be discarded."""

    def agreed(waiting: "WaitingEvents") -> bool:
        them = f"{waiting} waiting for {name}"
        return _agreed(f"this discards {them}", f"discard {them}")

    return (lambda _: True) if yes else agreed


def _agreed(what: str, question: str) -> bool:
    """The answer to a question. Raises click.UsageError if no person can answer."""
    if not output.can_ask():
        raise click.UsageError(f"{what}: give --yes to confirm")
    return confirm(question)


def with_whole_numbers(value: Any) -> Any:
    """The value with whole numbers written whole: `100`, not `100.0`."""
    if isinstance(value, dict):
        return {name: with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(with_whole_numbers, value))
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
