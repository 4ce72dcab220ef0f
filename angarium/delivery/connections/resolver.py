"""Resolves names: their addresses, and how long these are valid.

Names are resolved by c-ares, not by the C library: `getaddrinfo` does not say how long an answer is valid,
and it blocks a thread until it has one, so that a few names with silent servers would hold up all others
(`docs/decisions/dns-by-c-ares.md`). Servers and search domains are those of `/etc/resolv.conf`, and
`/etc/hosts` comes first.

An answer is one datagram. A longer one is not requested over TCP: c-ares builds and sorts all addresses that
it gets, 4,000 of them in 0.1 s, and handles no other query meanwhile.
"""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import pycares
from msgspec import Struct

ASKED_AGAIN_S = 2.0
"""Time that a server may take before the next one is asked; later rounds take as long or longer."""
ROUNDS_MAX = 3
CUT_NOTE = "an answer that does not fit in one datagram is not read"
"""Note for a name without an address: the datagram may not have had room for one."""

ADDRESSES_MAX = 64
"""Addresses of a name that are checked; one more is returned, to show that there are too many."""


class Resolved(Struct, frozen=True):
    """All addresses of a name, in the order of preference (RFC 6724), and how long they are valid.

    If there are more than ADDRESSES_MAX, it has one more than that.
    """

    addresses: tuple[str, ...]
    valid_s: float


class Resolver(Protocol):
    """Turns a name into its addresses, all of them. Raises OSError if that fails."""

    async def resolve(self, host: str) -> Resolved: ...


class DnsResolver:
    """Asks the servers of the system, or `servers` (`host:port`), until it is closed or unreferenced."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = servers
        self._channel: pycares.Channel | None = None
        # c-ares holds a lock while it parses an answer, and callers wait for it; so the event loop never
        # calls it. The thread for it is created with the first name.
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="names")

    async def resolve(self, host: str) -> Resolved:
        """See `Resolver`. A question that is no longer awaited ends by itself if the servers are silent."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Resolved] = loop.create_future()

        def settle(result: Resolved | None, error: int | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(OSError(_sentence(error)))
            elif result is not None:
                answer.set_result(result)

        def answered(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            # This runs in a thread of c-ares, which parses the answer, however long it is. The loop may have
            # ended meanwhile, and then the answer is not needed.
            resolved = None if result is None else _resolved(result)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, resolved, error)

        def ask() -> None:
            self._open().getaddrinfo(host, None, type=socket.SOCK_STREAM, callback=answered)

        try:
            asking = loop.run_in_executor(self._asker, ask)
        except RuntimeError:
            raise OSError("the resolver is closed") from None
        await asking
        return await answer

    def close(self) -> None:
        """Send no more questions; names that are awaited stay unresolved."""
        with suppress(RuntimeError):  # The channel was closed before.
            self._asker.submit(self._close)
        self._asker.shutdown(wait=False)

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _open(self) -> pycares.Channel:
        """The resolver, made with the first name, since it takes a thread."""
        if self._channel is None:
            try:
                self._channel = pycares.Channel(
                    servers=self._servers or None,
                    timeout=ASKED_AGAIN_S,
                    tries=ROUNDS_MAX,
                    flags=pycares.ARES_FLAG_EDNS | pycares.ARES_FLAG_IGNTC,
                )
            except pycares.AresError as error:
                raise OSError(f"names cannot be resolved: {error}") from None
        return self._channel


def _resolved(answer: pycares.AddrInfoResult) -> Resolved:
    """The validity of an answer: the shortest of all its records, including aliases."""
    addresses: dict[str, None] = {}
    for node in answer.nodes:
        addresses[_text(node.addr[0])] = None
        if len(addresses) > ADDRESSES_MAX:
            break
    lifetimes = [*(node.ttl for node in answer.nodes), *(alias.ttl for alias in answer.cnames)]
    return Resolved(tuple(addresses), float(min(lifetimes, default=0)))


def _text(address: str | bytes) -> str:
    return address.decode("ascii") if isinstance(address, bytes) else address


def _sentence(error: int) -> str:
    text = _text(pycares.errno.strerror(error))
    return f"{text} ({CUT_NOTE})" if error == pycares.errno.ARES_ENODATA else text
