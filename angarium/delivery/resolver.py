"""Which addresses a name has, and for how long that holds.

Names are asked for by c-ares, not by the C library: `getaddrinfo` does not tell how long an answer is valid,
and it holds a thread until it has one, so that a few names whose servers are silent would hold up all others
(`docs/decisions/names-by-c-ares.md`). Servers and search domains are those of `/etc/resolv.conf`, and
`/etc/hosts` comes first.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import pycares
from msgspec import Struct

ASKED_AGAIN_S = 2.0
"""So long a server may take before the next one is asked; the same again, and longer, in later rounds."""
ROUNDS = 3


class Resolved(Struct, frozen=True):
    """All addresses of a name, in the order of preference (RFC 6724), and how long they may be believed."""

    addresses: tuple[str, ...]
    valid_s: float


class Resolver(Protocol):
    """Turns a name into its addresses, all of them. Raises OSError where that fails."""

    async def resolve(self, host: str) -> Resolved: ...


class DnsResolver:
    """Asks the servers of the system, or `servers` (`host:port`), until it is closed, or nobody holds it."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = servers
        self._channel: pycares.Channel | None = None

    async def resolve(self, host: str) -> Resolved:
        """See `Resolver`. What nobody waits for any more ends by itself, when the servers were silent."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[pycares.AddrInfoResult] = loop.create_future()

        def settle(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(OSError(pycares.errno.strerror(error)))
            elif result is not None:
                answer.set_result(result)

        def answered(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            # In a thread of c-ares; the loop may have ended meanwhile, and then nobody wants to know.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result, error)

        self._open().getaddrinfo(host, None, type=socket.SOCK_STREAM, callback=answered)
        return _resolved(await answer)

    def close(self) -> None:
        """Ask nobody any more; names that are waited for are not resolved."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _open(self) -> pycares.Channel:
        """Made with the first name: it takes a thread, which those who need none should be spared."""
        if self._channel is None:
            try:
                self._channel = pycares.Channel(
                    servers=self._servers or None, timeout=ASKED_AGAIN_S, tries=ROUNDS
                )
            except pycares.AresError as error:
                raise OSError(f"names cannot be asked for: {error}") from None
        return self._channel


def _resolved(answer: pycares.AddrInfoResult) -> Resolved:
    """An answer is valid for as long as each of its records is: those of the aliases on its way as well."""
    addresses = dict.fromkeys(_text(node.addr[0]) for node in answer.nodes)
    lifetimes = [*(node.ttl for node in answer.nodes), *(alias.ttl for alias in answer.cnames)]
    return Resolved(tuple(addresses), float(min(lifetimes, default=0)))


def _text(address: str | bytes) -> str:
    return address.decode("ascii") if isinstance(address, bytes) else address
