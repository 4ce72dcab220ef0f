"""The state of one process of the API: its connection to NATS, and what it follows there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from litestar.di import NamedDependency
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.subscriptions import Subscriptions
from angarium.access import Access, key_file, open_jetstream
from angarium.api.admission.change_rate import ChangeRate
from angarium.api.admission.gate import is_expired
from angarium.api.admission.request_rates import RequestRates
from angarium.api.admission.token_uses import TokenUses
from angarium.api.admission.unfinished_erasures import UnfinishedErasures
from angarium.api.background.jobs import Jobs
from angarium.api.background.spaced_work import SpacedWork
from angarium.api.background.tail_streams import Tails
from angarium.api.receiver_names import ReceiverNames
from angarium.api.recent_findings import RecentFindings
from angarium.api.request_metrics import RequestTotals
from angarium.api.requests.request_limits import RequestLimits
from angarium.file_value import reload_when_changed
from angarium.operations.receiver_list.throughput import RecentCounts
from angarium.rate_limited_log import RateLimitedLog
from angarium.settings import Settings
from streams.buckets.api_tokens import Token, TokenStore
from streams.buckets.known_configurations import KnownConfigurations, subscriptions_of
from streams.erasing.erasures import Erasures
from streams.journal_feed.recent_flushes import RecentFlushes
from streams.nats.errors import ApiError
from streams.nats.wire_names import STREAM_NOT_FOUND
from streams.tasks import reporting

STALE_AFTER_S = 10.0
"""A process that has had no news about revocations for so long refuses all tokens."""
LEADER_TIMEOUT_S = 1.0
"""Time limit for asking the leader of the configurations; the answer is more exact with it."""
CONTROL_REQUESTS_MAX = 64
"""Requests to the owners of receivers in flight at a time; a ping may take a minute."""
LETTER_READS_MAX = 16
"""Requests that read dead letters at a time; NATS sends each up to a MiB or a whole letter at once."""
REDRIVE_PAUSE_S = 0.3
"""Pause after each redrive of a request: all redrives of an installation share one lock, and other processes
look every 0.25 s whether it is free."""
QUERIES_MAX = 16
"""Ledger queries at a time; for SQLite, each reads in a thread of its own."""
AUDITS_MAX = 4
"""Audits at a time, one of a tenant: each works up to a second, in a thread, and rests as long."""
RECENT_COUNTS_EVERY_S = 1.0
"""Age up to which the figures of the last seconds are not read again: all requests share them."""
EVENT_SEARCHES_MAX = 16
"""Searches of the streams for an event at a time; each holds a few pages of messages."""

log = logging.getLogger(__name__)


class ApiState:
    """The state of one process, created by `open_api_state`.

    - `recent_counts`: what happened to each receiver in the last seconds, read once for all requests.
    """

    def __init__(self, access: Access) -> None:
        self.changes = ChangeRate()
        self.access = replace(access, admit_change=self.changes.admit)
        self.requests = RequestTotals()
        self.tokens = TokenStore(access.js, access.names)
        self.token_uses = TokenUses(self.tokens)
        self.rates = RequestRates()
        self.erasure_rates = RequestRates()
        self.erasures = UnfinishedErasures(Erasures(access.js, access.names))
        self.limits = RequestLimits()
        self.control_limits = RequestLimits(CONTROL_REQUESTS_MAX)
        self.letter_limits = RequestLimits(LETTER_READS_MAX)
        self.query_limits = RequestLimits(QUERIES_MAX)
        self.audit_limits = RequestLimits(AUDITS_MAX)
        self.search_limits = RequestLimits(EVENT_SEARCHES_MAX)
        self.recent_findings = RecentFindings(access)
        self.recent_counts = RecentCounts(
            RecentFlushes(access.js, access.names), kept_for_s=RECENT_COUNTS_EVERY_S
        )
        self.no_ledger = RateLimitedLog(log, "api.no_ledger")
        self.tails = Tails(access, self.valid)
        self.redrive_turns = SpacedWork(REDRIVE_PAUSE_S)
        self.jobs = Jobs(access)
        self.on_close: list[Callable[[], None]] = []
        self._configurations = KnownConfigurations(access.js, access.names, logs=False)
        self._subscriptions: Subscriptions = subscriptions_of(self._configurations)
        self.names = ReceiverNames(self._configurations.is_known)
        self._configurations.on_change(self.names.note)

    async def start(self) -> None:
        """Return when all tokens and configurations are known. Raises `ApiError`."""
        names = self.access.names
        for stream in (names.tokens, names.receivers):
            if await self.access.js.stream_info(stream) is None:
                raise ApiError(STREAM_NOT_FOUND, f"there is no {stream}: run angarium setup")
        await self.tokens.start()
        await self._configurations.start()
        self.names.in_order()  # Sorting all of them takes a while, which no request should wait for.
        self.jobs.start()

    async def stop(self) -> None:
        await self.jobs.stop()
        await self._configurations.stop()
        await self.tokens.stop()

    def close(self) -> None:
        """End what would keep the process from stopping; `on_close` has what others have to end."""
        for each in self.on_close:
            each()
        self.tails.stop()
        self.jobs.halt()

    @property
    def is_ready(self) -> bool:
        """True if NATS is reachable, and every revocation older than a few seconds is known."""
        return self.access.js.wire.is_connected and not self._is_stale

    @property
    def _is_stale(self) -> bool:
        return asyncio.get_running_loop().time() - self.tokens.read_at >= STALE_AFTER_S

    def valid(self, token: str) -> Token | None:
        """The token of that id, if it is neither revoked nor expired, as far as that is known."""
        found = None if self._is_stale else self.tokens.get(token)
        return None if found is None or is_expired(found) else found

    async def has(self, receiver: str) -> bool:
        """True if the receiver exists; before the answer is no, the leader is asked.

        Raises `Unavailable`.
        """
        if self._configurations.is_known(receiver):
            return True
        async with asyncio.timeout(LEADER_TIMEOUT_S):
            await self._configurations.confirm(receiver)
        return self._configurations.is_known(receiver)

    async def matched(self, tenant: str, event_type: str) -> int | None:
        """The number of receivers that subscribe; None if none is known and the leader cannot be asked."""
        found = len(self._subscriptions.match(tenant, event_type))
        if not found:
            try:
                async with asyncio.timeout(LEADER_TIMEOUT_S):
                    await self._configurations.catch_up()
            except (TimeoutError, Unavailable):
                return None
            found = len(self._subscriptions.match(tenant, event_type))
        return found


@asynccontextmanager
async def open_api_state(settings: Settings, second: bool = False) -> AsyncIterator[ApiState]:
    """The state of a process, over a connection of its own.

    Raises `ConnectError`, `ApiError` and `UnusableSetting`.
    """
    sealing = key_file(settings)
    async with open_jetstream(settings, second) as js:
        api = ApiState(Access(js, settings, keys=lambda: sealing.value))
        # Each request opens what it reads, so nothing has to be done after a change.
        watching_keys = asyncio.ensure_future(reload_when_changed((sealing,), lambda: None))
        watching_keys.add_done_callback(reporting("the key file is no longer read again"))
        try:
            await api.start()
            yield api
        finally:
            watching_keys.cancel()
            await api.stop()


InjectedApi = NamedDependency[ApiState]
InjectedAccess = NamedDependency[Access]
"""The types of the route arguments `api` and `access`."""
