"""Bare loops: the rate at which a client can POST to the sink without other work.

Angarium's figures are compared with them in the same run: there are as many workers as receivers, each with
one request at a time, the same number of headers, and a body of the same size.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from ipaddress import ip_network

import click
from msgspec import Struct

from angarium.delivery.connections.guard import Guard
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Request, Response

HEADERS = {
    "webhook-id": "9bf98cab-ebcd-4a51-bb53-4a46dda338a7",
    "webhook-timestamp": "1795233800",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "angarium-sequence": "0",  # The sink does not count it.
    "angarium-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "angarium-event": "bench.delivery",
    "angarium-attempt": "1",
    "content-type": "application/json",
    "user-agent": "Angarium/bench",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}

ADDED = ("accept", "accept-encoding")
"""Headers that aiohttp would send in addition."""


class Speed(Struct, frozen=True):
    """Requests a second, and CPU of this process for each, in microseconds."""

    rate: float
    cpu_us: float

    def mean(self, other: "Speed") -> "Speed":
        """The mean of two runs."""
        return Speed((self.rate + other.rate) / 2, (self.cpu_us + other.cpu_us) / 2)


Post = Callable[[], Awaitable[bool]]


async def loop(workers: int, seconds: float, post: Post) -> Speed:
    """Measures the rate of `workers` workers."""
    until = time.perf_counter() + seconds
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < until:
            if not await post():
                raise click.ClickException("the sink did not answer 200 to a bare loop")
            done += 1

    began_at, used_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(workers)))
    cpu_us = (time.process_time() - used_s) / done * 1e6
    return Speed(done / (time.perf_counter() - began_at), cpu_us)


def check() -> None:
    """Raises click.ClickException if a loop cannot run, before anything is measured."""
    if find_spec("aiohttp") is None:
        raise click.ClickException("the bench compares with aiohttp: install the extra bench (see README)")


async def aiohttp_loop(url: str, body: bytes, workers: int, seconds: float) -> Speed:
    """The speed of a plain aiohttp client."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=workers)
    async with aiohttp.ClientSession(connector=connector, skip_auto_headers=ADDED) as session:

        async def post() -> bool:
            async with session.post(url, data=body, headers=HEADERS) as answer:
                await answer.read()
                return answer.status == 200

        return await loop(workers, seconds, post)


async def http1_loop(url: str, body: bytes, workers: int, seconds: float) -> Speed:
    """The speed of our own transport, without anything around it."""
    transport = Http1Transport(
        EgressPaths(Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")]))
    )
    request = Request(
        receiver="bench.sink",
        target=parse_target(url),
        lines=tuple(f"{name}: {value}".encode() for name, value in HEADERS.items()),
        body=body,
        timeout_s=15.0,
        may_start=lambda: True,
    )

    async def post() -> bool:
        answer = await transport.post(request)
        return isinstance(answer, Response) and answer.status == 200

    try:
        return await loop(workers, seconds, post)
    finally:
        await transport.close()
