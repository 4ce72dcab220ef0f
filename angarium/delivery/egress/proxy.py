"""One of the operator's proxies: connects to receivers through it, by CONNECT.

A failure before the tunnel is open counts as the proxy's (`PROXY`), never as the receiver's. That is also so
if the proxy could not reach the receiver: its answer does not say reliably whose fault that was.

The number of attempts that ask the proxy for a tunnel is limited, with turns between tenants, and one tenant
gets half of them. So a proxy that hangs takes few of the node's connections, and a tenant whose receivers it
does not reach leaves it to others. Receivers that hang in a tunnel hold none of these turns.
"""

import asyncio
import os
import ssl
from typing import Self

from actors.ids import tenant_of
from angarium.delivery.connections.connect import NoAnswer, first_reached, is_local, within_deadline
from angarium.delivery.connections.fair_slots import FairSlots, SlotTurn
from angarium.delivery.connections.guard import Allowed, Blocked, Guard, Unresolved
from angarium.delivery.egress.tunnel import Tunnel, connect_head
from angarium.delivery.http_exchange.http1 import Http1Connection
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import FailureKind
from angarium.file_value import FileValue

TUNNEL_REQUESTS_MAX = 256
"""Attempts that may wait for one proxy to open a tunnel."""


class Proxy:
    """A proxy. `target` is where it listens; `guard` resolves that name, and allows any address.

    `authorization` is the header by which it knows us, or empty; `tls` the context for a proxy over TLS.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        guard: Guard,
        authorization: FileValue[bytes],
        tls: FileValue[ssl.SSLContext],
    ) -> None:
        self._name = name
        self._target = target
        self._guard = guard
        self._authorization = authorization
        self._tls = tls
        self._turns = FairSlots(TUNNEL_REQUESTS_MAX, TUNNEL_REQUESTS_MAX // 2)

    @property
    def version(self) -> int:
        """A number that grows when a new connection to the proxy would use another password or context."""
        return self._authorization.version + self._tls.version

    def turn(self, receiver: str) -> "ProxyTurn":
        """The turn of an attempt to ask for a tunnel."""
        return ProxyTurn(self, self._turns.turn(tenant_of(receiver), receiver))

    async def open_tunnel(self, address: str, port: int, deadline: float) -> Tunnel:
        """A tunnel to this address; raises NoAnswer."""
        authority = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._addresses()
        except TimeoutError:
            raise self.failure("its name was not resolved in time") from None
        tunnel = await first_reached(addresses, deadline, self._connect_to_proxy)
        try:
            async with asyncio.timeout_at(deadline):
                refused = await tunnel.ask(connect_head(authority, self._authorization.value))
        except TimeoutError:
            tunnel.abort()
            raise self.failure("did not answer in time") from None
        except BaseException:
            tunnel.abort()
            raise
        if refused is not None:
            tunnel.abort()
            raise self.failure(refused.why)
        return tunnel

    async def _addresses(self) -> tuple[str, ...]:
        verdict = await self._guard.check(self._target)
        match verdict:
            case Allowed(addresses):
                return addresses
            case Blocked(rule):
                raise self.failure(f"its address is refused ({rule})")
            case Unresolved():
                raise self.failure("its name was not resolved")

    async def _connect_to_proxy(self, address: str, deadline: float) -> Tunnel:
        """A connection to the proxy at one of its addresses."""
        secure = self._target.scheme == "https"
        tls, name = (self._tls.value, self._target.host) if secure else (None, None)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline):
                _, tunnel = await loop.create_connection(
                    Tunnel, address, self._target.port, ssl=tls, server_hostname=name
                )
        except TimeoutError:
            raise self.failure("was not reached in time") from None
        except OSError as error:
            if is_local(error):
                raise NoAnswer(FailureKind.OVERLOAD, os.strerror(error.errno or 0)) from None
            raise self.failure(_why(error)) from None
        return tunnel

    def failure(self, why: str) -> NoAnswer:
        """The end of an attempt; neither the proxy's address nor our user is in it, since tenants see it."""
        return NoAnswer(FailureKind.PROXY, f"proxy {self._name}: {why}")


class ProxyTurn:
    """The turn of one attempt at a proxy; it ends when a tunnel is open, or with the `with` block."""

    __slots__ = ("_proxy", "_turn")

    def __init__(self, proxy: Proxy, turn: SlotTurn) -> None:
        self._proxy = proxy
        self._turn = turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.end()

    async def begin(self, deadline: float) -> None:
        """Wait for the turn, unless it has begun; raises NoAnswer."""
        if not await self._turn.begin(deadline):
            raise self._proxy.failure("too many attempts wait for its answer")

    async def connect(
        self,
        connection: Http1Connection,
        target: Target,
        address: str,
        tls: ssl.SSLContext,
        deadline: float,
    ) -> None:
        """Connect through the proxy to an address of the target, as `connect_directly` does without it."""
        secure = target.scheme == "https"
        tunnel = await self._proxy.open_tunnel(address, target.port, deadline)
        # From here on, it is the receiver that may take long.
        self._turn.end()
        try:
            entering = _enter(tunnel, connection, target, tls if secure else None)
            await within_deadline(entering, f"{address} port {target.port}", secure=secure, deadline=deadline)
        except BaseException:
            tunnel.abort()
            raise


async def _enter(
    tunnel: Tunnel, connection: Http1Connection, target: Target, tls: ssl.SSLContext | None
) -> None:
    """Give the tunnel to the connection, over TLS if there is a context for it."""
    transport = tunnel.hand_over()
    if tls is None:
        transport.set_protocol(connection)
        connection.connection_made(transport)
        return
    loop = asyncio.get_running_loop()
    secured = await loop.start_tls(transport, connection, tls, server_hostname=target.host)
    if secured is None:
        raise ConnectionResetError
    connection.connection_made(secured)


def _why(error: OSError) -> str:
    """The reason why the proxy was not reached, without its address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "closed the connection at once"
    return f"was not reached ({os.strerror(error.errno)})" if error.errno else "was not reached"
