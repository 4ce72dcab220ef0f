"""Bare loops: what a client can POST to the sink when there is nothing else to do.

They are the measure for Angarium's figures, taken in the same run: as many workers as there are receivers,
each with one request at a time, the same number of headers, a body of the same size.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import click

from angarium.delivery.guard import Guard
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.target import parse_target
from angarium.delivery.transport import Request, Response

HEADERS = {
    "webhook-id": "9bf98cab-ebcd-4a51-bb53-4a46dda338a7",
    "webhook-timestamp": "1795233800",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "angarium-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "angarium-event": "bench.delivery",
    "angarium-attempt": "1",
    "content-type": "application/json",
    "user-agent": "Angarium/bench",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}

Post = Callable[[], Awaitable[bool]]


async def loop(workers: int, seconds: float, post: Post) -> float:
    """Requests a second of so many workers."""
    until = time.perf_counter() + seconds
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < until:
            if not await post():
                raise click.ClickException("the sink did not answer 200 to a bare loop")
            done += 1

    began_at = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    return done / (time.perf_counter() - began_at)


async def aiohttp_loop(url: str, body: bytes, workers: int, seconds: float) -> float:
    """Requests a second of a plain aiohttp client. Raises click.ClickException where it is not installed."""
    try:
        import aiohttp
    except ImportError:
        raise click.ClickException(
            "the bench compares with aiohttp: pip install 'angarium[dev]'"
        ) from None
    connector = aiohttp.TCPConnector(limit=workers)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post() -> bool:
            async with session.post(url, data=body, headers=HEADERS) as answer:
                await answer.read()
                return answer.status == 200

        return await loop(workers, seconds, post)


async def http1_loop(url: str, body: bytes, workers: int, seconds: float) -> float:
    """Requests a second of our own transport, without anything around it."""
    from ipaddress import ip_network

    transport = Http1Transport(Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")]))
    request = Request(
        target=parse_target(url),
        headers=tuple((name.encode(), value.encode()) for name, value in HEADERS.items()),
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
