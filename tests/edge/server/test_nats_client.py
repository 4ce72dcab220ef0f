"""Our parser of the NATS protocol: however the bytes are split, the same messages in the same order."""

import asyncio
from itertools import pairwise
from random import Random

import nats.errors
import pytest
from nats.aio.client import Client

from streams.nats.answers import Put
from streams.nats.client import NatsClient
from streams.nats.wire import Message

HEAD = b"NATS/1.0\r\nNats-Msg-Id: e1\r\n\r\n"
SAID = (
    b"PING\r\n"
    b"MSG a.b 1 5\r\nhello\r\n"
    b"MSG a.b 1 answer.here 0\r\n\r\n"
    b"+OK\r\n"
    b"HMSG a.c 1 %d %d\r\n%bMSG x 1 9\r\n\r\n"
    b"HMSG a.\x0b\xff 1 answer %d %d\r\n%b\r\n"
    b"PONG\r\n"
    b"MSG other 2 4\r\nnone\r\n"
    b"MSG a.d 1 3\r\nend\r\n"
) % (len(HEAD), len(HEAD) + 11, HEAD, len(HEAD), len(HEAD), HEAD)
HEARD = [
    Message("a.b", b"hello", size=8),
    Message("a.b", b"", "answer.here", size=14),
    Message("a.c", b"MSG x 1 9\r\n", "", {"Nats-Msg-Id": "e1"}, len(HEAD) + 14),
    Message("a.\x0b\\xff", b"", "answer", {"Nats-Msg-Id": "e1"}, len(HEAD) + 10),
    Message("a.d", b"end", size=6),
]


class Offline(NatsClient):
    """Sends nothing; the client that is number 1 listens."""

    def __init__(self) -> None:
        super().__init__(wants_tls=False)
        self.heard: list[Message] = []
        self.pings = 0
        self._handlers[1] = self.heard.append
        self._handlers_without_headers[3] = self.heard.append

    async def _process_ping(self) -> None:
        self.pings += 1


async def read(*parts: bytes) -> Offline:
    client = Offline()
    for part in parts:
        await client._ps.parse(part)
    return client


async def test_the_same_messages_are_heard_wherever_the_input_is_cut() -> None:
    for cut in range(len(SAID) + 1):
        client = await read(SAID[:cut], SAID[cut:])
        assert (client.heard, client.pings) == (HEARD, 1), f"cut at {cut}"


async def test_split_input_is_parsed_like_whole_input() -> None:
    chance = Random(1)
    for _ in range(100):
        cuts = sorted(chance.choices(range(len(SAID)), k=chance.randint(2, 40)))
        bounds = [0, *cuts, len(SAID)]
        client = await read(*(SAID[a:b] for a, b in pairwise(bounds)))
        assert (client.heard, client.pings) == (HEARD, 1)


@pytest.mark.parametrize("line", [b"MSG a\r\n", b"MSG a x 5\r\n", b"HMSG a 1 5\r\n", b"MSG a 1 five\r\n"])
async def test_an_invalid_line_breaks_the_connection_and_not_its_reader(line: bytes) -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await read(line)


async def test_a_handler_that_fails_is_reported_and_the_next_message_is_heard() -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
    client = Offline()
    heard = iter([ZeroDivisionError, None])

    def fails_once(message: Message) -> None:
        if (error := next(heard)) is not None:
            raise error
        client.heard.append(message)

    client._handlers[1] = fails_once
    await client._ps.parse(b"MSG a 1 0\r\n\r\nMSG b 1 0\r\n\r\n")
    assert [message.subject for message in client.heard] == ["b"]
    assert reports == ["a handler of a failed"]


async def test_headers_that_are_not_wanted_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading 900 kB of headers takes 0.1 s, and any client may send them to a node."""

    def parse_block(raw: bytes) -> dict[str, str]:
        raise AssertionError(raw)

    monkeypatch.setattr("streams.nats.client.parse_block", parse_block)
    said = b"HMSG a 3 %d %d\r\n%bx\r\nMSG b 3 1\r\ny\r\n" % (len(HEAD), len(HEAD) + 1, HEAD)
    for cut in range(len(said) + 1):
        client = await read(said[:cut], said[cut:])
        assert client.heard == [Message("a", b"x", size=len(HEAD) + 2), Message("b", b"y", size=2)], (
            f"cut at {cut}"
        )


@pytest.mark.parametrize(
    ("subject", "headers"),
    [
        ("a b", None), ("a\r\nPUB b 0", None), ("a\tb", None), ("", None),
        ("a", {"X": "1\r\nY: 2"}), ("a", {"X": "1\n"}), ("a", {"X\r": "1"}),
    ],
)  # fmt: skip
async def test_a_subject_or_header_that_would_be_misread_is_not_sent(
    subject: str, headers: dict[str, str] | None
) -> None:
    client = Offline()
    client._status = Client.CONNECTED
    with pytest.raises((nats.errors.BadSubjectError, ValueError)):
        client.send([Put("fine", b""), Put(subject, b"", headers)], ["reply", "reply"])
    assert client.unsent == 0
    client.send([Put("fine", b"body", {"X": "1"})], ["reply"])
    assert client._pending == [b"HPUB fine reply 18 22\r\nNATS/1.0\r\nX: 1\r\n\r\nbody\r\n"]
    assert client.unsent == len(client._pending[0])
