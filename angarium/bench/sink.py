"""The sink: a receiver in a process of its own that answers 200 and keeps count, as fast as Python can.

It talks to its parent process in lines: it prints its port, then one line of JSON for each line on its
standard input. `report` returns all figures, `count` only the number, `forget` restarts the count. Requests
without a number (from the bare loops) are answered and not counted; so are requests to `/~5/…`, after 5 s.
"""

import asyncio
import math
import sys
import time
from collections import defaultdict
from typing import cast

import httptools
import msgspec
from msgspec import Struct

UNCOUNTED_PATH = "~"
"""Begins the path of those who are answered late, or at once (`~0`), and not counted."""

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_UNCOUNTED_PATH = b"/" + UNCOUNTED_PATH.encode()
STAMP_BYTES = 17
"""The first bytes of a body are when it was published: seconds since the epoch, `1795233800.123456`."""
_DATA = b'"data":'
_HEAD_BYTES = 1024
"""The body of the first event of a batch begins before that."""


class Report(Struct):
    """A report of the sink: deliveries, repeats, from when to when, and how late.

    `disordered` are those that came before the one whose number is next.
    """

    deliveries: int = 0
    repeats: int = 0
    disordered: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0


class Arrivals:
    """The arrivals that one report counts."""

    def __init__(self) -> None:
        self.repeats = 0
        self.disordered = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self.delays: list[float] = []

    @property
    def deliveries(self) -> int:
        return len(self.delays)

    def report(self) -> Report:
        """Makes the report."""
        delays = sorted(self.delays)
        return Report(
            self.deliveries, self.repeats, self.disordered, self.first_at, self.last_at,
            *(1000 * percentile(delays, share) for share in (0.50, 0.99, 1.0)),
        )  # fmt: skip


def percentile(ordered: list[float], share: float) -> float:
    """The nearest-rank percentile; 0 if there are no values."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0


class Sink:
    """State that all connections share.

    - `highest`: the highest number that came, by URL.
    - `skipped`: the numbers below that did not come yet.
    """

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.highest: dict[bytes, int] = {}
        self.skipped: defaultdict[bytes, set[int]] = defaultdict(set)

    def count(self, url: bytes, sequence: int, stamp: bytes) -> None:
        """Count a delivery that came."""
        arrivals, now = self.arrivals, time.time()
        before = self.highest.get(url, 0)
        if sequence > before + 1:
            arrivals.disordered += 1
            self.skipped[url].update(range(before + 1, sequence))
        elif sequence <= before:
            if sequence not in self.skipped[url]:
                arrivals.repeats += 1
                return
            self.skipped[url].remove(sequence)
        self.highest[url] = max(before, sequence)
        arrivals.first_at = arrivals.first_at or now
        arrivals.last_at = now
        arrivals.delays.append(now - float(stamp))


def stamp_of(body: bytes) -> bytes:
    """When the event was published, as its body says; of a batch, the oldest event."""
    start = body.index(_DATA) + len(_DATA) if body.startswith(b"{") else 0
    return body[start : start + STAMP_BYTES]


def numbers_of(header: bytes) -> range:
    """The numbers of the events of a request; none of one from the bare loops, which say 0."""
    first, _, last = header.partition(b"-")
    return range(max(1, int(first)), int(last or first) + 1)


class SinkConnection(asyncio.Protocol):
    """One connection: requests one after the other, each answered at once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._sequences = range(0)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._sequences, self._body = range(0), b""

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"angarium-sequence":
            self._sequences = numbers_of(value)

    def on_body(self, body: bytes) -> None:
        self._body = self._body or body[:_HEAD_BYTES]

    def on_message_complete(self) -> None:
        if self._url.startswith(_UNCOUNTED_PATH):
            delay_s = float(self._url.removeprefix(_UNCOUNTED_PATH).partition(b"/")[0])
            asyncio.get_running_loop().call_later(delay_s, self._transport.write, ANSWER)
            return
        if self._sequences:
            stamp = stamp_of(self._body)
            for sequence in self._sequences:
                self._sink.count(self._url, sequence, stamp)
        self._transport.write(ANSWER)


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    sink = Sink()
    server = await loop.create_server(lambda: SinkConnection(sink), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        if line == b"forget\n":
            sink.arrivals = Arrivals()
        report = sink.arrivals.report() if line == b"report\n" else Report(sink.arrivals.deliveries)
        print(msgspec.json.encode(report).decode(), flush=True)
    server.close()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())
