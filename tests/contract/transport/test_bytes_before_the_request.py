"""Bytes that arrive before a request is written: already read, or not yet."""

import asyncio
import socket
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from angarium.delivery.http_exchange.http1 import Exchange, Http1Connection
from angarium.delivery.http_exchange.transport import EARLY, Failure, FailureKind
from tests.contract.transport.receiver import OK

WIRE = b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end of a connection, and the receiver's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def opened(ours: socket.socket, owner: Mock, *, tls: bool = False) -> tuple[Http1Connection, Mock]:
    wire = Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0})
    wire.get_extra_info = {"socket": ours, "ssl_object": "TLS" if tls else None}.get
    wire.abort.side_effect = lambda: wire.is_closing.configure_mock(return_value=True)
    connection = Http1Connection(owner, asyncio.get_running_loop())
    connection.connection_made(wire)
    return connection, wire


def started(connection: Http1Connection) -> Exchange:
    now = asyncio.get_running_loop().time()
    return connection.start(WIRE, lambda: True, now, now + 60)


def is_early(connection: Http1Connection, exchange: Exchange, wire: Mock) -> bool:
    outcome = exchange.result()
    assert isinstance(outcome, Failure)
    assert (wire.write.called, wire.abort.called, connection.is_usable) == (False, True, False)
    return (outcome.kind, outcome.detail, connection.unanswered) == (FailureKind.PROTOCOL, EARLY, True)


@pytest.mark.parametrize("tls", [False, True])
async def test_bytes_read_between_start_and_write_are_not_an_answer(
    ends: tuple[socket.socket, socket.socket], tls: bool
) -> None:
    connection, wire = opened(ends[0], Mock(), tls=tls)
    exchange = started(connection)
    connection.data_received(OK)
    connection.write()
    assert is_early(connection, exchange, wire)


async def test_bytes_read_before_the_start_are_not_an_answer(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    connection, wire = opened(ends[0], Mock())
    connection.data_received(OK)
    exchange = started(connection)
    connection.write()
    assert is_early(connection, exchange, wire)


async def test_unread_bytes_are_not_an_answer(ends: tuple[socket.socket, socket.socket]) -> None:
    connection, wire = opened(ends[0], Mock())
    ends[1].sendall(OK)
    exchange = started(connection)
    connection.write()
    assert is_early(connection, exchange, wire)


async def test_over_tls_what_waits_is_read_before_the_request_is_written(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """The bytes may be a session ticket, which yields no data, or an unrequested answer."""
    for answer in (b"", OK):
        owner = Mock()
        connection, wire = opened(ends[0], owner, tls=True)
        ends[1].sendall(b"record")
        exchange = started(connection)
        connection.write()
        assert not wire.write.called
        assert owner.write_soon.call_count == 2
        ends[0].recv(100)
        if answer:
            connection.data_received(answer)
        connection.write()
        if answer:
            assert is_early(connection, exchange, wire)
        else:
            assert wire.write.called


async def test_a_socket_that_is_gone_unnoticed_ends_the_exchange(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    connection, wire = opened(ends[0], Mock(), tls=True)
    exchange = started(connection)
    fd = ends[0].detach()
    socket.close(fd)
    connection.write()
    outcome = exchange.result()
    assert isinstance(outcome, Failure)
    assert (outcome.kind, connection.unanswered) == (FailureKind.RESET, True)
    assert (wire.write.called, wire.abort.called) == (False, True)
