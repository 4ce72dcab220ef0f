"""Attempts with shaped bodies: what is sent and signed in each format, and what is not sent at all."""

import asyncio
import base64
import hmac
import json
from typing import Any

import pytest

from actors.configuration.policy import BatchLimits, Policy
from actors.configuration.transform import Shaping, Transform
from actors.machine.event import Event
from actors.machine.outcome import NotSent, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.delivery import body_shaper
from angarium.delivery.http_exchange.transport import Failure, Request, Response
from angarium.delivery.sender import HttpSender

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"email": "a@example.com", "total": 1.0}'
SHAPING = Shaping(Transform(drop=("/email",)), b"")
SHAPED = b'{"total":1.0}'
OK = Response(status=200, headers=(), body=b"", latency_s=0.01, size=0)


def event(position: int = 1, body: bytes = BODY, **members: Any) -> Event:
    return Event(position=position, id=f"e{position}", stored_at=0.0, body=body, **members)


class Wire:
    """A transport that keeps what it was given."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def post(self, request: Request) -> Response | Failure:
        self.requests.append(request)
        return OK

    async def close(self) -> None: ...


class Sending:
    """A sender over such a transport, with a clock that stands still."""

    def __init__(self, **members: Any) -> None:
        self.wire = Wire()
        self.policy = Policy(url="https://example.com/hook", secrets=(SECRET,), **members)
        self._sender = HttpSender(self.wire, clock=lambda: 0.0)

    async def send(self, one: Event, shaping: Shaping | None = SHAPING) -> Outcome:
        return await self._sender.send(Attempt(
            receiver="acme.a", policy=self.policy, event=one, sequence=1, ordinal=1,
            may_start=lambda: True, shapings=(shaping,),
        ))  # fmt: skip

    async def send_batch(self, *pairs: tuple[Event, Shaping | None]) -> Outcome:
        return await self._sender.send(BatchAttempt(
            receiver="acme.a", policy=self.policy, events=tuple(one for one, _ in pairs),
            sequences=tuple(range(1, len(pairs) + 1)), ordinal=1, may_start=lambda: True,
            shapings=tuple(shaping for _, shaping in pairs),
        ))  # fmt: skip

    @property
    def sent(self) -> Any:
        """The body of the only request, as JSON."""
        (request,) = self.wire.requests
        return json.loads(request.body)


async def test_a_raw_body_is_shaped_and_then_signed() -> None:
    sending = Sending()
    await sending.send(event())
    (request,) = sending.wire.requests
    assert request.body == SHAPED
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    digest = base64.b64encode(hmac.digest(key, b"e1.1." + SHAPED, "sha256"))
    assert b"angarium-signature: v1," + digest in request.lines


@pytest.mark.parametrize(("body_format", "place"), [
    ("envelope", lambda sent: sent["events"][0]["data"]),
    ("cloudevents", lambda sent: sent),
    ("cloudevents-structured", lambda sent: sent["data"]),
])  # fmt: skip
async def test_every_format_has_the_shaped_body(body_format: Any, place: Any) -> None:
    sending = Sending(format=body_format)
    await sending.send(event())
    assert place(sending.sent) == {"total": 1.0}


async def test_only_the_body_decides_whether_it_can_be_shaped() -> None:
    sending = Sending()
    await sending.send(event(content_type="text/plain"))
    assert sending.wire.requests[0].body == SHAPED


async def test_each_event_of_a_batch_has_its_own_shape() -> None:
    sending = Sending(batch=BatchLimits())
    other = Shaping(Transform(keep=("/email",)), b"")
    await sending.send_batch((event(1), SHAPING), (event(2), None), (event(3), other))
    assert [each["data"] for each in sending.sent["events"]] == [
        {"total": 1.0}, {"email": "a@example.com", "total": 1.0}, {"email": "a@example.com"}
    ]  # fmt: skip


async def test_the_region_of_the_event_is_in_its_pseudonyms() -> None:
    sending, shaping = Sending(), Shaping(Transform(pseudonymize=("/email",)), b"k" * 32)
    for region in ("", "eu", "us"):
        await sending.send(event(region=region), shaping)
    assert len({json.loads(each.body)["email"] for each in sending.wire.requests}) == 3


async def test_nothing_is_sent_if_one_body_cannot_be_shaped() -> None:
    sending = Sending(batch=BatchLimits())
    found = await sending.send_batch((event(1), SHAPING), (event(2, b"a@example.com"), SHAPING))
    assert isinstance(found, NotSent)
    assert found.unshapeable == (2,)
    assert not sending.wire.requests


async def test_a_large_body_is_shaped_in_a_thread_and_others_go_on() -> None:
    """Tenants take turns, so one that has many large bodies delays another by one of them."""
    large = json.dumps({"email": "x", "items": ["x" * 10] * 20_000}).encode()
    assert large.count(b",") > body_shaper.IN_THE_LOOP_MAX
    sending, ended = Sending(), list[str]()

    async def send(name: str, body: bytes) -> None:
        await sending.send(event(body=body))
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for each in (large, BODY):
            group.create_task(send("large" if each is large else "small", each))
    assert ended == ["small", "large"]
    assert "email" not in json.loads(sending.wire.requests[1].body)
