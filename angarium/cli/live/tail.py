"""`angarium tail`: attempts as they happen, from the journal."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import completion, names, options
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import end_on_sigterm, run_long
from angarium.terminal.streamed_table import StreamedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from angarium.operations.live.tail import TailedAttempt, TailFilter
    from streams.nats.wire import Wire

HEADINGS = ("at", "receiver", "number", "attempt", "outcome", "took", "event")
NARROW_HEADINGS = ("at", "receiver", "number", "try", "outcome", "took", "event")
WIDTHS = {"at": 8, "number": 6, "try": 3, "took": 6}
"""Widths of the columns whose cells have a known length; the others share what is left of the terminal."""
SHARES = {"receiver": 3, "outcome": 4, "event": 3}
WIDE_WIDTHS = {"at": 24, "receiver": 24, "number": 7, "attempt": 7, "outcome": 28, "took": 8, "event": 0}
TIME_OF_DAY = slice(11, 19)
"""Part of an RFC 3339 instant: on a terminal, the date would take the room of an id."""


@click.command("tail", short_help="Show attempts as they happen.")
@click.argument("about", metavar="[TENANT[.NAME]]", required=False, shell_complete=completion.receivers)
@click.option("--failed", is_flag=True, help="Only failed attempts, and dead letters.")
@click.option(
    "--type", "types", multiple=True, metavar="PATTERN", help="Only these types: order.>, … (repeatable)."
)
@click.option(
    "--since", metavar="TIME", help="Start at this time: 5m, 2h, 2026-01-31T12:00:00Z (default: now)."
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after N attempts.")
@click.option("--no-follow", is_flag=True, help="With --since: stop when everything up to now was shown.")
@click.option("--wide", is_flag=True, help="Show all columns uncut and with the date, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@options.settings_flags(*options.CONNECTION)
def tail(
    about: str | None,
    failed: bool,
    types: tuple[str, ...],
    since: str | None,
    count: int | None,
    no_follow: bool,
    wide: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show attempts as nodes record them, until Ctrl-C: of all receivers, or of a tenant, or of one.

    They are read from the journal: no ledger is needed, and nodes do not notice. While NATS is away it waits,
    and then continues where it stopped.
    """
    import time

    from angarium import quantities
    from angarium.operations.live.tail import TailFilter

    wanted = TailFilter(about=about, failed=failed, types=types)
    wanted.check()
    if no_follow and since is None:
        raise click.UsageError("--no-follow shows what has happened: say from when on with --since")
    since_at = None
    if since is not None:
        since_at = options.quantity("--since", quantities.parse_time, since, time.time())
    show = output.say_json_line if as_json else shown_rows(wide=wide)
    run_long(_follow(options.settings_of(given), wanted, since_at, count, show, ends=no_follow))


async def _follow(
    settings: Settings,
    wanted: "TailFilter",
    since: float | None,
    count: int | None,
    show: "Callable[[TailedAttempt], None]",
    *,
    ends: bool,
) -> None:
    """Follow until enough were shown, or until Ctrl-C or SIGTERM, the usual way to end it."""
    import asyncio
    from contextlib import aclosing, suppress

    from angarium.access import Access, open_jetstream
    from angarium.cli.invocation.perform import check_setup
    from angarium.operations.live.journal_pages import Missed
    from angarium.operations.live.tail import Tail, is_known

    end_on_sigterm()
    with suppress(asyncio.CancelledError):
        async with open_jetstream(settings, for_command=True) as js:
            shown, access = 0, Access(js, settings)
            await check_setup(access)
            if wanted.about is not None and await is_known(access, wanted.about) is False:
                names.note_unknown(wanted.about)
            following = aclosing(Tail(access, wanted, since=since).follow(ends=ends))
            with _losses_noted(js.wire):
                async with following as found:
                    async for each in found:
                        if isinstance(each, Missed):
                            output.note(f"note: {output.visible(each.why)}")
                            continue
                        show(each)
                        shown += 1
                        if shown == count:
                            return


@contextmanager
def _losses_noted(wire: "Wire") -> "Iterator[None]":
    """Say when NATS goes away and comes back: otherwise it looks as if nothing was attempted."""
    import time

    from actors.times_as_text import instant_text

    ours = False

    def note(connected: bool) -> None:
        at = instant_text(time.time())[TIME_OF_DAY]
        if not ours:
            output.note(
                f"note: NATS is back since {at}Z" if connected else f"note: NATS is away since {at}Z; waiting"
            )

    wire.on_change(note)
    try:
        yield
    finally:
        ours = True  # What follows is that we close the connection.


def shown_rows(*, wide: bool) -> "Callable[[TailedAttempt], None]":
    """Print the headings, and return what prints a row."""
    wide = wide or not output.is_terminal()
    if wide:
        table = StreamedTable(HEADINGS, WIDE_WIDTHS, wide=True)
    else:
        table = StreamedTable(NARROW_HEADINGS, WIDTHS, shares=SHARES)
    table.say_headings()
    return lambda attempt: table.say(_cells(attempt) if wide else _narrow_cells(attempt))


def _cells(attempt: "TailedAttempt") -> list[str]:
    """The row of an attempt."""
    took = "" if attempt.latency_ms is None else f"{attempt.latency_ms:.0f} ms"
    return [
        attempt.at, attempt.receiver, str(attempt.sequence or "ping"), str(attempt.attempt),
        _outcome(attempt), took, " ".join(filter(None, (attempt.type, attempt.event_id))),
    ]  # fmt: skip


def _narrow_cells(attempt: "TailedAttempt") -> list[str]:
    """The row for a terminal: it may cut the type of an event, before its id."""
    from angarium import quantities

    at, *others, _, _ = _cells(attempt)
    took = "" if attempt.latency_ms is None else quantities.milliseconds_text(attempt.latency_ms)
    return [
        at[TIME_OF_DAY], *others, took, " ".join(filter(None, (attempt.event_id, attempt.type)))
    ]  # fmt: skip


def _outcome(attempt: "TailedAttempt") -> str:
    """The status of the answer, with its meaning if that is not obvious, or the error."""
    match attempt.verdict:
        case "dead_lettered":
            return f"dead letter: {attempt.error}"
        case "discarded":
            return f"discarded: {attempt.error}"
        case "delivered" | "failed" if attempt.status is not None:
            return str(attempt.status)
        case verdict:
            return f"{attempt.status} {verdict}" if attempt.status else attempt.error or verdict
