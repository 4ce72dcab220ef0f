"""The POST of a batch: its id, its numbers, its body and its signatures."""

import asyncio
import base64
import hmac
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.policy import BatchLimits, Policy, Retry
from actors.machine.event import Event
from actors.ports import BatchAttempt
from angarium.delivery.formats import envelope
from angarium.delivery.http_exchange.transport import Request, Response
from angarium.delivery.sender import HttpSender

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BATCHED = Policy(url="https://example.com/hook", secrets=(SECRET,), batch=BatchLimits())
EVENT = Event(position=7, id="a", stored_at=1614265330.0, body=b'{"a": 1}', type="order.created")
EVENTS = (EVENT, replace(EVENT, position=9, id="b", again="replay-1"))


def signed(content: bytes) -> str:
    """Signs with the standard library alone."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()


class BatchPost:
    """A sender of batches over a transport that keeps what it was given, with a clock that stands still."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def post(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(status=200, headers=(), body=b"", latency_s=0.25, size=100)

    async def close(self) -> None: ...

    def send_batch(self, *events: Event, numbers: Sequence[int] = (17, 19), **fields: Any) -> dict[str, str]:
        attempt: dict[str, Any] = {
            "receiver": "acme.billing", "policy": BATCHED, "events": events or EVENTS,
            "sequences": tuple(numbers), "ordinal": 3, "may_start": lambda: True, "shapings": (),
        }  # fmt: skip
        sender = HttpSender(self, clock=lambda: 1614265330.9)
        asyncio.run(sender.send(BatchAttempt(**(attempt | fields))))
        pairs = [line.decode("latin-1").split(": ", 1) for line in self.requests[-1].lines]
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return self.requests[-1].body


def test_a_batch_is_an_envelope_of_its_events_with_their_numbers() -> None:
    post = BatchPost()
    headers = post.send_batch()
    assert post.body == envelope([(EVENTS[0], 17), (EVENTS[1], 19)])
    assert headers["content-type"] == "application/json"
    assert (headers["angarium-event"], headers["angarium-attempt"]) == ("angarium.batch", "3")
    assert "angarium-again" not in headers


def test_the_id_of_a_batch_holds_its_first_and_last_number() -> None:
    """By the ids of its events, other batches could have the same id: an event comes again under its id."""
    post = BatchPost()
    headers = post.send_batch()
    assert (headers["webhook-id"], headers["angarium-sequence"]) == ("acme.billing:17-19", "17-19")
    alone = post.send_batch(EVENTS[0], numbers=(17,))
    assert (alone["webhook-id"], alone["angarium-sequence"]) == ("acme.billing:17-17", "17-17")


def test_both_signatures_of_a_batch_cover_what_is_sent() -> None:
    post = BatchPost()
    headers = post.send_batch()
    stamped, numbered = b"acme.billing:17-19.1614265330.", b"acme.billing:17-19.17-19."
    assert headers["webhook-signature"] == signed(stamped + post.body)
    assert headers["angarium-signature"] == signed(numbered + post.body)


def test_a_batch_has_a_trace_of_its_own() -> None:
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    traceparent = BatchPost().send_batch(replace(EVENT, traceparent=parent), numbers=(1,))["traceparent"]
    assert "1" * 32 not in traceparent


@pytest.mark.parametrize(("count", "expected"), [(1, None), (2, "4")])
def test_a_batch_of_several_events_is_never_tried_for_the_last_time(count: int, expected: str | None) -> None:
    """The halves have one attempt left; an event that stands alone has none."""
    given = replace(BATCHED, retry=Retry(max_attempts=2))
    headers = BatchPost().send_batch(*EVENTS[:count], numbers=(17, 19)[:count], policy=given, failures=1)
    assert headers.get("angarium-next-attempt-s") == expected
