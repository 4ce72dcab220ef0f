"""The session of the exporters reads little of what a collector answers, and not for long."""

import os
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import requests

from angarium.telemetry.collector_session import ANSWER_MAX, CollectorSession
from angarium.telemetry.metrics.families import single
from angarium.telemetry.metrics.open_export import open_metrics_export
from angarium.telemetry.open_tracing import open_tracing
from tests.support.otlp_collector import Collector, span

OK = b"HTTP/1.1 200 OK\r\n"
PIECE = bytes(1 << 20)
PATIENCE_S = 30.0
SHORT_S = 0.3
PAUSE_S = 0.01
MEMORY_MAX = 4 << 20

Answer = Callable[[socket.socket, threading.Event], None]


class Served:
    """A server's address, and the requests and connections that it got."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.connections = 0
        self.requests = 0


@contextmanager
def served(answer: Answer) -> Iterator[Served]:
    """A server that answers each request so, one connection after the other."""
    end = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen = Served(listener)

        def serve() -> None:
            while not end.is_set():
                connection, _ = listener.accept()
                with connection:
                    seen.connections += not end.is_set()
                    _answer_each(connection, answer, end, seen)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            end.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join(PATIENCE_S)


def _answer_each(connection: socket.socket, answer: Answer, end: threading.Event, seen: Served) -> None:
    """Answer requests without a body until the client goes."""
    try:
        while connection.recv(1 << 16):
            seen.requests += 1
            answer(connection, end)
    except OSError:
        pass  # The client has had enough.


def whole(head: bytes, body: bytes = b"") -> Answer:
    answer = head + b"content-length: %d\r\n\r\n" % len(body) + body
    return lambda connection, end: connection.sendall(answer)


def endless(beginning: bytes, piece: bytes) -> Answer:
    """A GB, in pieces."""

    def send(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(beginning)
        for _ in range((1 << 30) // len(piece)):
            connection.sendall(piece)

    return send


def dripping(beginning: bytes, drop: bytes, last: bytes) -> Answer:
    """A complete answer that takes 10 s."""

    def send(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(beginning)
        for _ in range(1000):
            connection.sendall(drop)
            if end.wait(PAUSE_S):
                return
        connection.sendall(last)

    return send


@pytest.mark.parametrize(
    "answer",
    [
        endless(OK + b"content-length: 1073741824\r\n\r\n", PIECE),
        endless(OK + b"\r\n", PIECE),
        endless(OK, b"a: " + b"x" * 1000 + b"\r\n"),
        whole(OK, b"x" * ANSWER_MAX),
    ],
)
def test_a_longer_answer_is_not_read_to_its_end(answer: Answer) -> None:
    with served(answer) as server, CollectorSession() as session:
        tracemalloc.start()
        try:
            with pytest.raises(requests.RequestException):
                session.post(server.url, timeout=PATIENCE_S)
            assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
        finally:
            tracemalloc.stop()


def test_an_answer_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join([*(packer.compress(PIECE) for _ in range(40)), packer.flush()])
    with served(whole(OK + b"content-encoding: gzip\r\n", packed)) as server, CollectorSession() as session:
        assert session.post(server.url, timeout=PATIENCE_S).content == packed


@pytest.mark.parametrize(
    "answer",
    [
        dripping(OK + b"content-length: 1000\r\n\r\n", b"x", b""),
        dripping(OK + b"a: ", b"x", b"\r\ncontent-length: 0\r\n\r\n"),
    ],
)
def test_an_answer_that_drips_is_too_late(answer: Answer) -> None:
    with served(answer) as server, CollectorSession() as session, pytest.raises(requests.RequestException):
        session.post(server.url, timeout=SHORT_S)


def test_short_answers_share_a_connection() -> None:
    with served(whole(OK, b"fine")) as server, CollectorSession() as session:
        assert [session.post(server.url, timeout=PATIENCE_S).content for _ in range(3)] == [b"fine"] * 3
    assert (server.connections, server.requests) == (1, 3)


def test_a_redirect_is_not_followed_and_no_success() -> None:
    redirect = whole(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\n")
    with served(redirect) as server:
        with CollectorSession() as session, pytest.raises(requests.TooManyRedirects):
            session.post(server.url, timeout=PATIENCE_S)
        assert server.requests == 1


def test_a_redirect_is_not_a_success_of_either_exporter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(status=302)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    tracing, export = open_tracing(os.environ, "one"), open_metrics_export(os.environ, "one")
    assert tracing is not None
    assert export is not None
    tracing.exporter.take(span)
    tracing.exporter.stop()
    export.exporter.take([single("angarium_actors", 1)])
    export.exporter.stop()
    collector.stop()
    assert (tracing.exporter.exported, tracing.exporter.dropped) == (0, 1)
    assert "metrics.dropped" in caplog.messages
