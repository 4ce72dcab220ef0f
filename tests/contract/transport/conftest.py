"""Both transports, each on both event loops, against receivers that behave as a test wants them to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from ipaddress import ip_network
from typing import Any

import pytest
import uvloop

from angarium.delivery.connections.connect import default_tls
from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.pool import DEFAULT_LIMITS, ConnectionLimits
from angarium.delivery.connections.resolver import Resolver
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import (
    NO_PROFILES,
    Failure,
    ProfileNames,
    Request,
    Response,
    Transport,
)
from angarium.delivery.httpx_transport import HttpxTransport
from tests.contract.transport.receiver import Receiver

PATIENCE_S = 60.0
LOOPBACK = (ip_network("127.0.0.0/8"),)

Post = Callable[..., Coroutine[Any, Any, Response | Failure]]
MakeTransport = Callable[..., Transport]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test here on both loops: nodes use uvloop where there is one."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=[Http1Transport, HttpxTransport], ids=["http1", "httpx"])
def kind(request: pytest.FixtureRequest) -> type[Http1Transport | HttpxTransport]:
    chosen: type[Http1Transport | HttpxTransport] = request.param
    return chosen


@pytest.fixture(scope="session")
def system_tls() -> ssl.SSLContext:
    """Made once: it reads every authority that the system trusts."""
    return default_tls()


def new_transport(
    kind: type[Http1Transport | HttpxTransport],
    guard: Guard,
    tls: ssl.SSLContext,
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> Transport:
    """A transport of that kind without profiles of egress."""
    if issubclass(kind, Http1Transport):
        return kind(EgressPaths(guard, tls=tls), limits=limits)
    return kind(guard, tls=tls, limits=limits)


@pytest.fixture
async def make_transport(
    kind: type[Http1Transport | HttpxTransport], system_tls: ssl.SSLContext
) -> AsyncIterator[MakeTransport]:
    """Transports that may reach loopback over http, unless told otherwise; closed at the end."""
    made: list[Transport] = []

    def make(
        guard: Guard | None = None,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> Transport:
        guard = guard or Guard(allow_http=True, allow_networks=LOOPBACK, resolver=resolver)
        made.append(new_transport(kind, guard, tls or system_tls, limits))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


@pytest.fixture
async def transport(make_transport: MakeTransport) -> Transport:
    return make_transport()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
def post(transport: Transport, receiver: Receiver) -> Post:
    """POST to the receiver, with `post_to`'s options."""

    async def post(**options: Any) -> Response | Failure:
        return await post_to(transport, f"http://127.0.0.1:{receiver.port}/hook", **options)

    return post


async def post_to(
    transport: Transport,
    url: str,
    *,
    receiver: str = "acme.billing",
    headers: Sequence[tuple[bytes, bytes]] = ((b"webhook-id", b"msg_1"),),
    body: bytes = b'{"a": 1}',
    timeout_s: float = PATIENCE_S,
    may_start: Callable[[], bool] = lambda: True,
    profiles: ProfileNames = NO_PROFILES,
    method: str = "POST",
) -> Response | Failure:
    return await transport.post(
        Request(
            receiver=receiver,
            target=parse_target(url),
            lines=tuple(b": ".join(header) for header in headers),
            body=body,
            timeout_s=timeout_s,
            may_start=may_start,
            profiles=profiles,
            method=method,
        )
    )


def answered(outcome: Response | Failure) -> Response:
    assert isinstance(outcome, Response), outcome
    return outcome


def failed(outcome: Response | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    assert "\n" not in outcome.detail
    return outcome
