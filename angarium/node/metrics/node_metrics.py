"""The metrics of a node in the text format of Prometheus: its totals and its memory, read at each scrape.

Between two scrapes, `prometheus_client` is not used at all. No label names a receiver or a tenant, so the
number of series does not grow with them. A scrape looks at each actor in memory, 6 ms for 10,000 of them.
`docs/metrics.md` explains each metric.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct, field
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from actors.runtime.host import Host
from actors.status import held_back
from angarium import __version__
from angarium.node.node import Node
from angarium.telemetry.metrics.families import histogram, info, labelled, single
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
        """All metrics, in the order of the table."""
        context = self._node.context
        yield info("angarium_node_info", {"node": context.node, "version": __version__})
        yield from self._work()
        yield from self._memory()
        yield from _routing(context.routing.totals)
        yield from self._journal()
        yield from self._ownership()
        yield single("angarium_nats_connected", context.js.wire.connected)
        yield single("angarium_nats_reconnects_total", self._reconnects)
        if context.tracing is not None:
            tracer, exporter = context.tracing.tracer, context.tracing.exporter
            counts = {"exported": exporter.exported, "dropped": exporter.dropped + tracer.dropped}
            yield labelled("angarium_spans_total", counts)

    def _work(self) -> Iterator[Metric]:
        totals = self._node.context.totals.actors
        yield labelled("angarium_deliveries_total", totals.deliveries)
        yield labelled("angarium_attempts_total", totals.attempts)
        yield histogram("angarium_attempt_seconds", totals.attempt_s)
        yield histogram("angarium_arrival_seconds", totals.arrival_s)
        yield labelled("angarium_dead_letters_total", totals.dead_letters)

    def _memory(self) -> Iterator[Metric]:
        seen = _ActorsInMemory()
        for shard in self._node.owned.values():
            seen.add(shard.host)
        yield single("angarium_actors", seen.actors)
        yield single("angarium_receivers_parked", seen.parked)
        parked = sum(len(shard.routing().parked_tenants) for shard in self._node.owned.values())
        yield single("angarium_tenants_parked", parked)
        yield labelled("angarium_receivers_held", {phase: seen.held[phase] for phase in HELD_BACK})
        yield single("angarium_events_waiting", seen.waiting)
        yield single("angarium_attempts_in_flight", seen.in_flight)
        unread = Counter[str]()
        for shard in self._node.owned.values():
            unread.update(shard.unread())
        yield labelled("angarium_messages_unread", {stream: unread[stream] for stream in UNREAD_STREAMS})

    def _journal(self) -> Iterator[Metric]:
        appended = self._node.context.totals.journal
        yield histogram("angarium_journal_append_seconds", appended.append_s)
        yield single("angarium_journal_facts_total", appended.facts)
        yield single("angarium_journal_bytes_total", appended.bytes)

    def _ownership(self) -> Iterator[Metric]:
        node, counted = self._node, self._node.context.totals.ownership
        suspended = sum(shard.suspended for shard in node.owned.values())
        running = len(node.owned) - suspended
        states = {"running": running, "suspended": suspended, "refused": len(node.refused)}
        yield labelled("angarium_shards", states)
        claims = {"clean": counted.clean, "unclean": counted.unclean, "resumed": counted.resumed}
        yield labelled("angarium_takeovers_total", claims)
        yield single("angarium_fences_total", counted.fenced)


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
    yield single("angarium_router_events_total", routed.events)
    yield single("angarium_router_copies_total", routed.copies)
    yield single("angarium_router_unmatched_total", routed.unmatched)
    yield single("angarium_router_malformed_total", routed.malformed)
    yield single("angarium_router_evicted_total", routed.evicted)
