"""Connecting to a target, for all transports: the address is judged, then each one is tried.

Every operation ends at a deadline in the loop's time, and raises `NoAnswer`, never an error of a library.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import TypeVar

from actors.errors import AngariumError
from actors.ids import tenant_of
from angarium.delivery.connections.guard import Allowed, Blocked, Guard, SpellingGuard, Unresolved
from angarium.delivery.http_exchange.http1 import Http1Connection
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import FailureKind, one_line

ADDRESSES_MAX = 4
"""Addresses of one name that are tried in one attempt; each gets a share of the remaining time."""

_LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors that say that this machine has run out of something."""

UNREACHED = frozenset({FailureKind.RESOLVE, FailureKind.CONNECT, FailureKind.TIMEOUT})
"""Failures before a connection was opened that may be due to the network in between."""

_HASTY = frozenset({FailureKind.TIMEOUT, FailureKind.OVERLOAD})
"""Failures of an address that may have been reached with more time."""

T = TypeVar("T")


class NoAnswer(AngariumError):
    """The end of an attempt without an answer: a `Failure` except its latency.

    `silent_s`: for how long an address did not react to a request for a connection; `opened`: there was a
    connection, and TLS was not established on it.
    """

    def __init__(
        self, kind: FailureKind, detail: str, *, silent_s: float = 0.0, opened: bool = False
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.silent_s = silent_s
        self.opened = opened

    @property
    def is_unreached(self) -> bool:
        """True if no connection was opened, and the network in between may be the reason."""
        return self.kind in UNREACHED and not self.opened


def default_tls() -> ssl.SSLContext:
    """Verification against the system's authorities, TLS 1.2 or newer.

    OpenSSL's variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name other authorities. `create_default_context`
    would also write the keys of every connection to the file in `SSLKEYLOGFILE`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Certificate and name are verified.
    context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


async def allowed_addresses(
    guard: Guard | SpellingGuard, target: Target, receiver: str, deadline: float
) -> tuple[str, ...]:
    """The addresses that may be connected to; the name is resolved when it is the tenant's turn."""
    try:
        async with asyncio.timeout_at(deadline):
            verdict = await guard.check(target, tenant_of(receiver))
    except TimeoutError:
        raise NoAnswer(FailureKind.TIMEOUT, f"{target.host} was not resolved in time") from None
    match verdict:
        case Allowed():
            return verdict.addresses
        case Blocked():
            raise NoAnswer(FailureKind.BLOCKED, verdict.detail)
        case Unresolved():
            raise NoAnswer(FailureKind.RESOLVE, verdict.detail)


async def first_reached(
    addresses: tuple[str, ...], deadline: float, connect: Callable[[str, float], Awaitable[T]]
) -> T:
    """Try one address after the other; returns the result of `connect` for the first that answered."""
    addresses = addresses[:ADDRESSES_MAX]
    failures = list[NoAnswer]()
    for i, address in enumerate(addresses):
        now = asyncio.get_running_loop().time()
        try:
            return await connect(address, now + (deadline - now) / (len(addresses) - i))
        except NoAnswer as why:
            failures.append(why)
    raise _least_certain(failures)


def _least_certain(failures: list[NoAnswer]) -> NoAnswer:
    """The failure of all addresses: the last one, unless another address had too little time for an answer.

    So a short timeout does not look like a host that refuses, only because one of its addresses does.
    """
    last = failures[-1]
    hasty = [each for each in failures if each.kind in _HASTY]
    if last.kind is not FailureKind.CONNECT and last.kind not in _HASTY:
        return last
    return min(hasty, key=attrgetter("silent_s"), default=last)


async def within_deadline(opening: Awaitable[T], where: str, *, secure: bool, deadline: float) -> T:
    """Open a connection, or begin TLS on an open one (`secure`), until the deadline.

    `where` names the address for people. Raises NoAnswer.
    """
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    try:
        async with asyncio.timeout_at(deadline):
            return await opening
    except TimeoutError:
        silent_s = 0.0 if secure else loop.time() - begun_at
        detail = f"not connected to {where} in time"
        raise NoAnswer(FailureKind.TIMEOUT, detail, silent_s=silent_s, opened=secure) from None
    except OSError as error:
        raise NoAnswer(_stage(error, secure), one_line(f"{where}: {error}")) from None


async def connect_directly(
    connection: Http1Connection,
    target: Target,
    address: str,
    tls: ssl.SSLContext,
    deadline: float,
    *,
    on_open: Callable[[], None] = lambda: None,
) -> None:
    """Connect to an address of the target, with TLS for the target's name if its URL says so.

    `on_open` is called with the open connection, before TLS: a host may not be called unreached because of
    what one receiver sends there.
    """
    loop, where = asyncio.get_running_loop(), f"{address} port {target.port}"
    if target.scheme != "https":
        opening = loop.create_connection(lambda: connection, address, target.port)
        await within_deadline(opening, where, secure=False, deadline=deadline)
        on_open()
        return
    opened = await within_deadline(_opened(address, target.port), where, secure=False, deadline=deadline)
    on_open()
    securing = loop.create_connection(lambda: connection, sock=opened, ssl=tls, server_hostname=target.host)
    await within_deadline(securing, where, secure=True, deadline=deadline)


async def _opened(address: str, port: int) -> socket.socket:
    """A socket that is connected to this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, (address, port))
    except BaseException:
        opened.close()
        raise
    return opened


def is_local(error: OSError) -> bool:
    """True if this machine has run out of something, and the peer has no part in it."""
    return error.errno in _LOCAL_ERRORS


def _stage(error: OSError, secure: bool) -> FailureKind:
    """The stage that failed; a peer that hangs up while connecting over TLS did so in the handshake."""
    if is_local(error):
        return FailureKind.OVERLOAD
    hung_up = isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
    if isinstance(error, ssl.SSLError) or (secure and hung_up):
        return FailureKind.TLS
    return FailureKind.CONNECT
