"""The metrics of a node in the text format of Prometheus: its totals and its memory, read at each scrape.

Between two scrapes, `prometheus_client` is not used at all. Labels name at most `metrics_names` receivers and
as many tenants, so the number of series does not grow with them. A scrape looks at each actor in memory, 3 µs
for one that rests and 6 µs for one that works. `docs/metrics.md` explains each metric.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from actors.ids import is_tenant
from actors.machine.facts import OUTSIDE_REGION
from actors.machine.pace.pace import PACE_RULES
from angarium import __version__
from angarium.node.metrics.largest import OTHERS, LargestCounters, largest, oldest
from angarium.node.metrics.receivers_in_memory import FILLS, HELD_BACK, ReceiversInMemory
from angarium.node.node import Node
from angarium.telemetry.metrics.families import histogram, info, labelled, single
from streams.dead_letters.letters import REASONS
from streams.routing.node_routing import RoutingTotals


class NodeMetrics(Collector):
    """The metrics of a node that has started."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reconnects = 0
        self._routed = LargestCounters(node.context.metrics_names)
        node.context.js.add_listener(self._on_connection)

    def _on_connection(self, connected: bool) -> None:
        self._reconnects += connected

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of the table."""
        context = self._node.context
        yield info("angarium_node_info", {"node": context.node, "version": __version__})
        yield from self._work()
        yield from self._memory()
        yield from self._tenants()
        yield from _routing(context.routing.totals)
        yield from self._journal()
        yield from self._ownership()
        outage = context.outage
        yield single("angarium_own_outage", context.has_outage)
        yield single("angarium_own_outages_total", 0 if outage is None else outage.outage_count)
        yield single("angarium_outage_probes_total", 0 if outage is None else outage.probed)
        yield single("angarium_nats_connected", context.js.wire.is_connected)
        yield single("angarium_nats_reconnects_total", self._reconnects)
        if context.tracing is not None:
            tracer, exporter = context.tracing.tracer, context.tracing.exporter
            counts = {"exported": exporter.exported, "dropped": exporter.dropped + tracer.dropped}
            yield labelled("angarium_spans_total", counts)

    def _work(self) -> Iterator[Metric]:
        totals = self._node.context.totals.actors
        yield labelled("angarium_deliveries_total", totals.deliveries)
        yield labelled("angarium_handshakes_total", totals.handshakes)
        yield labelled("angarium_attempts_total", totals.attempts)
        tracing = self._node.context.tracing
        attempt_s, arrival_s = (None, None) if tracing is None else tracing.tracer.exemplars
        yield histogram("angarium_attempt_seconds", totals.attempt_s, attempt_s)
        yield histogram("angarium_arrival_seconds", totals.arrival_s, arrival_s)
        yield single("angarium_too_many_requests_total", totals.answered_429)
        yield histogram("angarium_throttle_seconds", totals.throttle_s)
        yield labelled("angarium_dead_letters_total", dict.fromkeys(DEAD_REASONS, 0) | totals.dead_letters)

    def _memory(self) -> Iterator[Metric]:
        context, shards = self._node.context, self._node.owned.values()
        seen, most = ReceiversInMemory(context.configurations.is_known), context.metrics_names
        for shard in shards:
            seen.add(shard.host)
        yield single("angarium_actors", seen.actors)
        yield single("angarium_receivers_parked", seen.parked)
        yield from _held(seen.held, most)
        yield single("angarium_receivers_late", seen.late)
        yield labelled("angarium_receivers_paced", {each: seen.paced[each] for each in PACE_RULES})
        yield labelled("angarium_paces_learnt_total", context.totals.actors.paces)
        yield labelled("angarium_rate_buckets", {fill: seen.fills[fill] for fill in FILLS})
        yield single("angarium_events_waiting", seen.waiting)
        yield labelled("angarium_backlog_events", largest(seen.backlogs, most))
        yield labelled("angarium_backlog_oldest_seconds", largest(seen.ages_s, most, oldest))
        yield single("angarium_attempts_in_flight", seen.in_flight)
        yield labelled("angarium_proxy_connections", dict(context.proxy_connections()))
        unread = Counter[str]()
        for shard in shards:
            unread.update(shard.unread())
        yield labelled("angarium_messages_unread", {stream: unread[stream] for stream in UNREAD_STREAMS})

    def _tenants(self) -> Iterator[Metric]:
        context, lags = self._node.context, dict[str, float]()
        for shard in self._node.owned.values():
            progress = shard.routing()
            lags.update((name, progress.routed - at) for name, at in progress.parked_tenants.items())
        named = {name: lag for name, lag in lags.items() if is_tenant(name)}
        parked = dict.fromkeys(largest(named, context.metrics_names), 1)
        parked[OTHERS] = len(lags) - len(parked) + 1
        yield single("angarium_tenants_parked", len(lags))
        yield labelled("angarium_tenant_parked", parked)
        routed = context.routing.routed_by_tenant
        yield labelled(
            "angarium_tenant_routed_events_total", self._routed.values(routed.counts, routed.others)
        )

    def _journal(self) -> Iterator[Metric]:
        appended = self._node.context.totals.journal
        yield histogram("angarium_journal_append_seconds", appended.append_s)
        yield single("angarium_journal_facts_total", appended.facts)
        yield single("angarium_journal_bytes_total", appended.bytes)

    def _ownership(self) -> Iterator[Metric]:
        node, counted = self._node, self._node.context.totals.ownership
        suspended = sum(shard.is_suspended for shard in node.owned.values())
        running = len(node.owned) - suspended
        states = {"running": running, "suspended": suspended, "refused": len(node.refused)}
        yield labelled("angarium_shards", states)
        yield single("angarium_installation_shards", node.shards)
        claims = {"clean": counted.clean, "unclean": counted.unclean, "resumed": counted.resumed}
        yield labelled("angarium_takeovers_total", claims)
        yield single("angarium_fences_total", counted.fenced)
        ages = (shard.host.clock.now() - shard.snapshots.current_at for shard in node.owned.values())
        yield single("angarium_snapshot_age_seconds", oldest(ages))


UNREAD_STREAMS = ("deliveries", "events")
DEAD_REASONS = (*REASONS, "discarded", OUTSIDE_REGION)
"""Told from zero on: Prometheus sees no increase in a series that begins with its first event."""


def _held(held: Mapping[tuple[str, str], int], most: int) -> Iterator[Metric]:
    phases, tenants = Counter[str](), Counter[str]()
    for (tenant, phase), count in held.items():
        phases[phase] += count
        tenants[tenant] += count
    yield labelled("angarium_receivers_held", {phase: phases[phase] for phase in HELD_BACK})
    named = largest(tenants, most)
    values = {(OTHERS, phase): 0 for phase in HELD_BACK}
    for (tenant, phase), count in held.items():
        key = tenant if tenant in named else OTHERS, phase
        values[key] = values.get(key, 0) + count
    yield labelled("angarium_tenant_receivers_held", values)


def _routing(routed: RoutingTotals) -> Iterator[Metric]:
    yield single("angarium_router_events_total", routed.events)
    yield single("angarium_router_copies_total", routed.copies)
    yield single("angarium_router_unmatched_total", routed.unmatched)
    yield single("angarium_router_malformed_total", routed.malformed)
    yield single("angarium_router_evicted_total", routed.evicted)
    selections = routed.selections
    withheld = {"filter": selections.filtered, "region": selections.outside_region}
    yield labelled("angarium_router_withheld_total", withheld)
    yield labelled("angarium_filter_failures_total", selections.failures)
