"""`angarium top`: the receivers whose events wait longest, live; or the worst ones of a period."""

from typing import TYPE_CHECKING, Any

import click

from actors.times_as_text import age_text
from angarium.cli.invocation import names, options
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import end_on_sigterm, run_long

if TYPE_CHECKING:
    from angarium.operations.receiver_list.top import TopScreen

FAILING_HEADINGS = ("failing for", "receiver", "failures", "last")
LATE_HEADINGS = ("most late", "mean late", "receiver", "delivered", "failed")
AGE_SHOWN_FROM_S = 1.0


@click.command("top", short_help="Show the receivers whose events wait longest.")
@names.tenant("tenant")
@click.option("--once", is_flag=True, help="Print once and exit, as in a pipe.")
@click.option(
    "--every", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="S",
    help="Refresh interval, in seconds.",
)  # fmt: skip
@click.option("--within", metavar="AGE", help="The worst of this period, from the ledger: 15m, 2h, 1d.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Maximum number of rows."
)
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", *options.CONNECTION)
def top(
    tenant: str | None,
    once: bool,
    every: float,
    within: str | None,
    limit: int,
    wide: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show the receivers whose events wait longest: phase, backlog, throughput, and what limits it.

    This is live, from what nodes record: no ledger is needed, and no node is asked. The data is a few seconds
    old. With --within: the receivers that failed or were late in that period, from the ledger.

    A terminal shows one table, redrawn until Ctrl-C; if it cannot redraw (TERM=dumb), one table below the
    other. A pipe gets one table. NO_COLOR only takes away colours.
    """
    settings = options.settings_of(given)
    if within is not None:
        _worst(settings, tenant, within, limit, wide=wide, as_json=as_json)
        return
    once = once or as_json or not output.is_terminal()
    run_long(_watch(settings, tenant, None if once else every, limit, wide=wide, as_json=as_json))


async def _watch(
    settings: Settings, tenant: str | None, every_s: float | None, limit: int, *, wide: bool, as_json: bool
) -> None:
    """Show one screen after the other, until Ctrl-C or SIGTERM; without an interval only one."""
    import asyncio
    import time
    from contextlib import suppress

    from actors.times_as_text import instant_text
    from angarium.access import Access, open_jetstream
    from angarium.cli.invocation.perform import done
    from angarium.operations.failures import NotDone
    from angarium.operations.receiver_list.top import Top

    end_on_sigterm()
    with suppress(asyncio.CancelledError):
        async with open_jetstream(settings, for_command=True) as js:
            access = Access(js, settings)
            live = Top(access, tenant, limit)
            lost_at = ""
            while True:
                found = await live.refresh()
                if every_s is not None and isinstance(found, NotDone) and found.kind == "unavailable":
                    if not lost_at:
                        lost_at = instant_text(time.time())
                        output.note(f"note: NATS is away since {lost_at[11:19]}Z; waiting")
                    await asyncio.sleep(every_s)
                    continue
                lost_at = ""
                screen = await done(access, found)
                if as_json:
                    output.say_json(screen)
                else:
                    show(screen, wide=wide, again=every_s is not None)
                if tenant is not None and not screen.count:
                    names.note_unknown(tenant)
                if every_s is None:
                    return
                await asyncio.sleep(every_s)


def show(screen: "TopScreen", *, wide: bool, again: bool) -> None:
    """Print the table; `again`: over the one before, or below it if the terminal cannot redraw."""
    from angarium import quantities
    from angarium.cli.receivers import table

    if again:
        if output.can_redraw():
            output.clear()
        output.say(f"{_summary(screen)}\n")
    now = quantities.parse_time(screen.at, 0.0)
    all_of_it = wide or not output.is_terminal()
    columns = table.TOP_COLUMNS
    rows = [table.cells(row, columns, now) for row in screen.receivers]
    output.say_table(columns, rows, cut=() if all_of_it else table.TOP_CUT, wide=all_of_it)
    if not again and screen.age_s >= AGE_SHOWN_FROM_S:
        output.note(f"note: {_as_of(screen)}")
    for note in screen.notes:
        output.note(f"note: {output.visible(note)}")
    if again and not output.can_redraw():
        output.say()


def _summary(screen: "TopScreen") -> str:
    at = screen.at[11:19]
    waits = f"{screen.waiting} waiting for {screen.behind} of {screen.count} receivers"
    throughput = f"{screen.in_per_s:.0f}/s in, {screen.out_per_s:.0f}/s out"
    as_of = f", {_as_of(screen)}" if screen.age_s >= AGE_SHOWN_FROM_S else ""
    return f"{at}Z  {waits}, {throughput}{as_of}"


def _as_of(screen: "TopScreen") -> str:

    return f"as of {age_text(screen.age_s)} ago"


def _title(text: str) -> None:
    """Print what a table shows, on a terminal only."""
    if output.is_terminal():
        output.say(text)


def _worst(
    settings: Settings, tenant: str | None, within: str, limit: int, *, wide: bool, as_json: bool
) -> None:
    from angarium import quantities
    from angarium.cli.ledger_queries import attempt_table
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, show_notes
    from angarium.operations.ledger_queries.worst_receivers import find_worst

    within_s = options.quantity("--within", quantities.parse_age, within)
    worst = ask_ledger(settings, lambda ledger: find_worst(ledger, within_s, limit, tenant))
    if as_json:
        output.say_json(worst)
        return
    cut = () if wide else ("last", "receiver")
    _title("Failing or disabled now, the longest outage first:")
    output.say_table(FAILING_HEADINGS, map(attempt_table.failing_cells, worst.failing), cut=cut, wide=wide)
    if output.is_terminal():
        output.say()
    _title(f"Latest deliveries within {within}:")
    output.say_table(LATE_HEADINGS, map(attempt_table.late_cells, worst.late), cut=cut[1:], wide=wide)
    if tenant is not None and not worst.failing and not worst.late:
        output.note(f"note: no receiver of tenant {tenant} failed or was late; check how its name is spelled")
    show_notes(worst.ledger)
