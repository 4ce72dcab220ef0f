"""`angarium audit`: attempts at a receiver against its rate, from the ledger."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.ledger_queries.period import period
from angarium.quantities import count_text
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.ledger.audit import Bar, LimitPeriod, Window
    from angarium.operations.ledger_queries.audit import Audit

BAR_WIDTH = 30
VERDICTS = {
    "kept": "kept: no window has more attempts than the limit allows",
    "exceeded": "exceeded",
    "no_limit": "no limit was in force",
}


@click.command("audit", short_help="Check a receiver's rate limit, from the ledger.")
@names.receiver("receiver")
@period(default="1h")
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the chart, to a file that ends with .svg or .png.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", "prefix")
def audit(receiver: str, plot: Path | None, as_json: bool, **given: Any) -> None:
    """Check that the attempts to a receiver kept its rate limit, in every window.

    In any window of t seconds at most burst + rate * t attempts may start. Windows of one second and of the
    burst's length are checked. The exit status is 1 if more did. Where a learnt rate held the receiver below
    that, the audit shows it with the rate that was sent.
    """
    from angarium.cli.ledger_queries import audit_plot
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, period_ms, show_notes
    from angarium.operations.ledger_queries import audit as query

    settings = options.settings_of(given)
    if plot is not None:
        audit_plot.check(plot)
    since, until = period_ms(given)
    found = ask_ledger(settings, lambda ledger: query.audit(ledger, receiver, since, until))
    if plot is not None:
        try:
            audit_plot.draw(plot, found, verdict_text(found))
        except OSError as error:
            raise click.ClickException(f"cannot write {plot}: {error.strerror}") from error
        output.note(f"wrote {plot}")
    if as_json:
        output.say_json(query.document(found))
    else:
        for line in lines(found):
            output.say(line)
        show_notes(found.ledger, since)
    if found.verdict == "exceeded":
        raise click.ClickException(f"{receiver} got more attempts than its limit allows")


def verdict_text(found: "Audit") -> str:
    """The verdict; without a configured limit, it names the learnt rates that held."""
    learnt = [bar.learnt for bar in found.chart if bar.learnt is not None]
    if found.verdict != "no_limit" or not learnt:
        return VERDICTS[found.verdict]
    rates = _rates(min(each.lowest for each in learnt), max(each.highest for each in learnt))
    return f"no rate is configured; its learnt rate was {rates} a second"


def lines(found: "Audit") -> list[str]:
    """The audit for people: the verdict, the busiest windows, and a chart."""
    from angarium.operations.ledger_queries.ledger_access import text

    said = [f"{found.receiver}: {verdict_text(found)}", f"  {count_text(found.attempts, 'attempt')}"]
    said += [f"  {_limit(each)}{f', from {text(each.at)} on' if each.at else ''}" for each in found.limits]
    for window in found.windows:
        # A single attempt says nothing about a rate.
        if window.at is not None and (window.attempts > 1 or window.exceeded):
            most = window.attempts
            allowed = f"{most} attempts" if window.allowed is None else f"{most} of {window.allowed}"
            more = f", exceeded in {count_text(window.exceeded, 'window')}" if window.exceeded else ""
            said.append(
                f"  busiest {_length(window.length_s)}: {allowed} "
                f"from {text(window.at)}{_limit_of(window, found.limits)}{more}"
            )
    return said + [_bar(bar, found.chart) for bar in found.chart]


def _length(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _limit_of(window: "Window", limits: "list[LimitPeriod]") -> str:
    """The limit at the beginning of a window, if there was another one as well."""
    if len(limits) < 2:
        return ""
    # Of the first limit it is only known that it was in force before the second one.
    limit = [each for each in limits if each is limits[0] or each.at <= (window.at or 0)][-1]
    return f" ({_limit(limit)})"


def _limit(limit: "LimitPeriod") -> str:
    if limit.per_second is None:
        return "no limit"
    limits = [(limit.per_second, limit.burst), *limit.others]
    return " and ".join(f"{per_second:g} a second, burst {burst}" for per_second, burst in limits)


def _bar(bar: "Bar", chart: "list[Bar]") -> str:
    """One part of the period: its busiest second, and the limit in it."""
    from angarium.operations.ledger_queries.ledger_access import text

    scale = max(max(each.most, each.allowed or 0) for each in chart) or 1
    drawn = "#" * round(bar.most / scale * BAR_WIDTH)
    allowed = "" if bar.allowed is None else f" of {bar.allowed}"
    return f"  {text(bar.at)}  {drawn:{BAR_WIDTH}}  {bar.most}{allowed} a second{_learnt(bar)}"


def _learnt(bar: "Bar") -> str:
    """The learnt rate in a part of the period, after the rate that was sent; empty if none held."""
    learnt = bar.learnt
    if learnt is None:
        return ""
    rates = _rates(learnt.lowest, learnt.highest)
    return f"; {learnt.sent:.3g} a second on average, learnt rate {rates} ({learnt.limited_by})"


def _rates(lowest: float, highest: float) -> str:
    """Both rates, or one if they look the same: `5 to 21.4`."""
    return " to ".join(dict.fromkeys(f"{rate:.3g}" for rate in (lowest, highest)))
