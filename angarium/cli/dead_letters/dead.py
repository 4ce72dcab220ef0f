"""`angarium dead …`: lists, shows, redrives and drops dead letters."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from angarium.cli.invocation import completion, names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output
from angarium.terminal.progress import progress
from angarium.terminal.run import confirm

LIST_MAX = 100
LETTER_MAX = (1 << 63) - 1
DIGITS_MAX = 19

Command = TypeVar("Command", bound=Callable[..., Any])


def _letter(_: click.Context, __: click.Parameter, text: str) -> int:
    """The number of a letter. Raises click.UsageError."""
    number = int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else 0
    if not 0 < number <= LETTER_MAX:
        raise click.UsageError(f"{text[:60]!r} is not the number of a letter; angarium dead list shows them")
    return number


def _filters(command: Command) -> Command:
    """Gives a command the flags that filter letters."""
    for option in (
        click.option("--until", metavar="TIME", help="Only letters before this time."),
        click.option(
            "--since", metavar="TIME", help="Only letters since this time: 2h, 3d, 2026-01-31T12:00:00Z."
        ),
        click.option(
            "--reason",
            "reasons",
            multiple=True,
            metavar="REASON",
            help="Only letters with this reason (repeatable).",
        ),
    ):
        command = option(command)
    return command


def _selection(command: Command) -> Command:
    """Gives a command the letters that it is for: by number, receiver, tenant or filters, or all."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--limit", type=click.IntRange(1), help="Maximum number, oldest first."),
        click.option("--all", "everything", is_flag=True, help="Select all letters."),
        _filters,
        click.argument(
            "which", metavar="[LETTER…|TENANT[.NAME]]", nargs=-1, shell_complete=completion.receivers
        ),
    ):
        command = option(command)
    return command


class _WithReasons(click.Group):
    """A group whose help ends with the reasons of dead letters."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from streams.dead_letters.letters import REASONS

        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Reasons: {', '.join(REASONS)}.")


@click.group(cls=_WithReasons, short_help="List, show, redrive and drop dead letters.")
def dead() -> None:
    """Manage dead letters: events that could not be delivered, kept for 30 days with the reason."""


@dead.command("list", short_help="List dead letters.")
@click.argument("receiver", metavar="[TENANT[.NAME]]", required=False, shell_complete=completion.receivers)
@_filters
@click.option("--limit", type=click.IntRange(0), default=LIST_MAX, show_default=True, help="0: all.")
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per letter.")
@options.settings_flags(*options.CONNECTION)
def list_letters(receiver: str | None, limit: int, wide: bool, as_json: bool, **given: Any) -> None:
    """List dead letters, newest first: all, or those of a tenant or a receiver."""
    from angarium.cli.dead_letters import selection, table
    from angarium.operations.dead_letters.listing import newest

    settings = options.settings_of(given)
    wanted = selection.by_flags(receiver, given)
    listed = perform(settings, lambda access: newest(access, wanted, limit, progress))
    rows = [table.row(letter) for letter in listed.letters]
    if as_json:
        for row in rows:
            output.say_json_line(row)
    elif wide or not output.is_terminal():
        output.say_table(table.HEADINGS, [list(row.values()) for row in rows], wide=True)
    else:
        output.say_table(
            table.NARROW_COLUMNS,
            map(table.narrow, rows),
            cut=table.CUT_COLUMNS,
        )
    if listed.more:
        output.note(f"note: {output.newest(limit)}; --limit 0 lists all")
    if receiver is not None and not rows:
        names.note_if_unknown(settings, receiver)


@dead.command(short_help="Show a dead letter.")
@click.argument("letter", callback=_letter)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; a binary body is in base64.")
@options.settings_flags(*options.CONNECTION)
def show(letter: int, as_json: bool, **given: Any) -> None:
    """Show a dead letter, by its number in the list, with its headers, and the body for its receiver."""
    from angarium.cli.dead_letters import table
    from angarium.operations.dead_letters.shown import shown_letter

    found = perform(options.settings_of(given), lambda access: shown_letter(access, letter))
    if as_json:
        output.say_json(table.document(found))
        return
    for line in table.lines(found):
        output.say(line)


@dead.command(short_help="Send dead letters again.")
@_selection
@click.option("--unsure", is_flag=True, help="Also send letters that an interrupted redrive may have sent.")
@options.settings_flags(*options.CONNECTION)
def redrive(
    which: tuple[str, ...], everything: bool, limit: int | None, unsure: bool, as_json: bool, **given: Any
) -> None:
    """Send dead letters to their receivers again, under new numbers, and drop them here.

    Each is sent once. If the command is interrupted, run it again and it continues. It stops by itself when
    the stream of deliveries is full. Letters whose receiver does not exist stay.
    """
    from angarium.cli.dead_letters import redrive_report, selection
    from angarium.operations.dead_letters.redrive import redrive

    settings = options.settings_of(given)
    wanted = selection.wanted(which, given, everything=everything, limit=limit)
    sent = perform(settings, lambda access: redrive(
        access, wanted, limit, unsure_too=unsure, progress=progress,
        waiting=lambda *began_and_wait: output.note(redrive_report.waiting(*began_and_wait)),
    ))  # fmt: skip
    done = sent.done
    if as_json:
        output.say_json(redrive_report.report(done))
    else:
        for line in redrive_report.summary(done):
            output.say(line)
    if not isinstance(wanted, tuple) and which and not (done.redriven or done.left_out):
        names.note_if_unknown(settings, which[0])
    if done.stopped:
        raise click.ClickException(f"{done.stopped}; run it again when events are settled")
    if sent.missing:
        raise click.ClickException(selection.missing_text(sent.missing))
    if isinstance(wanted, tuple) and done.left_out:
        raise click.ClickException("some of these letters could not be sent")


@dead.command(short_help="Drop dead letters.")
@_selection
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.settings_flags(*options.CONNECTION)
def drop(
    which: tuple[str, ...], everything: bool, limit: int | None, yes: bool, as_json: bool, **given: Any
) -> None:
    """Permanently delete dead letters. Asks for confirmation."""
    from angarium.cli.dead_letters import selection
    from angarium.operations.dead_letters.drop import drop

    def agreed(count: int) -> bool:
        if yes:
            return True
        if not output.can_ask():
            raise click.UsageError(f"this deletes {selection.counted(count)} for good: give --yes to confirm")
        return confirm(f"permanently delete {selection.counted(count)}")

    settings = options.settings_of(given)
    wanted = selection.wanted(which, given, everything=everything, limit=limit)
    dropped = perform(settings, lambda access: drop(access, wanted, limit, agreed, progress))
    if as_json:
        output.say_json({"dropped": dropped.count})
    else:
        output.say(f"dropped {selection.counted(dropped.count)}")
    if not (isinstance(wanted, tuple) or dropped.count) and which:
        names.note_if_unknown(settings, which[0])
    if dropped.missing:
        raise click.ClickException(selection.missing_text(dropped.missing))
