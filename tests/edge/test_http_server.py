"""The small HTTP server: no client, whatever it sends, starves others or fills the node's memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from angarium import http_server
from angarium.http_server import PIECE_BYTES, WAITING_MAX, Answer, Pending, Received, Reply, serve

REQUEST = b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n"
MANY = 1000


@asynccontextmanager
async def served(answer: Answer, connections_max: int | None = None) -> AsyncIterator[int]:
    server = await serve("127.0.0.1", 0, answer, connections_max)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % 0)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head


async def test_a_thousand_requests_at_once_are_answered_in_order_and_in_turns() -> None:
    """A burst must not block the loop's other work, such as heartbeats."""
    turn, answered_in = 0, list[int]()

    def pass_on() -> None:
        nonlocal turn
        turn += 1

    def answer(received: Received) -> Reply:
        answered_in.append(turn)
        asyncio.get_running_loop().call_soon(pass_on)
        return Reply(body=received.path.encode())

    async with served(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(REQUEST % number for number in range(MANY)))
        for number in range(MANY):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            path = b"/%d" % number
            assert await reader.readexactly(len(path)) == path
        writer.close()
    assert len(set(answered_in)) == MANY


async def test_few_of_many_requests_at_once_are_parsed_before_they_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of them, on hundreds of connections, would take seconds of the loop, and memory."""
    parsed, first = 0, asyncio.Event()

    class Counted(Received, frozen=True):
        def __post_init__(self) -> None:
            nonlocal parsed
            parsed += 1

    monkeypatch.setattr(http_server, "Received", Counted)
    gate: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def answer(received: Received) -> Pending | Reply:
        first.set()
        return gate if received.path == "/0" else Reply()

    async with served(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(REQUEST % number for number in range(2 * MANY)))
        await first.wait()
        assert parsed <= WAITING_MAX + PIECE_BYTES / len(REQUEST % 0)
        gate.set_result(Reply())
        for _ in range(2 * MANY):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def test_bytes_that_are_not_http_end_the_connection_after_the_pending_answers() -> None:
    async with served(lambda received: Reply(body=b"yes")) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST % 1 + REQUEST % 2 + b"\0\0\0\r\n\r\n" + REQUEST % 3)
        received = await reader.read()
        assert (received.count(b"200 OK"), received.count(b"400 Bad Request")) == (2, 1)
        assert received.endswith(b"connection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()


async def test_a_client_that_takes_no_answers_gets_no_more_of_them() -> None:
    answered = 0

    def answer(received: Received) -> Reply:
        nonlocal answered
        answered += received.path != "/0"
        return Reply(body=bytes(1 << 20))

    async with served(answer) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"".join(REQUEST % number for number in range(1, MANY)))
        for _ in range(100):
            await get(port)
        assert answered < 100
        writer.close()


async def test_an_answer_that_is_not_known_yet_comes_before_those_to_later_requests() -> None:
    later = asyncio.get_running_loop().create_future()

    def answer(received: Received) -> Reply | Pending:
        return later if received.path == "/1" else Reply(body=b"at once")

    async with served(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in (1, 2):
            writer.write(REQUEST % number)
            assert b"200 OK" in await get(port)
        later.set_result(Reply(body=b"later"))
        said = await reader.readuntil(b"at once")
        assert said.index(b"later") < said.index(b"at once")
        writer.close()


async def test_the_connection_that_asked_least_recently_ends_if_there_are_too_many() -> None:
    """Idle ones would use up the descriptors of a node, which then could not post."""
    async with served(lambda _: Reply(), connections_max=2) as port:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        (busy, writer), (idle, idle_writer) = connections
        for asking, to in ((busy, writer), (idle, idle_writer), (busy, writer)):
            to.write(REQUEST % 0)
            assert b"200 OK" in await asking.readuntil(b"\r\n\r\n")
        assert b"200 OK" in await get(port)
        assert await idle.read() == b""
        writer.write(REQUEST % 0)
        assert b"200 OK" in await busy.readuntil(b"\r\n\r\n")
        for _, opened in connections:
            opened.close()


async def test_connections_that_ended_do_not_count() -> None:
    async with served(lambda _: Reply(), connections_max=2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            assert b"200 OK" in await get(port)
            writer.write(REQUEST % 0)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
