"""The client: requests over raw sockets, as cheap as Python can, so that only the server is measured.

It reads orders from its standard input, a line of JSON each, and prints the result of each in a line. Each
connection has one request at a time, and sends the next one when it is answered; with a rate, the requests
come at that rate.
"""

import asyncio
import sys
import time
from itertools import cycle
from typing import cast

import msgspec
from msgspec import Struct

from angarium.bench.measuring.usage import usage

WARM_UP_S = 0.3
"""Time before the counting begins."""
LATE_MAX_S = 5.0
"""Time for the last answers."""


class Order(Struct, frozen=True, kw_only=True):
    """Requests to make: `heads` in turn, each with the same body.

    With a `rate`, there are `rate` a second, and a body begins with the time at which its request was due.
    The CPU of the processes in `watch` is measured meanwhile.
    """

    port: int
    heads: tuple[str, ...]
    body: bytes
    connections: int
    seconds: float
    rate: float = 0.0
    watch: tuple[int, ...] = ()


class Outcome(Struct, kw_only=True):
    """Answers that came in the counted time; `lost` are requests without one.

    `cpu_s` is of the watched processes, then of the client.
    """

    sent: int
    answers: int
    lost: int
    refusals: int
    refusal: str
    seconds: float
    cpu_s: tuple[float | None, ...]


class Traffic:
    """State that the connections of an order share."""

    def __init__(self, order: Order) -> None:
        self.requests = cycle([_request(head, order.body) for head in order.heads])
        self.rate = order.rate
        self.idle: asyncio.Queue[ClientConnection] = asyncio.Queue()
        self.settled = asyncio.Event()
        self.sent = 0
        self.answers = 0
        self.lost = 0
        self.refusals = 0
        self.refusal = ""
        self.over = False

    def refuse(self, answer: bytes) -> None:
        """Note an answer other than 202."""
        self.refusals += 1
        self.refusal = answer.decode(errors="replace")

    def next(self, connection: "ClientConnection") -> None:
        """Let the connection continue, now that it was answered."""
        if self.rate:
            self.idle.put_nowait(connection)
        elif not self.over:
            connection.send(next(self.requests))
        self._settle()

    def lose(self) -> None:
        """Note a request whose connection was closed."""
        self.lost += 1
        self._settle()

    def end(self) -> None:
        """Let no connection continue."""
        self.over = True
        self._settle()

    def _settle(self) -> None:
        if self.over and self.answers + self.lost == self.sent:
            self.settled.set()


class ClientConnection(asyncio.Protocol):
    """One connection: a request, its answer, then the next request."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._answer = b""
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._traffic.next(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits:
            self._traffic.lose()

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._waits = True
        self._traffic.sent += 1
        self._transport.write(request)

    def close(self) -> None:
        """Leave the server."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        answer = self._answer + data if self._answer else data
        end = answer.find(b"\r\n\r\n")
        if end < 0 or len(answer) < end + 4 + _length(answer, end):
            self._answer = answer
            return
        self._answer, self._waits = b"", False
        self._traffic.answers += 1
        if not answer.startswith(b"HTTP/1.1 202 "):
            self._traffic.refuse(answer)
        self._traffic.next(self)


def _length(answer: bytes, end: int) -> int:
    """The length of the body, as the head says that ends there."""
    start = answer.find(b"content-length: ", 0, end) + len(b"content-length: ")
    return int(answer[start : answer.find(b"\r", start)])


def _request(head: str, body: bytes) -> bytes:
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def carry_out(order: Order) -> Outcome:
    """Make the requests."""
    traffic, loop = Traffic(order), asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: ClientConnection(traffic), "127.0.0.1", order.port))[1]
        for _ in range(order.connections)
    ]
    if not order.rate:
        await asyncio.sleep(WARM_UP_S)
    before, began_at, answers_before = _used(order.watch), time.perf_counter(), traffic.answers
    if order.rate:
        await _steadily(traffic, order)
    else:
        await asyncio.sleep(order.seconds)
    answers, took_s = traffic.answers - answers_before, time.perf_counter() - began_at
    after = _used(order.watch)
    traffic.end()
    async with asyncio.timeout(LATE_MAX_S):
        await traffic.settled.wait()
    for connection in connections:
        connection.close()
    used = [None if a is None or b is None else b - a for a, b in zip(before, after, strict=True)]
    return Outcome(
        sent=traffic.sent, answers=answers, seconds=took_s, cpu_s=tuple(used),
        lost=traffic.lost, refusals=traffic.refusals, refusal=traffic.refusal,
    )  # fmt: skip


async def _steadily(traffic: Traffic, order: Order) -> None:
    """Send at the order's rate; requests that are due while all connections are busy wait for a free one."""
    loop = asyncio.get_running_loop()
    began_at, began = loop.time(), time.time()
    for number in range(int(order.rate * order.seconds)):
        due_s = number / order.rate
        await asyncio.sleep(max(0.0, began_at + due_s - loop.time()))
        connection = await traffic.idle.get()
        stamp = f"{began + due_s:.6f}".encode()
        head, end, body = next(traffic.requests).partition(b"\r\n\r\n")
        connection.send(head + end + stamp + body[len(stamp) :])


def _used(watched: tuple[int, ...]) -> list[float | None]:
    """The CPU that these processes have used, and that of this one."""
    found = [usage(pid) for pid in watched]
    return [None if each is None else each.cpu_s for each in found] + [time.process_time()]


async def serve() -> None:
    """Carry out orders until standard input ends."""
    lines = asyncio.StreamReader(limit=64 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        outcome = await carry_out(msgspec.json.decode(line, type=Order))
        print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())
