"""Malicious clients, and a NATS that does not answer: time and memory are bounded."""

import asyncio
import logging
import os
import signal
import time

import pytest

from angarium.api import bounded_protocol
from angarium.api.bounded_protocol import HEADERS_MAX, PIPELINED_MAX
from angarium.api.requests import bodies
from angarium.api.requests.request_limits import TENANTS_MIN, RequestLimits
from angarium.operations.events import accept
from streams.server.embedded import EmbeddedServer
from tests.edge.api.conftest import MAX_BODY, Api, problem
from tests.edge.api.hostile_clients.raw import PATH, PATIENCE_S, Raw, connected
from tests.support.plain_http import plain_client
from tests.support.waiting import until, until_true


@pytest.fixture
async def head(api: Api) -> str:
    """The first lines of a publish that is allowed."""
    token = (await api.token()).text
    return f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"


async def said(api: Api, *pieces: bytes) -> bytes:
    """Sends these bytes, and returns the answer until the other side closes."""
    raw = await connected(api)
    for piece in pieces:
        raw.writer.write(piece)
    await raw.writer.drain()
    answer = await raw.rest()
    raw.writer.close()
    return answer


async def test_a_body_that_drips_is_cut_off(api: Api, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(bodies, "SLOWEST_BYTES_PER_S", 1 << 30)
    monkeypatch.setattr(bounded_protocol, "LINGER_MAX_S", 0.2)
    for length in ("content-length: 100", "transfer-encoding: chunked"):
        raw = await connected(api)
        raw.writer.write(f"{head}{length}\r\n\r\n".encode())
        dripping = asyncio.ensure_future(_drip(raw))
        answer = await raw.rest()
        dripping.cancel()
        raw.writer.close()
        assert answer.startswith(b"HTTP/1.1 408"), answer
    assert api.state.limits.requests == api.state.limits.held == 0


async def _drip(raw: Raw) -> None:
    while True:
        raw.writer.write(b"1\r\nx\r\n")
        await asyncio.sleep(0.05)


async def test_a_head_that_drips_is_cut_off(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "HEAD_TIMEOUT_S", 0.2)
    assert await said(api) == b""
    assert await said(api, b"POST / HTTP/1.1\r\nx-") == b""


async def test_a_head_that_drips_is_cut_off_on_a_connection_that_was_used(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = await connected(api)
    raw.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await raw.reader.readuntil(b"}")
    monkeypatch.setattr(bounded_protocol, "HEAD_TIMEOUT_S", 0.2)
    raw.writer.write(b"GET /healthz HTTP/1.1\r\nx-")
    assert await raw.rest() == b""
    raw.writer.close()


async def test_a_long_body_has_more_time(api: Api, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow line needs it: this body is still read when one without more time has been cut off."""
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.1)
    begun = f"{head}content-length: 2\r\nconnection: close\r\n\r\n{{".encode()
    monkeypatch.setattr(bodies, "SLOWEST_BYTES_PER_S", MAX_BODY / PATIENCE_S)
    raw = await connected(api)
    raw.writer.write(begun)
    await until(lambda: api.state.limits.held == 1)
    monkeypatch.setattr(bodies, "SLOWEST_BYTES_PER_S", 1 << 30)
    assert (await said(api, begun)).startswith(b"HTTP/1.1 408")
    raw.writer.write(b"}")
    assert (await raw.rest()).startswith(b"HTTP/1.1 202")
    raw.writer.close()


async def test_a_client_that_goes_away_is_not_a_defect(
    api: Api, head: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (PATH, "/v1/tenants/acme/events"):
        raw = await connected(api)
        raw.writer.write(f"{head.replace(PATH, path)}content-length: 2\r\n\r\n{{".encode())
        await until(lambda: api.state.limits.requests == 1)
        raw.writer.transport.abort()
        await until(lambda: api.state.limits.requests == 0)
    assert not [each for each in caplog.records if each.exc_info]
    assert await api.stored(api.names.events) == []


async def test_only_a_limited_number_of_clients_is_connected(
    api: Api, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_protocol, "CONNECTIONS_MAX", 2)
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    few = [await connected(api) for _ in range(2)]
    for raw in few:
        raw.writer.write(f"{head}content-length: 2\r\n\r\n{{".encode())
    await until(lambda: api.state.limits.requests == 2)
    assert await said(api, request) == b""
    for raw in few:
        raw.writer.close()


async def test_idle_connections_keep_out_no_client(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been idle for longest gives way."""
    monkeypatch.setattr(bounded_protocol, "CONNECTIONS_MAX", 2)
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    few = [await connected(api) for _ in range(2)]
    for raw in reversed(few):
        raw.writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            await raw.reader.readuntil(b"}")
    assert b"200 OK" in await said(api, request.replace(b"host", b"connection: close\r\nhost"))
    async with asyncio.timeout(PATIENCE_S):
        assert await few[1].reader.read() == b""
    few[0].writer.write(request)
    async with asyncio.timeout(PATIENCE_S):
        assert await few[0].reader.readuntil(b"}")
    for raw in few:
        raw.writer.close()


async def test_an_unwanted_body_is_read_up_to_a_limit(
    api: Api, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_protocol, "LINGER_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(bounded_protocol, "LINGER_MAX_S", 2 * PATIENCE_S)
    raw = await connected(api)
    raw.writer.write(f"{head}content-length: {1 << 40}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        assert (await raw.reader.readline()).startswith(b"HTTP/1.1 413")
        with pytest.raises(ConnectionError):
            await _send_endlessly(raw, size=1 << 16)
    raw.writer.close()


async def test_an_unwanted_body_is_read_for_a_short_time(
    api: Api, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_protocol, "LINGER_MAX_S", 0.2)
    raw = await connected(api)
    raw.writer.write(f"{head}content-length: {1 << 40}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        assert (await raw.reader.readline()).startswith(b"HTTP/1.1 413")
        with pytest.raises(ConnectionError):
            await _send_endlessly(raw, size=1, pause_s=0.01)
    raw.writer.close()


async def _send_endlessly(raw: Raw, *, size: int, pause_s: float = 0.0) -> None:
    while True:
        raw.writer.write(b"x" * size)
        await raw.writer.drain()
        await asyncio.sleep(pause_s)


async def test_an_answer_reaches_a_client_that_still_sends(api: Api, head: str) -> None:
    """Otherwise the client would see a reset instead."""
    raw = await connected(api)
    raw.writer.write(f"{head}content-length: {MAX_BODY * 100}\r\n\r\n".encode())
    raw.writer.write(b"x" * MAX_BODY * 100)
    await raw.writer.drain()
    answer = await raw.rest()
    raw.writer.close()
    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.endswith(b"}")


@pytest.mark.parametrize("path", [PATH, "/v1/tenants/acme/receivers/billing/pause", "/nowhere"])
async def test_an_answer_before_the_body_says_that_it_is_the_last(api: Api, path: str) -> None:
    """A client that reuses its connections would send its next request where it is not answered."""
    request = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n".encode()
    early = await said(api, request)
    assert early.startswith((b"HTTP/1.1 401", b"HTTP/1.1 404"))
    assert early.count(b"connection: close\r\n") == 1
    last = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answers = await said(api, request + b"{}" + last)
    assert answers.count(b"HTTP/1.1 ") == 2
    assert answers.count(b"connection: close\r\n") == 1


async def test_a_body_that_is_too_large_is_refused_before_it_comes(api: Api, head: str) -> None:
    raw = await connected(api)
    raw.writer.write(f"{head}content-length: {MAX_BODY + 1}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        assert (await raw.reader.readline()).startswith(b"HTTP/1.1 413")
    raw.writer.close()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("".join(f"x-{number}: y\r\n" for number in range(200)), 431),
        ("".join(f"x-{number}: y\r\n" for number in range(10_000)), 431),
        ("".join(f"x-{number}: {'y' * 1000}\r\n" for number in range(100)), 431),
        (f"x: {'y' * 1_000_000}\r\n", 431),
        ("content-length: 1\r\ncontent-length: 2\r\n", 400),
        ("content-length: -1\r\n", 400),
        ("content-length: 1\r\ntransfer-encoding: chunked\r\n", 400),
        ("no header\r\n", 400),
    ],
)
async def test_an_invalid_head_is_refused(api: Api, head: str, lines: str, status: int) -> None:
    answer = await said(api, f"{head}{lines}\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert b"application/problem+json" in answer


async def test_a_header_without_an_end_is_not_kept(api: Api) -> None:
    answer = await said(api, b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("path", [b"/\xff\xfe", b"/v1/tenants/\xc3\xa4/events/x", b"*", b"http://"])
async def test_an_invalid_path_is_refused_without_a_defect(api: Api, path: bytes) -> None:
    answer = await said(api, b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ")), answer


async def test_requests_in_a_row_are_answered_in_their_order(api: Api, head: str) -> None:
    requests = [f"{head}angarium-id: n{number}\r\ncontent-length: 2\r\n\r\n{{}}" for number in range(50)]
    requests.append("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await said(api, "".join(requests).encode())
    assert answer.count(b"HTTP/1.1 202") == 50
    places = [answer.index(f'"n{number}"'.encode()) for number in range(50)]
    assert places == sorted(places)


async def test_too_many_requests_in_a_row_end_the_connection(api: Api) -> None:
    many = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * (PIPELINED_MAX * 20)
    answer = await said(api, many)
    assert answer.count(b"HTTP/1.1 200") <= PIPELINED_MAX + HEADERS_MAX
    assert b"HTTP/1.1 400 " in answer


async def test_no_more_requests_are_held_than_there_is_room_for(api: Api, head: str) -> None:
    api.state.limits = RequestLimits(requests_max=2 * TENANTS_MIN, bytes_max=4 * TENANTS_MIN)
    waiting = [await connected(api) for _ in range(2)]
    for raw in waiting:
        raw.writer.write(f"{head}content-length: 2\r\n\r\n".encode())
    await until(lambda: api.state.limits.requests == 2)
    async with await api.client() as client, await api.client("other") as other:
        answer = await client.post(PATH, content=b"{}")
        assert "too many requests" in problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        assert (await other.post(PATH.replace("acme", "other"), content=b"{}")).status_code == 202
        for raw in waiting:
            raw.writer.write(b"{}")
            async with asyncio.timeout(PATIENCE_S):
                assert (await raw.reader.readline()).startswith(b"HTTP/1.1 202")
            raw.writer.close()
        for path, name in ((PATH, "unavailable"), ("/v1/tenants/acme/events", "unavailable")):
            answer = await client.post(path, content=b"x" * 5)
            assert "hold too much" in problem(answer, 503, name)
        assert (await client.post(PATH, content=b"{}")).status_code == 202
    assert api.state.limits.requests == api.state.limits.held == 0


async def test_a_nats_that_stands_still_holds_no_memory_and_no_client(api: Api, nats: EmbeddedServer) -> None:
    async with await api.client() as client:
        assert (await client.post(PATH, json={})).status_code == 202
        pid = int(nats.pid_file.read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            began_at = time.monotonic()
            body = b"x" * MAX_BODY
            answers = await asyncio.gather(*(client.post(PATH, content=body) for _ in range(100)))
            assert time.monotonic() - began_at < PATIENCE_S / 2
        finally:
            os.kill(pid, signal.SIGCONT)
        for answer in answers:
            problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
        assert api.state.limits.requests == api.state.limits.held == 0

        async def stored() -> bool:
            return (await client.post(PATH, json={})).status_code == 202

        await until_true(stored)


async def test_no_event_is_kept_for_a_nats_that_does_not_read(
    api: Api, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The senders are told to publish again, so each second's events would pile up on the others."""
    monkeypatch.setattr(accept, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(accept, "UNSENT_MAX", 4 << 20)
    events = [{"type": "order.created", "data": "x" * (MAX_BODY - 2)}] * 256
    size = 256 * MAX_BODY
    wire = api.state.access.js.wire
    pid = int(nats.pid_file.read_text())
    async with await api.client() as client:
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(10):
                answer = await client.post("/v1/tenants/acme/events", json=events)
                if answer.status_code == 503:
                    break
                assert {each["status"] for each in answer.json()["results"]} == {503}
            assert "nothing was published" in problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
            unsent = wire.unsent
            assert 4 << 20 < unsent < (4 << 20) + 2 * size
            single = await client.post(PATH, content=b"x" * MAX_BODY)
            assert "nothing was published" in problem(single, 503, "unavailable")
            assert wire.unsent == unsent
            token = client.headers["authorization"]
            for path in (PATH, "/v1/tenants/acme/events"):
                raw = await connected(api)
                lines = f"host: x\r\nauthorization: {token}\r\ncontent-length: 7\r\n\r\n"
                raw.writer.write(f"POST {path} HTTP/1.1\r\n{lines}".encode())
                async with asyncio.timeout(PATIENCE_S):
                    assert (await raw.reader.readline()).startswith(b"HTTP/1.1 503"), "before the body comes"
                raw.writer.close()
        finally:
            os.kill(pid, signal.SIGCONT)

        async def stored() -> bool:
            return (await client.post(PATH, json={})).status_code == 202

        await until_true(stored)


async def test_requests_without_a_token_fill_no_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Requests that are not HTTP, or ask for another protocol, fill none either."""
    upgrade = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    raw = await connected(api)
    for _ in range(20):
        raw.writer.write(upgrade)
        async with asyncio.timeout(PATIENCE_S):
            assert (await raw.reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        assert (await said(api, b"no request\r\n\r\n")).startswith(b"HTTP/1.1 400")
    raw.writer.close()
    lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert {each.getMessage() for each in lines} <= {"api.invalid_request"}
    assert len(lines) <= 5


async def test_no_log_has_a_token(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = await api.token()
    async with api.client_with(token.text) as client:
        await client.post(PATH, json={})
        await client.post("/v1/tenants/other/events/x", json={})
    async with plain_client(base_url=api.url) as client:
        answer = await client.get(f"/{token.text}", headers={"authorization": token.text})
        assert token.text not in answer.text
    ours = [each for each in caplog.records if each.name.startswith(("angarium", "streams", "uvicorn"))]
    secret = token.text.split("_", 2)[2]
    assert not [each for each in ours if secret in each.getMessage() or secret in str(each.__dict__)]
    assert secret not in repr(token)
