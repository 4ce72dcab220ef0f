"""The default transport: our own HTTP/1.1, from the judged address to the answer.

The hot path through `post` is short: a cached verdict, a kept connection, one write, one future, one timer.
Everything else (resolving, waiting for room, connecting, TLS) happens in `_open`, under the same deadline. A
receiver that took long the last time first waits for its turn in the slow lane.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from angarium.delivery.connections.connect import (
    NoAnswer,
    allowed_addresses,
    connect_directly,
    first_reached,
)
from angarium.delivery.connections.guard import Allowed
from angarium.delivery.connections.pool import DEFAULT_LIMITS, ConnectionLimits, Key, Pool
from angarium.delivery.connections.slow_lane import SLOW_EXCHANGE_S, SlowLane
from angarium.delivery.connections.tenant_budgets import BudgetTurn, TenantBudgets
from angarium.delivery.egress.paths import EgressPath, EgressPaths
from angarium.delivery.http_exchange.http1 import Http1Connection
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import (
    NO_PROFILES,
    Failure,
    FailureKind,
    Request,
    Response,
    request_head,
)

Dial = Callable[[Http1Connection, Target, str, ssl.SSLContext, float], Awaitable[None]]
"""Connects to an address of a target until a deadline; raises NoAnswer."""

OnConnected = Callable[[str, Target, str], None]
"""Takes the receiver, its target, and the address that was connected to."""

_NO_ROOM = "no connection became free in time"
_OVER_BUDGET = "its tenant has as many attempts under way as it may (setting attempts_max)"


class Http1Transport:
    """A `Transport`, to be created while the event loop runs, since it belongs to that loop.

    `on_connected`: called with each connection that was opened without a proxy, before TLS. `budgets`: those
    of tenants; None if no tenant has one.
    """

    def __init__(
        self,
        paths: EgressPaths,
        *,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        on_connected: OnConnected = lambda receiver, target, address: None,
        budgets: TenantBudgets | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._paths = paths
        self._direct = paths.direct
        self._pool = Pool(limits)
        self._slow_lane = SlowLane(limits)
        self._on_connected = on_connected
        self._budgets = budgets

    def post(self, request: Request) -> Coroutine[Any, Any, Response | Failure]:
        """See `Transport`."""
        if self._budgets is not None and (turn := self._budgets.turn(request.receiver)) is not None:
            return self._post_within_budget(request, turn)
        slow = self._slow_lane.has(request.receiver, request.target)
        return self._post_in_turn(request, self._loop.time()) if slow else self._post(request)

    def proxy_connections(self) -> dict[str, int]:
        """Connections through each proxy, by its name, that are open or being opened."""
        found = dict.fromkeys(self._paths.proxies, 0)
        for key, count in self._pool.open_by_path.items():
            if key.proxy is not None:
                found[key.proxy] += count
        return found

    async def close(self) -> None:
        """See `Transport`."""
        await self._pool.close()

    async def _post_within_budget(self, request: Request, turn: BudgetTurn) -> Response | Failure:
        started_at = self._loop.time()
        with turn:
            if not await turn.begin(started_at + request.timeout_s):
                latency_s = self._loop.time() - started_at
                return Failure(kind=FailureKind.OVERLOAD, detail=_OVER_BUDGET, latency_s=latency_s)
            # The receiver has all its time, and its latency is its own, however long the budget took.
            began_at = self._loop.time()
            if self._slow_lane.has(request.receiver, request.target):
                return await self._post_in_turn(request, began_at)
            return await self._post(request, began_at)

    async def _post_in_turn(self, request: Request, started_at: float) -> Response | Failure:
        with self._slow_lane.turn(request.target, request.receiver) as turn:
            if await turn.begin(started_at + request.timeout_s):
                return await self._post(request, started_at)
            latency_s = self._loop.time() - started_at
            return Failure(kind=FailureKind.OVERLOAD, detail=_NO_ROOM, latency_s=latency_s)

    async def _post(self, request: Request, started_at: float | None = None) -> Response | Failure:
        started_at = self._loop.time() if started_at is None else started_at
        deadline = started_at + request.timeout_s
        wire = request_head(request) + request.body
        egress = self._direct if request.profiles is NO_PROFILES else self._paths.path_for(request.profiles)
        connection, fresh = self._kept(request, egress), False
        while True:
            try:
                if connection is None:
                    connection = await self._open(request, egress, deadline, fresh=fresh)
            except NoAnswer as why:
                if why.kind is FailureKind.TIMEOUT:
                    self._slow_lane.learn(request.receiver, request.target, slow=True)
                return Failure(
                    kind=why.kind, detail=why.detail, latency_s=self._loop.time() - started_at,
                    unreached=why.is_unreached, silent_s=why.silent_s,
                )  # fmt: skip
            begun_at = self._loop.time()
            try:
                outcome = await connection.start(wire, request.may_start, started_at, deadline)
            except BaseException:
                connection.abort()
                raise
            slow = self._loop.time() - begun_at >= SLOW_EXCHANGE_S or (
                isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
            )
            self._slow_lane.learn(request.receiver, request.target, slow=slow)
            if not (connection.unanswered and connection.was_idle):
                return outcome
            connection, fresh = None, True

    def _kept(self, request: Request, egress: EgressPath) -> Http1Connection | None:
        """A connection kept for this receiver and path, to an address that is allowed now."""
        verdict = egress.guard.known_verdict(request.target, self._loop.time())
        if isinstance(verdict, Allowed):
            for address in verdict.addresses:
                connection = self._pool.take(_key(request, egress, address))
                if connection is not None:
                    return connection
        return None

    async def _open(
        self, request: Request, egress: EgressPath, deadline: float, *, fresh: bool
    ) -> Http1Connection:
        """A connection to the first address that can be reached; raises NoAnswer."""
        addresses = await allowed_addresses(egress.guard, request.target, request.receiver, deadline)
        if egress.proxy is None:
            connect = partial(self._connect, request, egress, None, fresh)
            return await first_reached(addresses, deadline, connect)
        with egress.proxy.turn(request.receiver) as turn:
            await turn.begin(deadline)

            async def connect_through(address: str, until: float) -> Http1Connection:
                # The turn has ended if a tunnel to an earlier address was opened, and TLS failed in it.
                await turn.begin(until)
                return await self._connect(request, egress, turn.connect, fresh, address, until)

            return await first_reached(addresses, deadline, connect_through)

    async def _connect(
        self, request: Request, egress: EgressPath, dial: Dial | None, fresh: bool, address: str, until: float
    ) -> Http1Connection:
        """A connection to this address, kept or new, by `dial` or directly; raises NoAnswer."""
        key = _key(request, egress, address)
        if dial is None:
            on_open = partial(self._on_connected, request.receiver, request.target, address)
            dial = partial(connect_directly, on_open=on_open)
        try:
            async with asyncio.timeout_at(until):
                reused = await self._pool.wait_for_room(key, fresh=fresh)
                if reused is not None:
                    return reused
                reserved = await self._pool.reserve(key)
        except TimeoutError:
            raise NoAnswer(FailureKind.OVERLOAD, _NO_ROOM) from None
        return await self._pool.connect(
            key, reserved, lambda connection: dial(connection, request.target, address, egress.tls, until)
        )


def _key(request: Request, egress: EgressPath, address: str) -> Key:
    target = request.target
    return Key(request.receiver, target.scheme, target.host, target.port, address, egress.key)
