"""`angarium bench`: what this machine can do, compared with bare clients in the same run."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click

from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import end_on_sigterm, run_long

P = TypeVar("P")
T = TypeVar("T")

with_shards = click.option("--shards", default=Settings().shards, show_default=True,
                           type=click.IntRange(1, 1024), help="Number of shards.")  # fmt: skip

FEW_SHARDS = 8
"""Shards, which do for one small machine."""

FIGURE_HEADINGS = ("measure", "figure")
CALLS_HEADINGS = ("calls a delivery", "strict", "relaxed", "fanned out")
PAGE_HEADINGS = ("page", "bytes", "first", "p50", "p99")
ISOLATION_HEADINGS = ("with", "p50", "p99", "worst", "memory", "unacked")


@click.group(short_help="Measure this machine, next to bare clients.")
def bench() -> None:
    """Measure Angarium on this machine, and bare clients in the same run.

    Machines differ, and the same machine differs from minute to minute: compare the ratios.
    """


@bench.command(short_help="Measure deliveries at full load, and the time that an event takes.")
@click.option("--receivers", default=200, show_default=True, type=click.IntRange(1, 5000))
@click.option("--deliveries", default=60_000, show_default=True, type=click.IntRange(100))
@click.option("--fan", default=1, show_default=True, type=click.IntRange(1, 1000),
              help="Receivers that get each event; 1: direct sends.")  # fmt: skip
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1, 256),
              help="Events in one POST; 1: without batches.")  # fmt: skip
@click.option("--size", default=1000, show_default=True, type=click.IntRange(17, 200_000),
              help="Body size in bytes.")  # fmt: skip
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1, 600),
              help="Length of the parts at 500 and 200 events a second, and of each bare loop.")  # fmt: skip
@click.option("--profile", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, writable=True),
              help="Write a profile of the node to this file.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def deliver(
    receivers: int,
    deliveries: int,
    fan: int,
    batch: int,
    size: int,
    shards: int,
    seconds: float,
    profile: Path | None,
    as_json: bool,
) -> None:
    """Measure deliveries to strict receivers: signed events, and a process each for server, node and sink.

    At full load the events are published before the node starts. The exit status is 1 if an event was lost,
    repeated or came out of order.
    """
    from angarium.bench.deliver import DeliverPlan, measure

    plan = DeliverPlan(
        receivers=receivers, deliveries=deliveries, fan=fan, batch=batch, size=size, shards=shards,
        timed_s=seconds, profile=profile,
    )  # fmt: skip
    figures = _run(measure, plan, as_json, FIGURE_HEADINGS, _rows)
    _check(figures, "delivery")


@bench.command(short_help="Count the calls of functions that a node makes for a delivery.")
@click.option("--receivers", default=30, show_default=True, type=click.IntRange(1, 1000))
@click.option("--in-a-row", default=2, show_default=True, type=click.IntRange(1, 100),
              help="Events that each receiver gets in each round.")  # fmt: skip
@click.option("--rounds", default=8, show_default=True, type=click.IntRange(1, 1000))
@click.option("--least", default=0.5, show_default=True, type=click.FloatRange(0),
              help="Leave out functions with fewer calls a delivery.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def calls(least: float, as_json: bool, **plan: int) -> None:
    """Count calls in strict and in relaxed order, and with the router, by folder and by function.

    The counts hardly depend on the machine or its load, so they show what a change costs. They do not show
    how long the calls take. The exit status is 1 if an event was lost, repeated or came out of order.
    """
    from angarium.bench.calls import CallsPlan, measure

    ways = _run(measure, CallsPlan(**plan), as_json, CALLS_HEADINGS, lambda ways: calls_rows(ways, least))
    for figures in ways:
        _check(figures, f"delivery ({figures.way})")


@bench.command(short_help="Measure the router, and what a wide event costs other tenants.")
@click.option("--receivers", default=1000, show_default=True, type=click.IntRange(1, 20_000))
@click.option("--copies", default=50_000, show_default=True, type=click.IntRange(100))
@click.option("--wide", default=20_000, show_default=True, type=click.IntRange(1, 100_000),
              help="Receivers of the wide event.")  # fmt: skip
@click.option("--size", default=1000, show_default=True, type=click.IntRange(17, 200_000),
              help="Body size in bytes.")  # fmt: skip
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1, 600),
              help="Length of each run with other tenants' events.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def fanout(seconds: float, as_json: bool, **plan: int) -> None:
    """Measure fan-out: copies to paused receivers, then to receivers that get them.

    Then one event for very many receivers, together with the events of other tenants. The exit status is 1 if
    a copy was lost, repeated or came out of order.
    """
    from angarium.bench.fanout import FanoutPlan, measure

    figures = _run(measure, FanoutPlan(timed_s=seconds, **plan), as_json, FIGURE_HEADINGS, _fanout_rows)
    _check(figures, "copy")


@bench.command(short_help="Measure what dead, slow, hanging and flooding receivers cost healthy ones.")
@click.option("--receivers", default=200, show_default=True, type=click.IntRange(1, 5000),
              help="Number of healthy receivers.")  # fmt: skip
@click.option("--rate", default=300, show_default=True, type=click.IntRange(1), help="Events a second.")
@click.option("--behind", default=200_000, show_default=True, type=click.IntRange(1),
              help="Events that wait for the dead receiver.")  # fmt: skip
@click.option("--slow", default=50, show_default=True, type=click.IntRange(1, 5000))
@click.option("--hanging", default=2000, show_default=True, type=click.IntRange(1, 5000))
@click.option("--flood", default=200_000, show_default=True, type=click.IntRange(1),
              help="Events in the flood.")  # fmt: skip
@click.option("--size", default=1000, show_default=True, type=click.IntRange(17, 200_000),
              help="Body size in bytes.")  # fmt: skip
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1, 600),
              help="Length of a run.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def isolation(seconds: float, as_json: bool, **plan: int) -> None:
    """Measure healthy receivers alone, then with each kind of trouble; shows medians of several runs.

    The exit status is 1 if a delivery to a healthy one was lost, repeated or came out of order.
    """
    from angarium.bench.isolation import IsolationPlan, measure

    rows = _run(measure, IsolationPlan(timed_s=seconds, **plan), as_json, ISOLATION_HEADINGS, _isolation_rows)
    for row in rows:
        _check(row, f"delivery with {row.neighbours}")


@bench.command(short_help="Measure very many receivers, killed nodes, and a long backlog.")
@click.option("--receivers", default=100_000, show_default=True, type=click.IntRange(100))
@click.option("--active", default=1000, show_default=True, type=click.IntRange(1),
              help="Number of them that get events.")  # fmt: skip
@click.option("--parked", default=5000, show_default=True, type=click.IntRange(1),
              help="Parked actors when the node is killed.")  # fmt: skip
@click.option("--loaded", default=20_000, show_default=True, type=click.IntRange(100),
              help="Events of the node that is killed at full load.")  # fmt: skip
@click.option("--behind", default=200_000, show_default=True, type=click.IntRange(100),
              help="Events that wait for the recovering receiver.")  # fmt: skip
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.1, 600),
              help="Time that the idle node is watched.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def scale(receivers: int, active: int, seconds: float, as_json: bool, **plan: int) -> None:
    """Measure very many receivers (few of them active), two nodes that are killed, and a long backlog.

    The exit status is 1 if a delivery was lost, came out of order, or was repeated except after a kill at
    full load.
    """
    from angarium.bench.scale import ScalePlan, measure

    crowd = ScalePlan(receivers=receivers, active=min(active, receivers), timed_s=seconds, **plan)
    figures = _run(measure, crowd, as_json, FIGURE_HEADINGS, _scale_rows)
    _check(figures, "delivery")


@bench.command("api", short_help="Measure publishing over HTTP, next to a bare route.")
@click.option("--connections", default=64, show_default=True, type=click.IntRange(1, 1000),
              help="Connections that publish one event at a time.")  # fmt: skip
@click.option(
    "--batch", default=100, show_default=True, type=click.IntRange(1, 1000), help="Events in a batch."
)
@click.option("--size", default=1000, show_default=True, type=click.IntRange(20, 8000),
              help="Body size in bytes.")  # fmt: skip
@click.option("--rate", default=200, show_default=True, type=click.IntRange(1, 2000),
              help="Events a second of the steady part.")  # fmt: skip
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1, 600),
              help="Length of the steady part, and of each part of a round.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def http_api(seconds: float, as_json: bool, **plan: int) -> None:
    """Measure `angarium api`: single publishes, batches, and publish to arrival at a steady rate.

    Each round also measures a bare Litestar route that answers 202. The exit status is 1 if an event of the
    steady part was lost, repeated or came out of order.
    """
    from angarium.bench.api import ApiPlan, measure

    figures = _run(measure, ApiPlan(timed_s=seconds, **plan), as_json, FIGURE_HEADINGS, _api_rows)
    _check(figures, "delivery")


@bench.command("ledger", short_help="Measure how fast a ledger catches up, and how long queries take.")
@click.option("--attempts", default=300_000, show_default=True, type=click.IntRange(1000))
@click.option("--receivers", default=1000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(2, 600),
              help="Length of the live part (5,000 facts a second).")  # fmt: skip
@click.option("--to", "location", metavar="URL", help="An empty ledger to fill; by default a temporary file.")
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def ledger(attempts: int, receivers: int, seconds: float, location: str | None, as_json: bool) -> None:
    """Measure a ledger: catching up with a journal, keeping up with a live one, and each query."""
    from angarium.bench.ledger import LedgerPlan, measure

    plan = LedgerPlan(attempts=attempts, receivers=receivers, live_s=seconds, location=location)
    _run(measure, plan, as_json, FIGURE_HEADINGS, _ledger_rows)


@bench.command("console", short_help="Measure the pages of the console, with very many receivers.")
@click.option("--receivers", default=100_000, show_default=True, type=click.IntRange(100))
@click.option("--attempts", default=1_000_000, show_default=True, type=click.IntRange(1000),
              help="Attempts in the ledger; ten million take some minutes and 3 GB.")  # fmt: skip
@click.option("--rounds", default=50, show_default=True, type=click.IntRange(1, 1000),
              help="Times that each page is asked for.")  # fmt: skip
@with_shards
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def console_pages(rounds: int, as_json: bool, **plan: int) -> None:
    """Measure how long the server takes for each page of the console: the first time, and later."""
    from angarium.bench.console.crowd import CrowdPlan
    from angarium.bench.console.pages import PagesPlan, measure

    _run(measure, PagesPlan(crowd=CrowdPlan(**plan), rounds=rounds), as_json, PAGE_HEADINGS, _page_rows)


@bench.command("all", short_help="Run all of them with their defaults: about ten minutes.")
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, in JSON.")
def whole(as_json: bool) -> None:
    """Run every bench; deliveries also with fan-out (each event to 10 receivers) and on few shards."""
    from msgspec import to_builtins
    from msgspec.structs import replace

    from angarium.bench import api, calls, deliver, fanout, isolation, scale

    results: dict[str, Any] = {}

    def run(name: str, measure: Any, plan: Any, headings: Sequence[str], rows: Any) -> None:
        if not as_json:
            output.say(f"\n== {name}")
        results[name] = _measure(measure, plan, as_json)
        if not as_json:
            output.say()
            output.say_table(headings, rows(results[name]))

    run("deliver", deliver.measure, deliver.DeliverPlan(), FIGURE_HEADINGS, _rows)
    run("deliver --fan 10", deliver.measure, deliver.DeliverPlan(fan=10), FIGURE_HEADINGS, _rows)
    few = deliver.DeliverPlan(shards=FEW_SHARDS)
    run(f"deliver --shards {FEW_SHARDS}", deliver.measure, few, FIGURE_HEADINGS, _rows)
    run(
        f"deliver --fan 10 --shards {FEW_SHARDS}",
        deliver.measure,
        replace(few, fan=10),
        FIGURE_HEADINGS,
        _rows,
    )
    run("calls", calls.measure, calls.CallsPlan(), CALLS_HEADINGS, calls_rows)
    run("fanout", fanout.measure, fanout.FanoutPlan(), FIGURE_HEADINGS, _fanout_rows)
    run("api", api.measure, api.ApiPlan(), FIGURE_HEADINGS, _api_rows)
    run("scale", scale.measure, scale.ScalePlan(), FIGURE_HEADINGS, _scale_rows)
    run("isolation", isolation.measure, isolation.IsolationPlan(), ISOLATION_HEADINGS, _isolation_rows)
    if as_json:
        output.say_json(to_builtins(results))
    for name, figures in results.items():
        for each in figures if isinstance(figures, list) else [figures]:
            _check(each, f"delivery of {name}")


def calls_rows(ways: Sequence[Any], least: float = 0.5) -> Iterator[tuple[str, ...]]:
    """The folders, most calls first by the first way, each with its functions in that order."""
    yield ("all", *(f"{each.calls.whole:.1f}" for each in ways))
    folders = [each.calls.folders for each in ways]
    for folder in sorted({*chain(*folders)}, key=lambda name: [-counts[name] for counts in folders]):
        functions = [each.calls.by_folder.get(folder, {}) for each in ways]
        names = {name for counts in functions for name, count in counts.items() if count >= least}
        if names:
            yield (folder, *(f"{counts[folder]:.1f}" for counts in folders))
        for name in sorted(names, key=lambda name: [-counts.get(name, 0.0) for counts in functions]):
            yield (f"  {name}", *(f"{counts.get(name, 0.0):.1f}" for counts in functions))


def _isolation_rows(rows: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        times = (row.p50_ms, row.p99_ms, row.worst_ms)
        memory = "-" if row.memory_mb is None else f"{row.memory_mb:.0f} MB"
        yield (row.neighbours, *(f"{each:.1f} ms" for each in times), memory, f"{row.unacked:,}")


def _run(
    measure: Callable[[P, Callable[[str], None]], Coroutine[Any, Any, T]],
    plan: P,
    as_json: bool,
    headings: Sequence[str],
    rows: Callable[[T], Iterable[Sequence[str]]],
) -> T:
    """Measure, and show the results."""
    from msgspec import to_builtins

    figures = _measure(measure, plan, as_json)
    if as_json:
        output.say_json(to_builtins(figures))
    else:
        output.say()
        output.say_table(headings, rows(figures))
    return figures


def _measure(
    measure: Callable[[P, Callable[[str], None]], Coroutine[Any, Any, T]], plan: P, quiet: bool
) -> T:
    """Measure, and tell each step unless `quiet`."""

    async def run() -> T:
        end_on_sigterm()
        return await measure(plan, (lambda _: None) if quiet else output.say)

    return run_long(run())


def _check(figures: Any, what: str) -> None:
    """Raises click.ClickException if not all is as promised."""
    if figures.lost or figures.repeats or figures.disordered:
        wrong = f"{figures.lost} lost, {figures.repeats} repeated, {figures.disordered} out of order"
        raise click.ClickException(f"not every {what} came as promised: {wrong}")


def _api_rows(figures: Any) -> list[tuple[str, str]]:
    connections, batch, rate = figures.connections, figures.batch, figures.rate
    rows = [
        (f"single publishes/s, {connections} connections", f"{figures.single.per_s:,.0f}"),
        ("bare Litestar route, requests/s", f"{figures.bare.per_s:,.0f}"),
        ("single publishes to the bare route", f"{figures.to_bare:.2f}"),
        (f"events/s in batches of {batch}", f"{figures.batched.per_s:,.0f}"),
        (f"publish to arrival at {rate}/s, p50", f"{figures.p50_ms:.1f} ms"),
        (f"publish to arrival at {rate}/s, p99", f"{figures.p99_ms:.1f} ms"),
    ]
    costs = {
        "single publish": figures.single,
        "event in batches": figures.batched,
        "bare request": figures.bare,
    }
    for what, cost in costs.items():
        if cost.server_cpu_us is not None and cost.nats_cpu_us is not None:
            rows.append((f"CPU per {what}: its server", f"{cost.server_cpu_us:.1f} µs"))
            if cost is not figures.bare:
                rows.append(("  nats-server", f"{cost.nats_cpu_us:.1f} µs"))
        rows.append(("  the client", f"{cost.client_cpu_us:.1f} µs"))
    return rows


def _ledger_rows(figures: Any) -> list[tuple[str, str]]:
    rows = [
        ("facts", f"{figures.facts:,}"),
        ("facts/s, catching up", f"{figures.facts_per_s:,.0f}"),
    ]
    if figures.cpu_us_per_fact is not None:
        rows.append(("  CPU a fact", f"{figures.cpu_us_per_fact:.1f} µs"))
        rows.append(("  memory", f"{figures.memory_mb:.0f} MB"))
    if figures.bytes_per_fact is not None:
        rows.append(("bytes a fact", f"{figures.bytes_per_fact:.0f}"))
    rows += [
        ("facts/s, live", f"{figures.live_facts_per_s:,.0f}"),
        ("  CPU, with writing the journal", f"{figures.live_cpu:.0%} of a core"),
        ("  behind at worst", f"{figures.behind_s:.1f} s"),
    ]
    return rows + [(what, f"{took_ms:.1f} ms") for what, took_ms in figures.queries_ms.items()]


def _page_rows(figures: Any) -> list[tuple[str, ...]]:
    rows = [
        (each.path, f"{each.size:,}", *(f"{ms:.0f} ms" for ms in (each.first_ms, each.p50_ms, each.p99_ms)))
        for each in figures.pages
    ]
    return [*rows, (f"load of the machine: {figures.load:.1f}", "", "", "", "")]


def _fanout_rows(figures: Any) -> list[tuple[str, str]]:
    rows = [
        ("copies/s, routed and stored", f"{figures.copies_per_s:,.0f}"),
        ("the same while they are delivered", f"{figures.copies_per_s_delivered:,.0f}"),
        ("bare client, as many lanes, copies/s", f"{figures.lanes:,.0f}"),
        ("bare client, one pipeline, copies/s", f"{figures.server:,.0f}"),
        (f"one event for {figures.wide:,} receivers", f"{figures.wide_ms:,.0f} ms"),
        ("other tenants alone, p50", f"{figures.neighbours_p50_ms:.1f} ms"),
        ("other tenants alone, worst", f"{figures.neighbours_worst_ms:.1f} ms"),
        ("other tenants meanwhile, p50", f"{figures.neighbours_during_p50_ms:.1f} ms"),
        ("other tenants meanwhile, worst", f"{figures.neighbours_during_worst_ms:.1f} ms"),
    ]
    if figures.cpu_us_per_copy is not None and figures.memory_mb is not None:
        rows.append(("the node's CPU a copy", f"{figures.cpu_us_per_copy:.0f} µs"))
        rows.append(("the node's memory", f"{figures.memory_mb:.0f} MB"))
    return rows


def _rows(figures: Any) -> list[tuple[str, str]]:
    rows = [
        ("deliveries/s", f"{figures.deliveries:,.0f}"),
        ("bare aiohttp loop, requests/s", f"{figures.aiohttp:,.0f}"),
        ("bare http1 loop, requests/s", f"{figures.http1:,.0f}"),
        ("deliveries to aiohttp", f"{figures.to_aiohttp:.2f}"),
        ("deliveries to http1", f"{figures.to_http1:.2f}"),
        ("appends a delivery", f"{figures.appends_per_delivery:.4f}"),
        ("deliveries/s while publishing", f"{figures.deliveries_while_publishing:,.0f}"),
        ("publish to arrival at 500/s, p50", f"{figures.p50_ms:.1f} ms"),
        ("publish to arrival at 500/s, p99", f"{figures.p99_ms:.1f} ms"),
    ]
    if figures.cpu_us_per_delivery is not None and figures.memory_mb is not None:
        rows.append(("the node's CPU a delivery", f"{figures.cpu_us_per_delivery:.0f} µs"))
        rows += [(f"  of it {part}", f"{cpu_us:.1f} µs") for part, cpu_us in figures.parts_us.items()]
        rows.append(("the node's memory", f"{figures.memory_mb:.0f} MB"))
    rows.append(("publish to arrival at 200/s, p99", f"{figures.gentle_p99_ms:.1f} ms"))
    if figures.gentle_cpu is not None and figures.gentle_server_cpu is not None:
        rows.append(("the node's CPU at 200/s", f"{figures.gentle_cpu:.0%} of a core"))
        rows.append(("nats-server's CPU at 200/s", f"{figures.gentle_server_cpu:.0%} of a core"))
    if figures.server_cpu_us_per_delivery is not None:
        rows.append(("nats-server's CPU a delivery", f"{figures.server_cpu_us_per_delivery:.0f} µs"))
    return [
        *rows,
        ("a bare aiohttp loop's CPU a request", f"{figures.aiohttp_cpu_us:.0f} µs"),
        ("a bare http1 loop's CPU a request", f"{figures.http1_cpu_us:.0f} µs"),
    ]


def _scale_rows(figures: Any) -> list[tuple[str, str]]:
    rows = [
        (f"a node with {figures.receivers:,} receivers is ready", f"{figures.ready_s:.1f} s"),
        ("an idle actor, its window full", f"{figures.actor_bytes:,.0f} bytes"),
        ("publish to arrival, not in memory, p50", f"{figures.fresh_p50_ms:.1f} ms"),
        ("publish to arrival, not in memory, p99", f"{figures.fresh_p99_ms:.1f} ms"),
        ("publish to arrival, in memory, p50", f"{figures.resident_p50_ms:.1f} ms"),
        ("publish to arrival, in memory, p99", f"{figures.resident_p99_ms:.1f} ms"),
        (f"kill to first delivery, lease {figures.ttl_s:g} s", f"{figures.first_s:.1f} s"),
        (f"kill to all shards, {figures.parked:,} parked", f"{figures.all_s:.1f} s"),
        (f"repeats after a kill at full load, of {figures.loaded:,}", f"{figures.repeated:,}"),
        (f"deliveries/s to one that is {figures.behind:,} behind", f"{figures.drain:,.0f}"),
        ("the same, in relaxed order", f"{figures.drain_relaxed:,.0f}"),
    ]
    rows += [
        (f"deliveries per CPU second, {count} {'node' if count == 1 else 'nodes'}", f"{rate:,.0f}")
        for count, rate in figures.per_cpu_s.items()
    ]
    if figures.drain_before_mb is not None and figures.drain_max_mb is not None:
        memory = f"{figures.drain_before_mb:.0f} to {figures.drain_max_mb:.0f} MB"
        rows.append(("the node's memory meanwhile", memory))
    if figures.memory_mb is not None and figures.idle is not None:
        rows.append((f"the node's memory, {figures.active:,} active", f"{figures.memory_mb:.0f} MB"))
        rows.append(("the idle node's CPU", f"{figures.idle:.1%} of a core"))
    return rows
