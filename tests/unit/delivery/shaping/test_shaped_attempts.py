"""Attempts with shaped bodies: what is sent and signed in each format, and what is not sent at all."""

import asyncio
import base64
import hmac
import json
from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.policy import BatchLimits, Policy
from actors.configuration.transform import Shaping, Transform, Unshapeable
from actors.machine.event import Event
from actors.machine.outcome import NotSent, Outcome
from actors.ports import Attempt, BatchAttempt, EventShaping
from angarium.delivery.http_exchange.transport import Failure, Request, Response
from angarium.delivery.sender import HttpSender
from angarium.delivery.shaping.body_shaper import BodyShaper

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"email": "a@example.com", "total": 1.0}'
SHAPING = Shaping(Transform(drop=("/email",)), b"")
SHAPED = b'{"total":1.0}'
KEY = b"k" * 32
PSEUDONYMS = Shaping(Transform(pseudonymize=("/email",)), KEY)
GONE = Unshapeable("its transform is gone")
NO_KEY = Shaping(Transform(drop=("/total",), pseudonymize=("/email",)), b"")
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

    async def send(self, one: Event, shaping: EventShaping = SHAPING) -> Outcome:
        return await self._sender.send(Attempt(
            receiver="acme.a", policy=self.policy, event=one, sequence=1, ordinal=1,
            may_start=lambda: True, shapings=(shaping,),
        ))  # fmt: skip

    async def send_batch(self, *pairs: tuple[Event, EventShaping]) -> Outcome:
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
    sending = Sending()
    for region in ("", "eu", "us"):
        await sending.send(event(region=region), PSEUDONYMS)
    assert len({json.loads(each.body)["email"] for each in sending.wire.requests}) == 3


async def test_nothing_is_sent_if_one_body_cannot_be_shaped() -> None:
    sending = Sending(batch=BatchLimits())
    found = await sending.send_batch((event(1), SHAPING), (event(2, b"a@example.com"), SHAPING))
    assert isinstance(found, NotSent)
    assert found.unshapeable == (2,)
    assert not sending.wire.requests


@pytest.mark.parametrize("shaping", [GONE, NO_KEY], ids=["transform", "key"])
async def test_no_original_is_sent_for_want_of_a_transform_or_a_key(shaping: EventShaping) -> None:
    """The machine gives such an event up before; this is the last place at which it can be held back."""
    alone, together = Sending(), Sending(batch=BatchLimits())
    for found in (
        await alone.send(event(2), shaping),
        await alone.send(event(2, LARGE), shaping),
        await together.send_batch((event(1), SHAPING), (event(2), shaping), (event(3), None)),
        await together.send_batch((event(1, LARGE), SHAPING), (event(2, LARGE), shaping)),
    ):
        assert isinstance(found, NotSent)
        assert found.unshapeable == (2,)
    assert not alone.wire.requests
    assert not together.wire.requests


async def test_an_attempt_has_to_say_how_its_bodies_are_shaped() -> None:
    """An attempt that forgets it would send the originals."""
    members: dict[str, Any] = {"receiver": "acme.a", "policy": Sending().policy, "ordinal": 1}
    members["may_start"] = lambda: True
    with pytest.raises(TypeError, match="shapings"):
        Attempt(**members, event=event(), sequence=1)
    with pytest.raises(TypeError, match="shapings"):
        BatchAttempt(**members, events=(event(),), sequences=(1,))


LARGE = json.dumps({"email": "x", "items": ["x" * 10] * 20_000}).encode()


async def test_a_large_body_is_shaped_in_a_thread_and_others_go_on() -> None:
    sending, ended = Sending(), list[str]()

    async def send(name: str, body: bytes) -> None:
        await sending.send(event(body=body))
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for name, body in (("large", LARGE), ("small", BODY)):
            group.create_task(send(name, body))
    assert ended == ["small", "large"]
    assert "email" not in json.loads(sending.wire.requests[1].body)


async def order_of(*attempts: BatchAttempt) -> list[str]:
    """The receivers of these attempts in the order in which their bodies are shaped."""
    shaper, ended = BodyShaper(), list[str]()

    async def shape(attempt: BatchAttempt) -> None:
        found = await shaper.shaped(attempt)
        assert isinstance(found, BatchAttempt)
        ended.append(attempt.receiver)

    async with asyncio.TaskGroup() as group:
        for attempt in attempts:
            group.create_task(shape(attempt))
    return ended


def batch(receiver: str, body: bytes, count: int, shaping: Shaping = SHAPING) -> BatchAttempt:
    return BatchAttempt(
        receiver=receiver, policy=Sending().policy, ordinal=1, may_start=lambda: True,
        events=tuple(event(each, body) for each in range(1, count + 1)),
        sequences=tuple(range(1, count + 1)), shapings=(shaping,) * count,
    )  # fmt: skip


async def test_a_batch_has_a_turn_for_each_large_body() -> None:
    """The thread of a node is one: other tenants would wait for a whole batch of 1 MiB."""
    assert await order_of(batch("many.a", LARGE, 4), batch("few.a", LARGE, 1)) == ["few.a", "many.a"]


async def test_the_events_of_a_batch_keep_their_order_in_all_turns() -> None:
    many = batch("many.a", b"", 300)
    many = replace(many, events=tuple(event(each, b'{"id":%d,"email":1}' % each) for each in range(300)))
    found = await BodyShaper().shaped(many)
    assert isinstance(found, BatchAttempt)
    assert [each.body for each in found.events] == [b'{"id":%d}' % each for each in range(300)]


@pytest.mark.parametrize(("body", "count", "transform"), [
    (b"1", 257, Transform(drop=("/a",))),
    (b"[%s]" % b",".join([b"1"] * 250), 1, Transform(drop=("/a",))),
    (b'{"a":' * 100 + b"1" + b"}" * 100, 3, Transform(drop=("/a",))),
    (b"[" * 100 + b"1" + b"]" * 100, 3, Transform(drop=("/a",))),
    (b'"%s"' % (b"x" * 64 * 256), 1, Transform(drop=("/a",))),
    (b"{}", 15, Transform(drop=tuple(f"/{name}" for name in range(64)))),
    (b"{}", 44, Transform(keep=("/a",), drop=("/b",), pseudonymize=("/c",))),
], ids=["events", "values", "objects", "arrays", "bytes", "pointers", "lists"])  # fmt: skip
async def test_a_heavy_batch_is_shaped_in_a_thread(body: bytes, count: int, transform: Transform) -> None:
    """Small bodies were once shaped in the loop, whatever they had in them: 256 of them took 100 ms."""
    heavy, light = batch("heavy.a", body, count, Shaping(transform, KEY)), batch("light.a", BODY, 1)
    assert await order_of(heavy, light) == ["light.a", "heavy.a"]


async def test_a_light_batch_is_shaped_in_the_loop() -> None:
    assert await order_of(batch("one.a", BODY, 80), batch("two.a", BODY, 1)) == ["one.a", "two.a"]
