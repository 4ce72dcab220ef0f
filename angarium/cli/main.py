"""The command `angarium`, from its arguments to its exit status.

Exit status 0: done; 1: failed; 2: wrong usage; 130: interrupted; 141: nothing reads the output. An error is
one line on stderr that says what to do; only an unexpected one has a traceback, which the log shows at level
`debug`.

A command's module is imported when the command is typed; `--help` imports all of them. So they must be light:
modules that are slow to import are imported when a command runs.
"""

import errno
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from angarium import __version__, package_check
from angarium.terminal.run import EXIT_INTERRUPTED as EXIT_INTERRUPTED

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EXIT_NOT_READ = 141
"""Exit status if nothing reads the output any more: that of other tools, which SIGPIPE ends."""

FOLDERS = {
    "dead_letters": "dead",
    "development": "bench demo dev listen",
    "events": "erase job later publish replay",
    "installation": "doctor fleet key portal-link repair setup token",
    "ledger_queries": "attempts audit event history minutes",
    "live": "inspect tail top",
    "processes": "api ledger node",
    "receivers": "apply export receiver",
}
"""The commands of each folder."""
RENAMED = {"inspect": "inspection", "portal-link": "portal_link", "token": "tokens"}
"""The modules whose names are not their commands'."""
MODULES = {
    name: f"angarium.cli.{folder}.{RENAMED.get(name, name)}"
    for folder, names in FOLDERS.items()
    for name in names.split()
}
"""The module of each command."""

_SEVERAL_MEANT = re.compile(r"\((Did you mean one of: [^)]*\?)\)")
"""Click writes several suggestions in brackets, and a single one without."""

log = logging.getLogger(__name__)


def main() -> None:
    """The console script."""
    _replace_closed_outputs()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        if problems := package_check.foreign_packages():
            return _failed("; ".join(problems))
        outcome = angarium.main(list(arguments), prog_name="angarium", standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        return _refused(error, arguments)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, _NotRead):
        _drop_output()
        return EXIT_NOT_READ
    except Exception as error:
        return _broken(error)


class _NotRead(Exception):
    """A broken pipe, by a name that click does not know: it would end the process with status 1."""


class _Commands(click.Group):
    """The commands by name, each imported when it is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(MODULES)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = args[0]
        if typed not in MODULES and not typed.startswith("-") and not context.resilient_parsing:
            from actors.allowed_values import closest

            meant = closest(typed, MODULES)
            hint = f" Did you mean {meant!r}?" if meant else ""
            raise click.UsageError(f"No such command {typed!r}.{hint}", context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError as error:
            raise _NotRead from error

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            return None
        command: click.Command = getattr(import_module(MODULES[name]), name.replace("-", "_"))
        return command


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, message="angarium %(version)s")
def angarium() -> None:
    """Send webhooks from NATS JetStream: in order, within each receiver's rate limit, crash-safe."""


def _refused(error: click.ClickException, arguments: Sequence[str]) -> int:
    """Report wrong usage in one line that names the command whose help explains more."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return EXIT_WRONG_USAGE
    text = _SEVERAL_MEANT.sub(r"\1", error.format_message())
    match error:
        case click.NoSuchOption(possibilities=[] | None, ctx=click.Context(command=click.Group())):
            text = f"{text.removesuffix('.')} before the command: options go after it"
    if not isinstance(error, click.UsageError):
        _failed(text)
        return error.exit_code
    path = error.ctx.command_path if error.ctx is not None else _path(arguments)
    said = _sentence(text[:1].lower() + text[1:])
    click.echo(f"{path}: {said}{' See' if said.endswith('?') else '; see'} {path} --help", err=True)
    return EXIT_WRONG_USAGE


def _path(arguments: Sequence[str]) -> str:
    """The command that was typed: click does not name it where an option lacks its value."""
    command: click.Command = angarium
    names = ["angarium"]
    for each in arguments:
        if not isinstance(command, click.Group):
            break
        if (found := command.get_command(click.Context(command), each)) is None:
            break
        command = found
        names.append(each)
    return " ".join(names)


def _broken(error: Exception) -> int:
    """Report an exception from below the commands: an expected one by its text, others as a defect."""
    from actors.errors import AngariumError, BadInput, Unavailable
    from angarium import logs
    from streams.nats.errors import ApiError, NotPermitted

    match error:
        case ExceptionGroup(exceptions=[Exception() as only]):
            return _broken(only)
        case BadInput():
            click.echo(f"angarium: {_sentence(str(error))}", err=True)
            return EXIT_WRONG_USAGE
        case UnicodeEncodeError():
            click.echo("angarium: an argument is not text; write it in UTF-8", err=True)
            return EXIT_WRONG_USAGE
        case OSError(errno=errno.ENOSPC | errno.EFBIG | errno.EIO, filename=None):
            _drop_output()
            return _failed(f"cannot write the output ({error.strerror}); make room, or send it elsewhere")
        case Unavailable() | ApiError() if not isinstance(error, NotPermitted):
            return _failed(f"{error}; run angarium doctor to see what is missing")
        case AngariumError():
            return _failed(str(error))
    log.debug("command.broken", exc_info=error)
    what = f"{type(error).__name__}: {logs.redact(str(error))}" if str(error) else type(error).__name__
    return _failed(f"internal error ({what}); --log-level debug shows where; please report it")


def _replace_closed_outputs() -> None:
    """Replace outputs that are closed (`>&-`), which Python leaves out, by ones that discard everything."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _drop_output() -> None:
    """Discard output that nothing reads: Python would complain once more when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(text: str) -> int:
    click.echo(f"angarium: {_sentence(text)}", err=True)
    return EXIT_FAILED


def _sentence(text: str) -> str:
    """One line without a full stop; it may quote a configuration or a name that a user has put."""
    from angarium.escaping import visible

    return visible(" ".join(text.split()).removesuffix("."))
