"""Runs an operation for a command: over a connection of its own, until it is done or the command fails."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from angarium.settings import Settings
from angarium.terminal.run import run

if TYPE_CHECKING:
    from angarium.access import Access
    from angarium.operations.failures import NotDone

T = TypeVar("T")


class CommandFailed(click.ClickException):
    """An operation that was not done; the text says why, in a sentence."""


class WrongRequest(CommandFailed):
    """An operation that can be done, if it is asked in another way."""

    exit_code = 2


def perform(
    settings: Settings,
    operation: "Callable[[Access], Awaitable[T | NotDone]]",
    *,
    interrupted: str | Callable[[], str] = "",
) -> T:
    """Run a short operation; returns its result. Raises CommandFailed.

    `interrupted` says how to continue after Ctrl-C.
    """
    from angarium.access import with_access

    async def work(access: "Access") -> "T":
        return await done(access, await operation(access))

    def said() -> str:
        text = interrupted if isinstance(interrupted, str) else interrupted()
        return f"angarium: interrupted; {text}\n" if text else ""

    return run(with_access(settings, work), interrupted=said)


async def done(access: "Access", outcome: "T | NotDone") -> T:
    """The result of an operation, if it was done. Raises CommandFailed, which names missing streams."""
    from angarium.operations.failures import NotDone
    from angarium.operations.missing_streams import explained

    return result_of(await explained(access, outcome) if isinstance(outcome, NotDone) else outcome)


async def check_setup(access: "Access") -> None:
    """Raise CommandFailed if streams are missing, as before `angarium setup`."""
    from angarium.operations.missing_streams import missing_streams_or_none

    if missing := await missing_streams_or_none(access):
        raise CommandFailed(str(missing))


def set_up(work: Callable[["Access"], Awaitable[T]]) -> Callable[["Access"], Awaitable[T]]:
    """The work, once the streams are found: without them some reads try again for half a minute."""

    async def checked(access: "Access") -> T:
        await check_setup(access)
        return await work(access)

    return checked


def result_of(outcome: "T | NotDone") -> T:
    """The result of an operation, if it was done. Raises CommandFailed."""
    from angarium.operations.failures import NotDone

    if not isinstance(outcome, NotDone):
        return outcome
    match outcome.kind:
        case "invalid":
            raise WrongRequest(outcome.sentence)
        case "unavailable":
            raise CommandFailed(f"{outcome.sentence}; run angarium doctor to see what is missing")
        case _:
            raise CommandFailed(outcome.sentence)
