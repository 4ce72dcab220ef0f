"""Requests as they are sent, and the outcome of every kind of answer."""

import gzip
from pathlib import Path

import pytest

from angarium.delivery.http_exchange.transport import BODY_MAX, HEAD_MAX, INTERIM_MAX, FailureKind
from tests.contract.transport.conftest import PATIENCE_S, MakeTransport, Post, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver

SOON_S = 0.3


def head_of(size: int) -> bytes:
    """An answer's head of exactly that many bytes, empty line included."""
    start, end = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-long: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


async def test_the_request_is_what_was_asked_for_and_nothing_else(post: Post, receiver: Receiver) -> None:
    headers = [(b"webhook-id", b"msg_1"), (b"x-name", b"caf\xe9"), (b"content-type", b"application/json")]
    answered(await post(headers=headers, body=b"\x00\xff body"))
    (received,) = receiver.requests
    assert received.line == b"POST /hook HTTP/1.1"
    expected = [(b"host", b"127.0.0.1:%d" % receiver.port), *headers, (b"content-length", b"7")]
    assert sorted(received.headers) == sorted(expected)
    assert received.body == b"\x00\xff body"


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_a_handshake_has_no_body_and_shares_the_connection(
    post: Post, receiver: Receiver, method: str
) -> None:
    headers = [(b"angarium-challenge", b"c1")]
    assert answered(await post(headers=headers, body=b"", method=method)).body == b"ok"
    answered(await post())
    asked, posted = receiver.requests
    assert asked.line == f"{method} /hook HTTP/1.1".encode()
    assert sorted(asked.headers) == sorted([(b"host", b"127.0.0.1:%d" % receiver.port), *headers])
    assert posted.line == b"POST /hook HTTP/1.1"
    assert receiver.connections == 1


async def test_an_empty_and_a_large_body_arrive_whole(post: Post, receiver: Receiver) -> None:
    for body in (b"", b"\r\n" * 131072):
        answered(await post(body=body))
    assert [received.body for received in receiver.requests] == [b"", b"\r\n" * 131072]


async def test_the_answer_comes_back_as_it_was_sent(post: Post, receiver: Receiver) -> None:
    body = gzip.compress(b"not ours to unpack")
    receiver.answers(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nX-Twice: a\r\nX-Twice: \xe9\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = answered(await post())
    assert answer.status == 503
    assert answer.headers == (
        ("retry-after", "7"),
        ("x-twice", "a"),
        ("x-twice", "é"),
        ("content-encoding", "gzip"),
        ("content-length", str(len(body))),
    )
    assert answer.body == body
    assert 0 <= answer.latency_s < PATIENCE_S


async def test_redirects_are_answers_and_cookies_are_forgotten(post: Post, receiver: Receiver) -> None:
    async def script(peer: Peer) -> None:
        location = b"location: http://127.0.0.1:%d/elsewhere\r\n" % receiver.port
        await peer.answer(
            b"HTTP/1.1 307 Go\r\n%bset-cookie: a=b; path=/\r\ncontent-length: 0\r\n\r\n" % location
        )
        await peer.answer()

    receiver.plays(script)
    assert answered(await post()).status == 307
    assert answered(await post()).status == 200
    assert [received.line for received in receiver.requests] == [b"POST /hook HTTP/1.1"] * 2
    assert receiver.requests[1].all(b"cookie") == []


async def test_proxies_of_the_environment_are_ignored(
    make_transport: MakeTransport, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    answered(await post_to(make_transport(), f"http://127.0.0.1:{receiver.port}/"))


async def test_passwords_of_the_home_directory_are_ignored(
    make_transport: MakeTransport, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Clients that trust the environment send the credentials that `.netrc` has for the host."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password hidden\ndefault login any password hidden\n")
    netrc.chmod(0o600)  # As those who read it demand.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    answered(await post_to(make_transport(), f"http://127.0.0.1:{receiver.port}/"))
    (received,) = receiver.requests
    assert received.all(b"authorization") == []


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
        (b"HTTP/1.1 599 \xff\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", 599, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * INTERIM_MAX + OK, 200, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            200,
            b"abc",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-end: 1\r\n\r\n", 200, b"a"),
    ],
)
async def test_an_answer_in_any_framing(
    post: Post, receiver: Receiver, data: bytes, status: int, body: bytes
) -> None:
    receiver.answers(data)
    answer = answered(await post())
    assert (answer.status, answer.body) == (status, body)
    assert "x-end" not in dict(answer.headers)
    assert "link" not in dict(answer.headers)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\ncut\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\ncut\r\nno chunk\r\n",
    ],
)
@pytest.mark.parametrize("ending", ["close", "reset", "deadline"])
async def test_a_body_that_is_cut_short_leaves_the_status_standing(
    post: Post, receiver: Receiver, data: bytes, ending: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(data)
        if ending == "deadline":
            await peer.until_closed()
        elif ending == "reset":
            peer.reset()

    receiver.plays(script)
    answer = answered(await post(timeout_s=SOON_S if ending == "deadline" else PATIENCE_S))
    assert answer.status == 200
    assert answer.body in ((b"", b"cut") if ending == "reset" else (b"cut",))


@pytest.mark.parametrize("size", [BODY_MAX, BODY_MAX + 1, 20 * BODY_MAX])
async def test_at_most_64_kib_of_a_body_are_kept(post: Post, receiver: Receiver, size: int) -> None:
    receiver.answers(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size))
    assert answered(await post()).body == b"x" * BODY_MAX


async def test_an_endless_body_is_read_no_further_than_its_bound(post: Post, receiver: Receiver) -> None:
    """The client stops before the deadline: at most the sockets' buffers were sent, some megabytes."""
    parts = 0

    async def script(peer: Peer) -> None:
        nonlocal parts
        await peer.answer(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(b"x" * BODY_MAX)
            parts += 1

    receiver.plays(script)
    assert answered(await post()).body == b"x" * BODY_MAX
    assert parts * BODY_MAX < 64 << 20


async def test_an_endless_trailer_leaves_the_status_standing(post: Post, receiver: Receiver) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-end: ")
        while True:
            await peer.send(b"x" * HEAD_MAX)

    receiver.plays(script)
    answer = answered(await post())
    assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.parametrize("interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_headers_are_bounded_to_the_byte(post: Post, receiver: Receiver, interim: bytes) -> None:
    receiver.answers(interim + head_of(HEAD_MAX - len(interim)))
    assert answered(await post()).status == 200
    receiver.answers(interim + head_of(HEAD_MAX - len(interim) + 1))
    assert failed(await post()).kind is FailureKind.HEADERS_TOO_LARGE


@pytest.mark.parametrize("part", [b"x" * 1000, b"x: y\r\n" * 1000, b"x" * 61])
async def test_endless_headers_are_given_up(post: Post, receiver: Receiver, part: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\nx-long: ")
        while True:
            await peer.send(part)

    receiver.plays(script)
    assert failed(await post()).kind is FailureKind.HEADERS_TOO_LARGE


async def test_a_flood_of_interim_answers_is_given_up(post: Post, receiver: Receiver) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        while True:
            await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")

    receiver.plays(script)
    assert failed(await post()).kind in (FailureKind.PROTOCOL, FailureKind.HEADERS_TOO_LARGE)


@pytest.mark.parametrize(
    "data",
    [
        b"hello, who is there?\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"RTSP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 099 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n: nameless\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx\xff: y\r\n\r\n",
    ],
)
async def test_an_answer_that_is_not_http_1_fails_with_protocol(
    post: Post, receiver: Receiver, data: bytes
) -> None:
    receiver.answers(data)
    assert failed(await post()).kind is FailureKind.PROTOCOL
    receiver.answers(OK)
    answered(await post())


async def test_bytes_after_the_answer_leave_it_alone_and_never_pass_for_the_next(
    post: Post, receiver: Receiver
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(OK + b"HTTP/1.1 418 Forged\r\ncontent-length: 0\r\n\r\n")
        await peer.until_closed()

    async def next_one(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")

    receiver.plays(script, next_one)
    assert answered(await post()).status == 200
    assert answered(await post()).status == 201


async def test_a_header_that_would_split_the_request_is_never_sent(post: Post, receiver: Receiver) -> None:
    for name, value in (
        (b"x", b"a\r\nangarium-sequence: 7"),
        (b"x", b"a\nb"),
        (b"x\r\ny", b"z"),
        (b"x", b"\r"),
    ):
        with pytest.raises(ValueError, match="headers"):
            await post(headers=[(name, value)])
    assert receiver.requests == []
