"""`angarium key …`: the keys that seal receivers' secrets in NATS."""

import secrets
from typing import Any

import click

from angarium.cli.invocation import options
from angarium.cli.invocation.perform import perform, set_up
from angarium.terminal import output
from angarium.terminal.progress import progress

SHOWN_MAX = 10
"""Receivers that are named, of those that need a person."""


@click.group(short_help="Seal receivers' secrets in NATS.")
def key() -> None:
    """Seal receivers' secrets and header values in NATS, with keys that only processes of Angarium have.

    The key file (ANGARIUM_KEY_FILE) has one key per line. The first one seals; every one opens.
    """


@key.command(short_help="Make a key.")
@click.argument("name", metavar="[ID]", required=False)
def new(name: str | None) -> None:
    """Print a new key, as a line for the key file.

    It is not stored: keep a copy of the file on another machine than NATS.
    """
    from streams.sealing.key_file import new_key_line
    from streams.sealing.keys import is_key_id

    name = f"k-{secrets.token_hex(4)}" if name is None else name
    if not is_key_id(name):
        raise click.UsageError("the ID must be 1 to 32 of A-Z a-z 0-9 _ -")
    output.say(new_key_line(name))


@key.command(short_help="Count which keys secrets are sealed with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING)
def status(as_json: bool, **given: Any) -> None:
    """Count the receivers whose secrets each key has sealed, and those whose secrets are unencrypted.

    The exit status is 1 if secrets cannot be opened with the key file that is given.
    """
    from angarium.operations.installation.key import key_use
    from angarium.quantities import count_text

    use = perform(options.settings_of(given), set_up(key_use))
    if as_json:
        output.say_json(use)
    else:
        for name, count in use.receivers.items():
            remark = " (the first of the key file)" if name == use.present else ""
            output.say(f"{name}: {count_text(count, 'receiver')}{remark}")
        output.say(f"unencrypted: {count_text(len(use.unencrypted), 'receiver')}{_names(use.unencrypted)}")
        if use.required:
            output.say("new secrets are stored only by processes that have the key file")
    _fail_if_left(use.unopened, "cannot be opened")


@key.command(short_help="Seal all secrets with the first key.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING)
def rotate(as_json: bool, **given: Any) -> None:
    """Seal the secrets of all receivers with the first key of the key file, also unencrypted ones.

    First give all nodes and APIs the file with the new key. Nothing changes for receivers. If the command
    is interrupted, run it again and it continues. Afterwards no process without a key stores new secrets.
    """
    from angarium.operations.installation.key import rotate_key
    from angarium.quantities import count_text

    with progress("sealing") as show:
        done = perform(
            options.settings_of(given),
            set_up(lambda access: rotate_key(access, show)),
            interrupted="run angarium key rotate again to continue",
        )
    if as_json:
        output.say_json(done)
    else:
        output.say(
            f"sealed {count_text(done.sealed, 'receiver')} with {done.key}; already sealed: {done.already}"
        )
    _fail_if_left(done.left, "left as it was")


def _fail_if_left(problems: dict[str, tuple[str, ...]], what: str) -> None:
    """Name the receivers whose secrets need a person, and end with status 1."""
    for name in list(problems)[:SHOWN_MAX]:
        output.note(f"{name} {what}: {'; '.join(problems[name])}")
    if problems:
        raise click.ClickException(f"{len(problems)} of the receivers need you: {_list(list(problems))}")


def _names(receivers: list[str]) -> str:
    return f" ({_list(receivers)})" if receivers else ""


def _list(receivers: list[str]) -> str:
    return ", ".join(receivers[:SHOWN_MAX]) + (", …" if len(receivers) > SHOWN_MAX else "")
