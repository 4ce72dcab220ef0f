"""The wiring of a node: makes a running member of the fleet from settings, and closes everything in order."""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from ipaddress import ip_network
from typing import Any, TypeVar, assert_never

import msgspec

import angarium
from actors.configuration.policy import Policy
from actors.memory.unacked import NodeHolders
from actors.ports import Sender
from actors.tenant_settings import SettingsByTenant
from angarium.access import connect_options, key_file
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.connections.resolver import DnsResolver
from angarium.delivery.connections.starts_per_turn import StartsPerTurn
from angarium.delivery.connections.tenant_budgets import TenantBudgets
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport, OnConnected
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import Transport
from angarium.delivery.own_outage.outage_detector import OutageDetector
from angarium.delivery.own_outage.prober import Prober
from angarium.delivery.sender import HttpSender
from angarium.file_value import reload_when_changed
from angarium.node.control_requests import ReceiverControl
from angarium.node.descriptors import connections_max, per_host_max
from angarium.node.early_start import (
    CONFIGURATIONS_PATIENCE_S,
    read_configurations,
    until_complete_or_alone,
)
from angarium.node.health_log import HealthLog
from angarium.node.load import ThreadLoad
from angarium.node.monitor import monitoring
from angarium.node.node import Node
from angarium.node.shard import NodeContext
from angarium.node.totals import NodeTotals
from angarium.settings import Settings
from angarium.telemetry.metrics.open_export import open_metrics_export
from angarium.telemetry.open_tracing import Tracing, exporting_spans, open_tracing
from angarium.terminal.run import ending_signals
from streams.buckets.known_configurations import (
    KnownConfigurations,
    letter_marks_of,
    receiver_finder,
    subscriptions_of,
)
from streams.buckets.sealing_marker import mark_sealing
from streams.clock import SystemTime, Timekeeper
from streams.control_requests.micro_service import Identity, MicroService
from streams.control_requests.node_requests import NodeControl
from streams.control_requests.requests import ControlServer
from streams.fleet.members import Members
from streams.fleet.process_runs import UNSUPERVISED, ProcessRuns
from streams.installation.topology import Names
from streams.journal.load_slots import LoadSlots
from streams.nats.connection import connect
from streams.nats.inboxes import Inboxes
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.nats.wire import Wire
from streams.reading.backlog import READERS_MAX
from streams.reading.pull_room import PullRoom
from streams.routing.freshness import Freshness
from streams.routing.lanes import CopySlots
from streams.routing.node_routing import Routing, RoutingTotals
from streams.routing.router import COPIES_AT_ONCE
from streams.routing.selection.sending_rules import sending_rules_of
from streams.sealing.keys import Keys, no_keys
from streams.tasks import cancel_and_wait, reporting

log = logging.getLogger(__name__)

T = TypeVar("T")

COLLECT_AFTER = 10_000
"""New objects before the garbage collector looks for cycles among them. Some 250 deliveries make Python's
default of 700, and looking took 3 % of a busy node's CPU; now it takes 0.8 %, 0.4 ms each time."""


async def run_node(
    settings: Settings,
    *,
    ready: Callable[[], None] | None = None,
    supervisor: socket.socket | None = None,
    runs: ProcessRuns = UNSUPERVISED,
) -> None:
    """Run a node until it is told to stop, then hand over its shards. `ready` is called once it owns all.

    A node with a `supervisor` answers it instead of listening on the monitor's address. `runs`: what the
    supervisor knows of the processes of this node.
    """
    loop = asyncio.get_running_loop()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    stop = asyncio.Event()
    for number in ending_signals():
        loop.add_signal_handler(number, stop.set)
    place = settings.monitor if supervisor is None else supervisor
    export = open_metrics_export(os.environ, settings.node)
    tracing = open_tracing(os.environ, settings.node, failures=settings.trace_failures)
    async with (
        exporting_spans(tracing),
        monitoring(place, export) as monitor,
        AsyncExitStack() as stack,
    ):
        opening = open_node(settings, freeze_existing_objects, runs, tracing)
        node = await _unless(stop, stack.enter_async_context(opening))
        if node is None:
            return
        monitor.watch(node)
        claimed = asyncio.ensure_future(node.until_ready())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((claimed, stopped), return_when=asyncio.FIRST_COMPLETED)
        if claimed.done() and not stop.is_set():
            log.info("node.ready", extra={"node": node.context.node, "shards": len(node.owned)})
            if ready is not None:
                ready()
        await stopped
        claimed.cancel()
        log.info("node.stopping", extra={"node": node.context.node})


def freeze_existing_objects() -> None:
    """Leave all objects that exist now out of every later search for garbage: modules and configurations.

    With 20,000 receivers configured, a full search stopped the event loop for 29 to 108 ms on a busy machine,
    and for 1 to 33 ms if the configurations are left out. This is called before there are actors, which are
    garbage once they leave memory; those of a node that began before it knew all configurations stay.
    """
    gc.collect()
    gc.freeze()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if `stop` came first: work may wait for NATS without end."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        task.cancel()
        await asyncio.wait((task,))
    return None if task.cancelled() else task.result()


@asynccontextmanager
async def open_node(
    settings: Settings,
    on_complete: Callable[[], None] | None = None,
    runs: ProcessRuns = UNSUPERVISED,
    tracing: Tracing | None = None,
) -> AsyncIterator[Node]:
    """A node over a connection and a transport of its own; see `joined_node` for `on_complete`."""
    traceparent = None if tracing is None else tracing.tracer.traceparent
    resolver = DnsResolver()
    guard = Guard(
        allow_http=settings.allow_http,
        allow_networks=map(ip_network, settings.allow_networks),
        deny_networks=map(ip_network, settings.deny_networks),
        resolver=resolver,
    )
    paths = EgressPaths(guard, settings.profiles, resolver=resolver)
    sealing = key_file(settings)
    wire = await connect(connect_options(settings))
    prober = Prober(guard)

    def has_proxy(policy: Policy) -> bool:
        return paths.profiles_of(policy).proxy is not None

    outage = OutageDetector(prober, address_of=prober.address_of, has_own_path=has_proxy)
    down_hosts = DownHosts(has_own_path=has_proxy)

    def connected(receiver: str, target: Target, address: str) -> None:
        outage.connected(receiver, target, address)
        down_hosts.reached(target)

    transport = _transport(settings, guard, paths, connected)
    sender = HttpSender(
        transport, traceparent=traceparent, profile_names=paths.profiles_of, origin=settings.origin,
        detector=outage, down_hosts=down_hosts,
    )  # fmt: skip
    reloading = asyncio.ensure_future(paths.reload_changed_files())
    reloading.add_done_callback(reporting("the files of proxies and TLS profiles are no longer read again"))
    try:
        async with joined_node(
            wire, settings, SystemTime(), sender, outage=outage, down_hosts=down_hosts,
            saturated=ThreadLoad(), on_complete=on_complete, tracing=tracing, runs=runs,
            proxy_connections=transport.proxy_connections if isinstance(transport, Http1Transport) else dict,
            keys=lambda: sealing.value,
        ) as node:  # fmt: skip
            open_again = node.context.configurations.open_again
            watching_keys = asyncio.ensure_future(reload_when_changed((sealing,), open_again))
            watching_keys.add_done_callback(reporting("the key file is no longer read again"))
            try:
                yield node
            finally:
                watching_keys.cancel()
    finally:
        if tracing is not None:
            tracing.exporter.finish()  # The last metrics are sent at the same time.
        reloading.cancel()
        outage.close()
        await transport.close()
        resolver.close()
        await wire.close()


def _transport(settings: Settings, guard: Guard, paths: EgressPaths, connected: OnConnected) -> Transport:
    limits = ConnectionLimits(connections_max=connections_max(), per_host_max=per_host_max(settings.workers))
    match settings.transport:
        case "http1":
            tenants = SettingsByTenant(settings.tenants)
            budgets = TenantBudgets(tenants.attempts_max) if tenants.has_budgets else None
            return Http1Transport(paths, limits=limits, on_connected=connected, budgets=budgets)
        case "httpx":
            from angarium.delivery.httpx_transport import HttpxTransport  # Only this needs the extra.

            return HttpxTransport(guard, limits=limits)
        case _:
            assert_never(settings.transport)


@asynccontextmanager
async def joined_node(
    wire: Wire,
    settings: Settings,
    time: Timekeeper,
    sender: Sender,
    *,
    saturated: Callable[[], bool] = lambda: False,
    on_complete: Callable[[], None] | None = None,
    tracing: Tracing | None = None,
    runs: ProcessRuns = UNSUPERVISED,
    patience_s: float = CONFIGURATIONS_PATIENCE_S,
    proxy_connections: Callable[[], Mapping[str, int]] = dict,
    keys: Callable[[], Keys] = no_keys,
    outage: OutageDetector | None = None,
    down_hosts: DownHosts | None = None,
) -> AsyncIterator[Node]:
    """A member of the fleet over given ports; leaving hands its shards over.

    `saturated` returns True if the event loop has no time to spare. `on_complete` is called when all
    configurations are known: before the first shard is claimed, unless the node is alone and there are many
    (`early_start`, which takes `patience_s`). `keys` open the secrets in configurations.
    `outage` and `down_hosts` hold attempts back.
    """
    js = JetStream(wire)
    await js.start()
    names = Names(settings.prefix)
    configurations = await _configurations(js, names, settings, keys)
    version, ttl_s = angarium.__version__, settings.ttl_s
    members = Members(js, names, settings.node, time, ttl_s=ttl_s, version=version, runs=runs)
    freshness = Freshness(js, configurations.catch_up, time)
    copies, readers = CopySlots(COPIES_AT_ONCE), asyncio.Semaphore(READERS_MAX)
    tenant_settings = SettingsByTenant(settings.tenants, settings.alerts)
    subscriptions, health_log = subscriptions_of(configurations), HealthLog()
    routing = Routing(
        receiver_finder(configurations, subscriptions), freshness, copies, readers, RoutingTotals(),
        tenant_settings, sending_rules_of(configurations).by_receiver,
        subscribed_tenants=lambda: subscriptions.tenants, partitions=settings.shards, wall=time.wall,
        letter_mark=letter_marks_of(configurations), on_filter_failure=health_log.filter_failed,
        on_routed=tracing.tracer.routed if tracing else None,
    )  # fmt: skip
    context = NodeContext(
        js=js, names=names, node=settings.node, time=time, members=members, configurations=configurations,
        sender=sender, readers=readers, pull_room=PullRoom(), loads=LoadSlots(begin=StartsPerTurn().begin),
        burials_at_once=asyncio.Semaphore(1), routing=routing, totals=NodeTotals(), health_log=health_log,
        saturated=saturated, holders=NodeHolders(), drain_s=settings.drain_s, tracing=tracing, outage=outage,
        replay_keep_s=settings.replay_keep_s, metrics_names=settings.metrics_names, down_hosts=down_hosts,
        proxy_connections=proxy_connections,
    )  # fmt: skip
    node = Node(context, settings.shards)
    inboxes = Inboxes(settings.inbox_prefix, *settings.answer_inboxes)
    control = ControlServer(wire, names, ReceiverControl(node), inboxes, NodeControl(members))
    identity, tell = _identity(settings, time.wall()), partial(_statistics, node)
    service = MicroService(wire, identity, control.subject, control.totals, tell, inboxes)
    reading_configurations = asyncio.ensure_future(read_configurations(configurations, on_complete))
    reading_configurations.add_done_callback(reporting("the configurations could not be read"))
    try:
        await until_complete_or_alone(reading_configurations, js, names, settings.node, patience_s=patience_s)
        await node.start()
        await control.start()
        await service.start()
        yield node
    finally:
        await service.stop()
        await node.stop()
        await control.stop()
        await freshness.stop()
        await cancel_and_wait(reading_configurations)
        await configurations.stop()
        await js.stop()


async def _configurations(
    js: JetStream, names: Names, settings: Settings, keys: Callable[[], Keys]
) -> KnownConfigurations:
    """The configurations, of an installation that seals secrets if this node has keys."""
    if (key := keys().present) is not None:
        await retry_until_answered(lambda: mark_sealing(js, names, key))
    return KnownConfigurations(js, names, settings.rate, unusable=settings.profiles.problems, keys=keys)


def _identity(settings: Settings, started_at: float) -> Identity:
    return Identity(
        name=settings.prefix, id=settings.node, version=angarium.__version__, started_at=started_at
    )


def _statistics(node: Node) -> dict[str, object]:
    hosts = [shard.host for shard in node.owned.values()]
    return {
        "shards": len(hosts),
        "refused": {str(shard): why for shard, why in node.refused.items()},
        "actors": sum(len(host.actors) for host in hosts),
        "parked": sum(host.count_parked() for host in hosts),
        "in_flight": sum(host.in_flight for host in hosts),
        **msgspec.structs.asdict(node.context.routing.totals),
    }
