"""Connecting to a target, for all transports: the address is judged, then each one is tried.

Every operation ends at a deadline in the loop's time, and raises `NoAnswer`, never an error of a library.
"""

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable
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

T = TypeVar("T")


class NoAnswer(AngariumError):
    """The end of an attempt without an answer: a `Failure` except its latency.

    `silent_s`: for how long an address did not react to a request for a connection.
    """

    def __init__(self, kind: FailureKind, detail: str, silent_s: float = 0.0) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.silent_s = silent_s


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
    for i, address in enumerate(addresses):
        now = asyncio.get_running_loop().time()
        try:
            return await connect(address, now + (deadline - now) / (len(addresses) - i))
        except NoAnswer as why:
            failure = why
    raise failure


async def within_deadline(opening: Awaitable[T], where: str, *, secure: bool, deadline: float) -> T:
    """Open a connection; `where` names the address for people. Raises NoAnswer."""
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    try:
        async with asyncio.timeout_at(deadline):
            return await opening
    except TimeoutError:
        detail = f"not connected to {where} in time"
        raise NoAnswer(FailureKind.TIMEOUT, detail, silent_s=loop.time() - begun_at) from None
    except OSError as error:
        raise NoAnswer(_stage(error, secure), one_line(f"{where}: {error}")) from None


async def connect_directly(
    connection: Http1Connection, target: Target, address: str, tls: ssl.SSLContext, deadline: float
) -> None:
    """Connect to an address of the target, with TLS for the target's name if its URL says so."""
    secure = target.scheme == "https"
    context, name = (tls, target.host) if secure else (None, None)
    opening = asyncio.get_running_loop().create_connection(
        lambda: connection, address, target.port, ssl=context, server_hostname=name
    )
    await within_deadline(opening, f"{address} port {target.port}", secure=secure, deadline=deadline)


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
