"""`angarium bench`: what this machine can do, beside bare clients in the same run."""

import click

from angarium.console import output
from angarium.console.looping import run_long


@click.group(short_help="Measure, beside bare clients in the same run.")
def bench() -> None:
    """Measure Angarium on this machine, beside what bare clients can do in the same run.

    Machines differ, and so do their minutes: read the ratios.
    """


@bench.command(short_help="Deliveries of one node at full load, and how long an event takes.")
@click.option("--receivers", default=200, show_default=True, type=click.IntRange(1, 5000))
@click.option("--events", default=60_000, show_default=True, type=click.IntRange(100))
@click.option("--size", default=1000, show_default=True, type=click.IntRange(17, 200_000), help="Of a body.")
@click.option("--seconds", default=6.0, show_default=True, help="Of the steady part, at 500 events a second.")
@click.option("--json", "as_json", is_flag=True, help="The figures in JSON, and nothing else.")
def deliver(receivers: int, events: int, size: int, seconds: float, as_json: bool) -> None:
    """Strict receivers, signed events, a server and a node and a sink in processes of their own."""
    from msgspec import to_builtins

    from angarium.bench.deliver import Plan, deliver

    plan = Plan(receivers=receivers, events=events, size=size, steady_s=seconds)
    tell = (lambda _: None) if as_json else output.say
    figures = run_long(deliver(plan, tell))
    if as_json:
        output.say_json(to_builtins(figures))
        return
    rows = [
        ("deliveries/s", f"{figures.deliveries:,.0f}"),
        ("bare aiohttp loop, requests/s", f"{figures.aiohttp:,.0f}"),
        ("bare http1 loop, requests/s", f"{figures.http1:,.0f}"),
        ("deliveries to aiohttp", f"{figures.to_aiohttp:.2f}"),
        ("deliveries to http1", f"{figures.to_http1:.2f}"),
        ("appends a delivery", f"{figures.appends_per_delivery:.4f}"),
        ("publish to arrival at 500/s, p50", f"{figures.p50_ms:.1f} ms"),
        ("publish to arrival at 500/s, p99", f"{figures.p99_ms:.1f} ms"),
        ("out of order", f"{figures.disordered}"),
    ]
    if figures.cpu_us_per_delivery is not None and figures.memory_mb is not None:
        rows.append(("the node's CPU a delivery", f"{figures.cpu_us_per_delivery:.0f} µs"))
        rows.append(("the node's memory", f"{figures.memory_mb:.0f} MB"))
    output.say()
    output.say_table(("measure", "figure"), rows)
