"""`angarium receiver edit`: a configuration in the user's editor, offered again until it is valid."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import CommandFailed, perform
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import run

if TYPE_CHECKING:
    from angarium.operations.configurations.proposal import PutResult
    from angarium.operations.failures import NotDone

COMMENT = "//"
HELP = (
    "Leading lines that begin with // are comments. … stands for a hidden value, and keeps it.",
    "Save the file to store it; close it unchanged to leave everything as it is.",
)


@click.command("edit", short_help="Edit a receiver's configuration.")
@names.receiver("name")
@options.settings_flags(*options.CONNECTION, *options.SEALING, *options.EDGE)
def edit(name: str, **given: Any) -> None:
    """Edit a receiver's configuration, as `receiver get` shows it, in $VISUAL or $EDITOR.

    It is stored when you save it. If it is invalid, you see why and can edit it again. A text that could not
    be stored is kept in a file.
    """
    from angarium.cli.receivers import draft
    from angarium.operations.configurations.get import get_configuration
    from angarium.operations.failures import NotDone

    settings = options.settings_of(given)
    shown = perform(settings, lambda access: get_configuration(access, name))
    first = text = _document(shown.members)
    problems: Sequence[str] = shown.problems
    while True:
        try:
            edited = _edited(name, text, problems)
        except click.ClickException as error:
            kept = "" if text == first else f"; your text is saved in {_kept(name, text)}"
            raise CommandFailed(
                f"{name} was not changed: {error.format_message()}; set VISUAL or EDITOR to your editor{kept}"
            ) from None
        if edited == text:
            break
        text = edited
        if text == first:
            break
        done = _stored(settings, name, text, shown.revision)
        if not isinstance(done, NotDone):
            for line in draft.outcome(done):
                output.say(line)
            return
        # The remedy of a put is to write a file; here the editor opens again.
        problems = done.problems or (
            (f"{done.text}: edit it again",) if done.kind == "invalid" else (done.sentence,)
        )
        for problem in problems:
            output.note(f"not stored: {output.visible(problem)}")
        if done.kind != "invalid":
            break
    if text != first:
        raise CommandFailed(f"{name} was not changed; your text is saved in {_kept(name, text)}")
    output.say(f"unchanged: {name}")


def _document(members: dict[str, Any]) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(members), indent=2).decode() + "\n"


def _edited(name: str, text: str, problems: Sequence[str]) -> str:
    """The text as the editor leaves it. Raises click.ClickException if the editor fails."""
    head = "".join(f"{COMMENT} {line}\n" for line in _head(name, problems))
    edited = click.edit(head + text, extension=".json")
    return text if edited is None else _without_head(edited)


def _head(name: str, problems: Sequence[str]) -> Iterator[str]:
    yield f"The configuration of {name}. {HELP[0]}"
    yield from HELP[1:]
    yield from (f"NOT STORED: {output.visible(problem)}" for problem in problems)


def _without_head(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(COMMENT):
        del lines[0]
    return "".join(lines)


def _stored(settings: Settings, name: str, text: str, revision: int) -> "PutResult | NotDone":
    """Store the text; a failure is returned, not raised, since the text would be lost with it."""
    from actors.configuration.parsing import members_of
    from actors.errors import AngariumError
    from angarium.access import with_access
    from angarium.operations.configurations.put import NewConfiguration, put_configuration
    from angarium.operations.failures import not_done

    try:
        members = members_of(text.encode())
        new = NewConfiguration(members=members, replace=True, revision=revision)
        return run(with_access(settings, lambda access: put_configuration(access, name, new)))
    except AngariumError as error:
        return not_done(error)


def _kept(name: str, text: str) -> str:
    """The path of a new file with the text, which its owner alone can read."""
    descriptor, path = tempfile.mkstemp(prefix=f"angarium-{name}-", suffix=".json")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path
