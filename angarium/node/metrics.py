"""The metrics of a node in the text format of Prometheus: its totals and its memory, read at each scrape.

Between two scrapes, `prometheus_client` is not used at all. No label names a receiver or a tenant, so the
number of series does not grow with them. A scrape looks at each actor in memory, 6 ms for 10,000 of them.
`docs/operating.md` explains each metric.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

from msgspec import Struct, field
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from actors.runtime.host import Host
from actors.status import held_back
from actors.totals import Histogram
from angarium import __version__
from angarium.node.node import Node
from streams.routing.shared_state import RoutingTotals


class NodeMetrics(Collector):
    """The metrics of a node that has started."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reconnects = 0
        node.context.js.add_listener(self._on_connection)

    def _on_connection(self, connected: bool) -> None:
        self._reconnects += connected

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of the documentation."""
        context = self._node.context
        name = {"node": context.node, "version": __version__}
        yield InfoMetricFamily("angarium_node", "Name and version.", name)
        yield from self._work()
        yield from self._memory()
        yield from _routing(context.routing.totals)
        yield from self._journal()
        yield from self._ownership()
        yield _gauge("nats_connected", "Whether NATS is connected.", context.js.wire.connected)
        yield _counter("nats_reconnects", "Reconnects to NATS.", self._reconnects)
        if context.tracing is not None:
            tracer, exporter = context.tracing.tracer, context.tracing.exporter
            counts = {"exported": exporter.exported, "dropped": exporter.dropped + tracer.dropped}
            yield _counters("spans", "Spans of traces, by what became of them.", "result", counts)

    def _work(self) -> Iterator[Metric]:
        totals = self._node.context.totals.actors
        yield _counters("deliveries", "Attempts by outcome.", "outcome", totals.deliveries)
        yield _counters("attempts", "Attempts by status.", "status", totals.attempts)
        yield histogram("attempt_seconds", "Time from request to outcome.", totals.attempt_s)
        yield histogram("arrival_seconds", "Time from accepting an event to its 2xx.", totals.arrival_s)
        yield _counters("dead_letters", "Events given up.", "reason", totals.dead_letters)

    def _memory(self) -> Iterator[Metric]:
        seen = _ActorsInMemory()
        for shard in self._node.owned.values():
            seen.add(shard.host)
        yield _gauge("actors", "Receivers in memory.", seen.actors)
        yield _gauge("receivers_parked", "Receivers whose events wait only in the stream.", seen.parked)
        parked = sum(len(shard.routing().parked_tenants) for shard in self._node.owned.values())
        yield _gauge("tenants_parked", "Tenants that flood their partition: their fan-outs wait.", parked)
        held = GaugeMetricFamily("angarium_receivers_held", "Receivers that are held back.", labels=["phase"])
        for phase in HELD_BACK:
            held.add_metric([phase], seen.held[phase])
        yield held
        yield _gauge("events_waiting", "Events known to wait, without those in flight.", seen.waiting)
        yield _gauge("attempts_in_flight", "Attempts in flight.", seen.in_flight)
        unread = Counter[str]()
        for shard in self._node.owned.values():
            unread.update(shard.unread())
        waiting = GaugeMetricFamily("angarium_messages_unread", "Messages not read yet.", labels=["stream"])
        for stream in UNREAD_STREAMS:
            waiting.add_metric([stream], unread[stream])
        yield waiting

    def _journal(self) -> Iterator[Metric]:
        appended = self._node.context.totals.journal
        yield histogram("journal_append_seconds", "Time of an append to the journal.", appended.append_s)
        yield _counter("journal_facts", "Facts recorded.", appended.facts)
        yield _counter("journal_bytes", "Bytes appended.", appended.bytes)

    def _ownership(self) -> Iterator[Metric]:
        node, counted = self._node, self._node.context.totals.ownership
        suspended = sum(shard.suspended for shard in node.owned.values())
        shards = GaugeMetricFamily("angarium_shards", "Shards of this node.", labels=["state"])
        shards.add_metric(["running"], len(node.owned) - suspended)
        shards.add_metric(["suspended"], suspended)
        shards.add_metric(["refused"], len(node.refused))
        yield shards
        claims = {"clean": counted.clean, "unclean": counted.unclean, "resumed": counted.resumed}
        yield _counters("takeovers", "Shards claimed, by how the last owner left them.", "claim", claims)
        yield _counter("fences", "Shards lost to another owner at an append.", counted.fenced)


UNREAD_STREAMS = ("deliveries", "events")
HELD_BACK = ("throttled", "backing_off", "offline", "paused", "disabled", "misconfigured")


class _ActorsInMemory(Struct):
    """The state of the actors in memory at one scrape."""

    actors: int = 0
    parked: int = 0
    waiting: int = 0
    in_flight: int = 0
    held: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, host: Host) -> None:
        now = host.clock.now()
        self.actors += len(host.actors)
        self.parked += len(host.parked)
        for actor in host.actors.values():
            state, in_flight = actor.state, actor.pending.in_flight
            self.in_flight += len(in_flight)
            self.waiting += len(actor.pending.mailbox) + actor.pending.cursor.left_min
            self.waiting += sum(each.position not in in_flight for each in state.open)
            if actor.loaded and (phase := held_back(state, actor.policy, now)):
                self.held[phase] += 1


def _routing(routed: RoutingTotals) -> Iterator[Metric]:
    yield _counter("router_events", "Fan-outs routed.", routed.events)
    yield _counter("router_copies", "Copies of fan-outs stored.", routed.copies)
    yield _counter("router_unmatched", "Fan-outs without a subscriber.", routed.unmatched)
    yield _counter("router_evicted", "Fan-outs that gave way before they were routed.", routed.evicted)
    yield _counter("router_malformed", "Fan-outs that are malformed.", routed.malformed)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"angarium_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"angarium_{name}", text, value)


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"angarium_{name}", text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def histogram(name: str, text: str, counted: Histogram) -> Metric:
    """A histogram in Prometheus form: each bucket counts all values at or below its bound."""
    bounds = [*map(str, counted.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
    return HistogramMetricFamily(f"angarium_{name}", text, buckets=buckets, sum_value=counted.sum)
