"""Every address vector tried on both transports, with a socket that listens on all addresses of the machine.

Run by itself (`python -m`), in a network where every address is the machine's own, it prints what came of it.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_network

import msgspec
from msgspec import Struct

from angarium.delivery.connections.connect import default_tls
from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Request, Response, Transport
from angarium.delivery.httpx_transport import HttpxTransport
from tests.contract.transport.conftest import new_transport
from tests.contract.transport.receiver import Receiver
from tests.support.addresses import NOT_PUBLIC, PUBLIC, url_host

OK = "200"
ALLOWED = {"nothing": (), "ten": ("10.0.0.0/8",), "everything": ("0.0.0.0/0", "::/0")}
PATIENCE_S = 10.0

MakeTransport = Callable[[Guard], Transport]


class Tried(Struct):
    """`outcomes`: by address, statuses and failures; `connections`: how many the listening socket saw."""

    outcomes: dict[str, list[str]]
    connections: int

    @property
    def answered(self) -> int:
        """Counts the requests that were answered."""
        return sum(outcome == OK for outcomes in self.outcomes.values() for outcome in outcomes)


class One:
    """Every name has the one address, and a public one in addition."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(self, host: str) -> Resolved:
        public = ("8.8.8.8",) if host == "two" else ()
        return Resolved((*public, self._address), 60.0)


async def tried(make: MakeTransport, addresses: Iterable[str], allowed: Iterable[str] = ()) -> Tried:
    """Posts to each address: as a name, as one of a name's two addresses, and as it stands."""
    receiver = Receiver()
    await receiver.start(host="")
    networks = [ip_network(network) for network in allowed]
    outcomes: dict[str, list[str]] = {}
    for address in addresses:
        guard = Guard(allow_http=True, allow_networks=networks, resolver=One(address))
        transport = make(guard)
        hosts = ("one", "two") if "%" in address else ("one", "two", url_host(address))
        outcomes[address] = [await _post(transport, f"http://{host}:{receiver.port}/") for host in hosts]
        await transport.close()
    await receiver.stop()
    return Tried(outcomes, receiver.connections)


async def _post(transport: Transport, url: str) -> str:
    outcome = await transport.post(
        Request(
            receiver="acme.billing",
            target=parse_target(url),
            lines=(),
            body=b"",
            timeout_s=PATIENCE_S,
            may_start=lambda: True,
        )
    )
    return str(outcome.status) if isinstance(outcome, Response) else f"{outcome.kind}: {outcome.detail}"


async def try_all() -> None:
    """Print, by transport and by what is allowed, what came of every vector."""
    tls = default_tls()
    found = {
        kind.__name__: {
            name: await tried(partial(new_transport, kind, tls=tls), NOT_PUBLIC + PUBLIC, networks)
            for name, networks in ALLOWED.items()
        }
        for kind in (Http1Transport, HttpxTransport)
    }
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    asyncio.run(try_all())
