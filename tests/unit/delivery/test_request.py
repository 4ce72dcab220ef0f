"""One request leaves, with our headers, whatever producers, receivers' owners and operators write.

Everything goes the way that it goes in a node (the readers of messages and configurations, the sender, the
head of the request), and what leaves is read by a parser that is not ours.
"""

import asyncio
from typing import Any

import httptools
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from actors.machine.outcome import Failed
from actors.ports import Attempt
from angarium import __version__
from angarium.delivery.http_exchange.transport import Failure, Request, Response, request_head
from angarium.delivery.sender import HttpSender
from streams.nats.wire_names import (
    CONTENT_TYPE,
    EVENT_AGAIN,
    EVENT_ID,
    EVENT_SOURCE,
    EVENT_TYPE,
    MESSAGE_ID,
    TRACEPARENT,
    TRACESTATE,
)
from streams.reading import messages

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://hook.example/path"
BODY = b'{"a": 1}'
SMUGGLED = "x\r\nangarium-sequence: 9\r\ncontent-length: 0\r\n\r\nPOST /other HTTP/1.1\r\nhost: b\r\n\r\n"

OURS = {
    "host", "content-length", "content-type", "user-agent", "traceparent", "webhook-id", "webhook-timestamp",
    "webhook-signature", "angarium-sequence", "angarium-signature", "angarium-event", "angarium-attempt",
}  # fmt: skip
NOW_AND_THEN = {"angarium-again", "tracestate"}
NEVER = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "expect",
}  # fmt: skip
PUBLISHED = (
    EVENT_ID, MESSAGE_ID, EVENT_TYPE, EVENT_SOURCE, EVENT_AGAIN, CONTENT_TYPE,
    TRACEPARENT, TRACESTATE, "X-Private", "Authorization", "Host",
)  # fmt: skip

tokens = st.text("abcXYZ019_-.:=; \t\r\n\0\x7f\x80é\u2028\ud800", max_size=24)
texts = tokens | st.sampled_from([SMUGGLED, "\r\n", "\n", "\r", "a\nb", "\x85"])
known = st.sampled_from(sorted(OURS | NOW_AND_THEN | NEVER))
names = known | known.map(str.title) | tokens.map(lambda text: f"x-{text}") | texts


class Wire:
    """A transport that writes its requests down, as they would leave."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def post(self, request: Request) -> Response | Failure:
        self.heads.append(request_head(request))
        return Response(status=200, headers=(), body=b"", latency_s=0.0, size=38)

    async def close(self) -> None: ...


class Read:
    """Requests as httptools reads them: strictly, as receivers do."""

    def __init__(self, data: bytes) -> None:
        self.requests = 0
        self.url = b""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        httptools.HttpRequestParser(self).feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.requests += 1


def sent(policy: Policy, published: dict[str, str]) -> Read | None:
    """The request for an event; None if its URL is refused."""
    wire = Wire()
    event = messages.event_of(7, 1_700_000_000.0, published, BODY)
    attempt = Attempt(
        receiver="acme.billing",
        policy=policy,
        event=event,
        sequence=41,
        ordinal=3,
        may_start=lambda: True,
        shapings=(),
    )
    outcome = asyncio.run(HttpSender(wire).send(attempt))
    if isinstance(outcome, Failed):
        assert outcome.detail.startswith("url: ")
        return None
    (head,) = wire.heads
    return Read(head + BODY)


def configured(**members: Any) -> Policy | None:
    """The policy as a node takes it from the bucket; None if it takes none."""
    try:
        return parse(msgspec.json.encode({"url": URL, "secrets": [SECRET], **members}), strict=False)[0]
    except (InvalidPolicy, UnicodeEncodeError):
        return None


def assert_ours(read: Read, own: dict[str, str]) -> None:
    """One request with each of our headers once and as we set it, and of others the receiver's own alone."""
    assert (read.requests, read.body) == (1, BODY)
    found = dict(read.headers)
    assert len(found) == len(read.headers), "a header came twice"
    assert found.keys() >= OURS
    assert not found.keys() & NEVER
    assert found.keys() - OURS - NOW_AND_THEN <= {name.lower() for name in own}
    assert found["host"] == "hook.example"
    assert found["content-length"] == str(len(BODY))
    assert (found["angarium-sequence"], found["angarium-attempt"]) == ("41", "3")
    assert found["user-agent"] == f"Angarium/{__version__}"


@given(st.dictionaries(st.sampled_from(PUBLISHED), texts))
@example(dict.fromkeys(PUBLISHED, SMUGGLED))
def test_no_header_of_a_producer_breaks_out_of_its_line(published: dict[str, str]) -> None:
    policy = configured()
    assert policy is not None
    read = sent(policy, published)
    assert read is not None
    assert_ours(read, {})


@given(st.dictionaries(names, texts, max_size=6))
@example(dict.fromkeys(sorted(OURS | NOW_AND_THEN | NEVER), "mine"))
@example({"X-Own": "1", "x-own": "2"})
@example({"x-own": SMUGGLED})
@example({SMUGGLED: "mine"})
def test_no_header_of_a_receiver_doubles_or_undoes_ours(headers: dict[str, str]) -> None:
    for given_headers in (headers, *({name: value} for name, value in headers.items())):
        policy = configured(headers=given_headers)
        if policy is not None:
            read = sent(policy, {"tracestate": "a=b"})
            assert read is not None
            assert_ours(read, given_headers)


@given(texts)
@example("hook.example/" + SMUGGLED)
@example(SMUGGLED)
def test_no_url_breaks_out_of_the_first_line(text: str) -> None:
    for url in (f"https://{text}", f"https://hook.example/{text}", f"https://hook.example:{text}"):
        policy = configured(url=url)
        if policy is not None and (read := sent(policy, {})) is not None:
            assert read.requests == 1
            assert not set(b"\r\n \t\0") & set(read.url)


def test_the_headers_that_make_no_request_are_refused_by_name() -> None:
    for name in ("Host", "content-length", "transfer-encoding", "TE", "Connection", "Webhook-Id"):
        with pytest.raises(InvalidPolicy, match=name):
            parse(msgspec.json.encode({"url": URL, "headers": {name: "x"}}), strict=False)
    for name in sorted(NEVER - {"connection", "te", "transfer-encoding"} | {"User-Agent", "Content-Type"}):
        with pytest.raises(InvalidPolicy, match=name):
            parse(msgspec.json.encode({"url": URL, "headers": {name: "x"}}), strict=True)
    with pytest.raises(InvalidPolicy, match=r"headers\.x-own: given twice"):
        parse(msgspec.json.encode({"url": URL, "headers": {"X-Own": "1", "x-own": "2"}}), strict=True)
