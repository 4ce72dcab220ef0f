"""The command `angarium`, from its arguments to its exit status.

0: done; 1: failed; 2: wrong usage; 130: interrupted. What went wrong is one line on stderr that says what to
do; only an unexpected error has a traceback, which the log shows at level `debug`.
Commands are imported here, so they must be light: what takes long to import is imported when they run.
"""

import errno
import logging
import os
import sys
from collections.abc import Sequence

import click

from angarium import __version__, package_check
from angarium.terminal.run import EXIT_INTERRUPTED as EXIT_INTERRUPTED

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2

log = logging.getLogger(__name__)


def main() -> None:
    """The console script."""
    _open_what_is_closed()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        if problems := package_check.foreign_packages():
            return _failed("; ".join(problems))
        outcome = _commands().main(list(arguments), prog_name="angarium", standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        return _refused(error, arguments)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # The reader has gone.
        return EXIT_FAILED
    except Exception as error:
        return _broken(error)


def _commands() -> click.Group:
    from angarium.cli.api import api
    from angarium.cli.apply import apply
    from angarium.cli.attempts import attempts
    from angarium.cli.audit import audit
    from angarium.cli.bench import bench
    from angarium.cli.dead import dead
    from angarium.cli.demo import demo
    from angarium.cli.dev import dev
    from angarium.cli.doctor import doctor
    from angarium.cli.event import event
    from angarium.cli.export import export
    from angarium.cli.history import history
    from angarium.cli.inspection import inspect
    from angarium.cli.ledger import ledger
    from angarium.cli.listen import listen
    from angarium.cli.node import node
    from angarium.cli.publish import publish
    from angarium.cli.receiver import receiver
    from angarium.cli.repair import repair
    from angarium.cli.replay import replay
    from angarium.cli.setup import setup
    from angarium.cli.tail import tail
    from angarium.cli.tokens import token
    from angarium.cli.top import top

    @click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.version_option(__version__, message="angarium %(version)s")
    def angarium() -> None:
        """Send webhooks from NATS JetStream: in order, within each receiver's rate limit, crash-safe."""

    commands = (
        dev, demo, bench, node, setup, publish, receiver, apply, export, inspect, tail, dead, replay, listen,
        doctor, repair, ledger, event, attempts, history, audit, top, api, token,
    )  # fmt: skip
    for command in commands:
        angarium.add_command(command)
    return angarium


def _refused(error: click.ClickException, arguments: Sequence[str]) -> int:
    """Wrong usage, in one line, with the command whose help tells more."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return EXIT_WRONG_USAGE
    text = error.format_message()
    if not isinstance(error, click.UsageError):
        _failed(text)
        return error.exit_code
    path = error.ctx.command_path if error.ctx is not None else _path(arguments)
    click.echo(f"{path}: {_sentence(text[:1].lower() + text[1:])}; see {path} --help", err=True)
    return EXIT_WRONG_USAGE


def _path(arguments: Sequence[str]) -> str:
    """The command that was typed: click does not name it where an option lacks its value."""
    command: click.Command = _commands()
    names = ["angarium"]
    for each in arguments:
        if not isinstance(command, click.Group) or (found := command.commands.get(each)) is None:
            break
        command = found
        names.append(each)
    return " ".join(names)


def _broken(error: Exception) -> int:
    """Handles what was raised below the commands: expected, with a text for people, or not."""
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


def _open_what_is_closed() -> None:
    """Opens outputs that were closed (`>&-`), to discard what is written; Python leaves them out."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _drop_output() -> None:
    """Drops output without a reader: Python would complain once more when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(text: str) -> int:
    click.echo(f"angarium: {_sentence(text)}", err=True)
    return EXIT_FAILED


def _sentence(text: str) -> str:
    """One line without a full stop; it may quote a configuration or a name that a user has put."""
    from angarium.escaping import visible

    return visible(" ".join(text.split()).removesuffix("."))
