"""The time for which a host did not react to the request for a connection is measured, and nothing else."""

import asyncio
from ipaddress import ip_network
from typing import Any
from unittest.mock import patch

from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Failure, FailureKind, Request
from angarium.delivery.sender import is_unreached
from tests.unit.worlds.virtual_time import in_virtual_time

LOOPBACK = [ip_network("127.0.0.0/8")]


class TwoAddresses:
    """Every name has two addresses."""

    LAST = "127.0.0.2"

    async def resolve(self, host: str) -> Resolved:
        return Resolved(("127.0.0.1", self.LAST), 30.0)


def request(url: str) -> Request:
    return Request(
        receiver="a.r", target=parse_target(url), lines=(), body=b"", timeout_s=4.0, may_start=lambda: True
    )


@in_virtual_time
async def test_silence_is_counted_from_the_request_for_a_connection() -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    transport = Http1Transport(EgressPaths(Guard(allow_http=True, allow_networks=LOOPBACK)))
    with patch.object(asyncio.get_running_loop(), "create_connection", never):
        failure = await transport.post(request("http://127.0.0.1:9/"))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.unreached) == (FailureKind.TIMEOUT, True)
    assert 3.9 < failure.silent_s <= 4.0


@in_virtual_time
async def test_a_host_that_is_silent_in_tls_was_reached() -> None:
    """A tenant may enter a neighbour's plain port with https, where no answer ever comes."""
    reached = list[str]()

    async def never(*_: object, **options: Any) -> None:
        options["sock"].close()
        await asyncio.Event().wait()

    async def at_once(*_: object) -> None: ...

    transport = Http1Transport(
        EgressPaths(Guard(allow_http=True, allow_networks=LOOPBACK)),
        on_connected=lambda receiver, target, address: reached.append(address),
    )
    loop = asyncio.get_running_loop()
    with patch.object(loop, "create_connection", never), patch.object(loop, "sock_connect", at_once):
        posting = asyncio.create_task(transport.post(request("https://127.0.0.1:9/")))
        await asyncio.sleep(0.1)
        assert reached == ["127.0.0.1"]
        failure = await posting
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.unreached, failure.silent_s) == (FailureKind.TIMEOUT, False, 0.0)


@in_virtual_time
async def test_a_short_timeout_is_not_a_refusal_because_one_address_refuses() -> None:
    """A node without IPv6 gets a refusal for that address at once, and the other one needs its time."""
    guard = Guard(allow_http=True, allow_networks=LOOPBACK, resolver=TwoAddresses())

    async def connect(_: object, address: str, port: int) -> None:
        if address == TwoAddresses.LAST:
            raise OSError("Network is unreachable")
        await asyncio.Event().wait()

    transport = Http1Transport(EgressPaths(guard))
    with patch.object(asyncio.get_running_loop(), "create_connection", connect):
        failure = await transport.post(request("http://two.example/"))
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.TIMEOUT
    assert 1.9 < failure.silent_s <= 2.0
    assert not is_unreached(failure)


@in_virtual_time
async def test_a_host_refuses_if_all_its_addresses_do() -> None:
    guard = Guard(allow_http=True, allow_networks=LOOPBACK, resolver=TwoAddresses())

    async def refuse(*_: object) -> None:
        raise OSError("Connection refused")

    transport = Http1Transport(EgressPaths(guard))
    with patch.object(asyncio.get_running_loop(), "create_connection", refuse):
        failure = await transport.post(request("http://two.example/"))
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.CONNECT
    assert is_unreached(failure)
