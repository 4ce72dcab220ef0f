"""A tunnel between the proxy's answer and the moment at which it is handed over."""

import asyncio
from unittest.mock import Mock

import pytest

from angarium.delivery.connections.connect import NoAnswer
from angarium.delivery.egress.tunnel import Tunnel, connect_head
from angarium.delivery.http_exchange.transport import EARLY, FailureKind

OPENED = b"HTTP/1.1 200 OK\r\n\r\n"


async def opened(transport: Mock) -> Tunnel:
    tunnel = Tunnel()
    tunnel.connection_made(transport)
    asking = asyncio.ensure_future(tunnel.ask(b"CONNECT"))
    await asyncio.sleep(0)
    for byte in OPENED:
        tunnel.data_received(bytes((byte,)))
    assert await asking is None
    return tunnel


async def test_an_open_tunnel_is_handed_over() -> None:
    transport = Mock(**{"is_closing.return_value": False})
    tunnel = await opened(transport)
    assert tunnel.hand_over() is transport
    transport.write.assert_called_once_with(b"CONNECT")


@pytest.mark.parametrize("lost", [True, False])
async def test_a_tunnel_that_closes_before_it_is_handed_over_is_reset(lost: bool) -> None:
    transport = Mock(**{"is_closing.return_value": False})
    tunnel = await opened(transport)
    if lost:
        tunnel.connection_lost(None)
    transport.is_closing.return_value = True
    with pytest.raises(NoAnswer) as caught:
        tunnel.hand_over()
    assert caught.value.kind is FailureKind.RESET


async def test_bytes_that_come_before_the_tunnel_is_handed_over_end_it() -> None:
    transport = Mock(**{"is_closing.return_value": False})
    tunnel = await opened(transport)
    tunnel.data_received(b"HTTP/1.1 200 OK\r\n")
    transport.abort.assert_called_once_with()
    with pytest.raises(NoAnswer) as caught:
        tunnel.hand_over()
    assert (caught.value.kind, caught.value.detail) == (FailureKind.PROTOCOL, EARLY)


async def test_a_connection_that_is_lost_before_the_question_is_a_refusal() -> None:
    tunnel = Tunnel()
    tunnel.connection_made(Mock())
    tunnel.connection_lost(None)
    refusal = await tunnel.ask(b"CONNECT")
    assert refusal is not None
    assert refusal.why == "closed the connection before its answer was complete"


def test_the_connect_request_has_host_and_port_in_its_first_line_and_in_host() -> None:
    head = connect_head("[2001:db8::1]:443", b"Basic eA==")
    lines = head.split(b"\r\n")
    assert lines[:2] == [b"CONNECT [2001:db8::1]:443 HTTP/1.1", b"host: [2001:db8::1]:443"]
    assert lines[3:] == [b"proxy-authorization: Basic eA==", b"", b""]
