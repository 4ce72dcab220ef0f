"""The time for which a host did not react to the request for a connection is measured, and nothing else."""

import asyncio
from ipaddress import ip_network
from unittest.mock import patch

from angarium.delivery.connections.guard import Guard
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Failure, FailureKind, Request
from tests.unit.worlds.virtual_time import in_virtual_time

LOOPBACK = [ip_network("127.0.0.0/8")]


@in_virtual_time
async def test_silence_is_counted_from_the_request_for_a_connection() -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    transport = Http1Transport(EgressPaths(Guard(allow_http=True, allow_networks=LOOPBACK)))
    request = Request(
        receiver="a.r", target=parse_target("http://127.0.0.1:9/"), lines=(), body=b"", timeout_s=4.0,
        may_start=lambda: True,
    )  # fmt: skip
    with patch.object(asyncio.get_running_loop(), "create_connection", never):
        failure = await transport.post(request)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.unreached) == (FailureKind.TIMEOUT, True)
    assert 3.9 < failure.silent_s <= 4.0
