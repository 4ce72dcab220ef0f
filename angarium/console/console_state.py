"""The state of the console in one process: its sessions, and what it read a moment ago."""

from collections.abc import Awaitable, Callable

from litestar.di import NamedDependency

from angarium.access import Access
from angarium.api.admission.request_rates import RequestRates
from angarium.api.api_state import ApiState
from angarium.api.problems import result_of
from angarium.api.queries.journeys import AskedEvent
from angarium.api.recent_findings import FindingsAndAlerts
from angarium.api.requests.request_limits import RequestLimits
from angarium.console.cached_values import CachedValues
from angarium.console.event_traces import EventTraces, event_traces
from angarium.console.recent_minutes import HourByMinute, RecentMinutes
from angarium.console.sessions import ConsoleSession, ConsoleSessions
from angarium.operations.installation import fleet
from angarium.operations.installation.doctor.raised_alerts import TenantAlerts, tenant_alerts
from angarium.operations.installation.fleet import FleetStatus, ShardStatus
from angarium.operations.receiver_list.listing import ListedReceiver, overview
from angarium.operations.receiver_list.top import Top, TopScreen
from streams.buckets.api_tokens import ALL_TENANTS

CONSOLE = "angarium_console"
"""The member of a request's state."""
WORST_MAX = 25
"""Receivers of an overview."""
SESSION_STREAMS_MAX = 4
"""Live streams of a session: a browser has six connections for a host, and its pages need some."""


class ConsoleState:
    """The console over the state of a process of the API.

    - `sign_ins`: the rate at which each address may try wrong tokens.
    - `page_rates`: the rate at which a session, or an address without one, may ask for pages.
    - `form_limits`: forms that are being read, by tenant, or by address before there is a session.
    - `overviews`: the totals of a tenant, or of all, and the receivers whose events wait longest.
    - `hours`: the last hour of a tenant, or of all, by minute.
    - `alerts`: those about a tenant's receivers.
    - `rows`: the receivers of a page of the list, by name.
    - `traces`: where an event still waits, and its dead letters.
    """

    def __init__(self, api: ApiState) -> None:
        self.api = api
        self.sessions = ConsoleSessions(api.valid, lambda: api.is_ready)
        self.sign_ins = RequestRates()
        self.page_rates = RequestRates()
        self.form_limits = RequestLimits()
        self.overviews: CachedValues[str, TopScreen] = CachedValues(self._overview_reader)
        self.hours: CachedValues[str, HourByMinute] = CachedValues(self._hours_reader)
        self.alerts: CachedValues[str, TenantAlerts] = CachedValues(self._alerts_reader)
        self.nodes: CachedValues[str, FleetStatus] = CachedValues(lambda _: self._nodes)
        self.shards: CachedValues[str, list[ShardStatus]] = CachedValues(lambda _: self._shards)
        self.rows: CachedValues[tuple[str, ...], dict[str, ListedReceiver]] = CachedValues(self._rows_reader)
        self.traces: CachedValues[AskedEvent, EventTraces] = CachedValues(
            lambda asked: lambda: event_traces(api, asked)
        )
        self.findings: CachedValues[str, FindingsAndAlerts] = CachedValues(lambda _: api.recent_findings.get)

    @property
    def access(self) -> Access:
        """Access for reading; what changes something is done in the name of a token."""
        return self.api.access

    def close(self) -> None:
        """End what is being read."""
        for each in (self.overviews, self.hours, self.alerts, self.nodes, self.shards, self.findings):
            each.stop()
        self.rows.stop()
        self.traces.stop()

    def _overview_reader(self, tenant: str) -> Callable[[], Awaitable[TopScreen]]:
        about = None if tenant == ALL_TENANTS else tenant
        top = Top(self.access, about, WORST_MAX, self.api.recent_counts)

        async def read() -> TopScreen:
            return result_of(await top.refresh())

        return read

    def _hours_reader(self, tenant: str) -> Callable[[], Awaitable[HourByMinute]]:
        return RecentMinutes(self.api, tenant).read

    def _alerts_reader(self, tenant: str) -> Callable[[], Awaitable[TenantAlerts]]:
        async def read() -> TenantAlerts:
            return result_of(await tenant_alerts(self.access, tenant))

        return read

    def _rows_reader(self, names: tuple[str, ...]) -> Callable[[], Awaitable[dict[str, ListedReceiver]]]:
        async def read() -> dict[str, ListedReceiver]:
            found = result_of(
                await overview(self.access, None, only=names, recent_counts=self.api.recent_counts)
            )
            return {each.receiver: each for each in found.rows}

        return read

    async def _nodes(self) -> FleetStatus:
        return result_of(await fleet.nodes(self.access))

    async def _shards(self) -> list[ShardStatus]:
        return result_of(await fleet.shards(self.access))


InjectedConsole = NamedDependency[ConsoleState]
InjectedSession = NamedDependency[ConsoleSession]
"""The types of the arguments `console` and `session` of a page."""
