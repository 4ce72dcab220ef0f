"""Requests that are sent again until there is an answer."""

import asyncio

import pytest

from actors.errors import Unavailable
from streams.nats import replies
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.conftest import MakeStream
from tests.support.waiting import KeptMessages


async def test_a_request_that_may_be_repeated_is_sent_until_there_is_an_answer(
    js: JetStream, wire: Wire, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may be lost with the server that got it."""
    monkeypatch.setattr(replies, "AGAIN_AFTER_S", 0.1)
    await wire.subscribe(prefix, requests := KeptMessages())
    asking = asyncio.ensure_future(js.request(prefix, b"what", timeout_s=60, repeat=True))
    _, again, _ = await requests.first(3)
    await wire.publish(again.reply, b"that")
    assert ((await asking).data, again.data) == (b"that", b"what")


async def test_other_requests_are_sent_once(
    js: JetStream, wire: Wire, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "AGAIN_AFTER_S", 0.1)
    await wire.subscribe(prefix, requests := KeptMessages())
    with pytest.raises(Unavailable, match="no answer in time"):
        await js.request(prefix, b"", timeout_s=0.4)
    assert len(requests.messages) == 1


async def test_a_stream_is_created_even_if_the_first_request_is_lost(
    make_stream: MakeStream, wire: Wire, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "AGAIN_AFTER_S", 0.1)
    lost = list[str]()

    async def lose(subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        lost.append(subject)

    monkeypatch.setattr(wire, "publish", lose)
    created = await make_stream()
    assert (created.last, lost) == (0, [f"$JS.API.STREAM.CREATE.{prefix}"])
