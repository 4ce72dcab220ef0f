"""Requests about one receiver, and the nodes as a micro service."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from actors.errors import Unavailable
from streams.control_requests import bounded_subscription
from streams.control_requests.micro_service import Identity, MicroService
from streams.control_requests.requests import (
    BODY_BYTES_MAX,
    ControlRequest,
    ControlServer,
    Denied,
    Granted,
)
from streams.installation.topology import Names
from streams.nats.inboxes import Inboxes
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.support.waiting import KeptMessages, until, until_true

RECEIVER = "acme.billing"


class Handler:
    """Owns what belongs to acme."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []
        self.waiting: asyncio.Event | None = None

    def owns(self, receiver: str) -> bool:
        return receiver.startswith("acme.")

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        self.requests.append(request)
        if self.waiting is not None:
            await self.waiting.wait()
        match request.verb:
            case "inspect":
                return Granted({"receiver": request.receiver, "queued": 3})
            case "flood":
                return Granted({"receiver": "x" * (2 << 20)})
            case "break":
                raise RuntimeError("whsec_secret")
            case _:
                return Denied("unknown_verb", "there is no such verb")


class NodeHandler(Handler):
    """Answers for the node `one`."""

    def owns(self, receiver: str) -> bool:
        return receiver == "_nodes.one"


class OwnerOfAll(Handler):
    """Owns every receiver."""

    def owns(self, receiver: str) -> bool:
        return True


@pytest.fixture
def names(prefix: str) -> Names:
    return Names(prefix)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def control(wire: Wire, names: Names, handler: Handler) -> AsyncIterator[ControlServer]:
    control = ControlServer(wire, names, handler)
    await control.start()
    yield control
    await control.stop()


async def ask(js: JetStream, subject: str, body: bytes = b"") -> Any:
    return msgspec.json.decode((await js.request(subject, body)).data)


async def test_the_owner_answers(
    js: JetStream, names: Names, control: ControlServer, handler: Handler
) -> None:
    answer = await ask(js, names.control("inspect", "acme", "billing"), b"body")
    assert answer == {"ok": True, "receiver": RECEIVER, "queued": 3}
    assert handler.requests == [ControlRequest("inspect", RECEIVER, b"body")]


async def test_only_the_owner_answers(
    js: JetStream, names: Names, control: ControlServer, handler: Handler
) -> None:
    with pytest.raises(Unavailable):
        await js.request(names.control("inspect", "other", "billing"), b"", timeout_s=0.2)
    assert handler.requests == []


@pytest.mark.parametrize(
    ("verb", "name", "body", "code"),
    [
        ("dance", "billing", b"", "unknown_verb"),
        ("inspect", "_x", b"", "invalid_receiver"),
        ("inspect", "billing", bytes(BODY_BYTES_MAX + 1), "too_large"),
        ("flood", "billing", b"", "too_large"),
        ("break", "billing", b"", "internal"),
    ],
)
async def test_an_operation_that_is_not_done_is_denied_in_words(
    js: JetStream, names: Names, control: ControlServer, verb: str, name: str, body: bytes, code: str
) -> None:
    answer = await ask(js, names.control(verb, "acme", name), body)
    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert "whsec_" not in json.dumps(answer)
    assert (control.totals.requests, control.totals.errors) == (1, 1)
    assert control.totals.last_error.startswith(f"{code}: ")


@pytest.mark.parametrize(("body", "headers"), [(bytes(600), None), (b"", {"A": "a" * 600})])
async def test_too_many_bytes_are_left_to_the_server_for_a_while(
    js: JetStream, wire: Wire, names: Names, control: ControlServer, handler: Handler,
    monkeypatch: pytest.MonkeyPatch, body: bytes, headers: dict[str, str] | None,
) -> None:  # fmt: skip
    """Otherwise the server would cut the connection that also carries the heartbeats."""
    monkeypatch.setattr(bounded_subscription, "RECEIVED_BYTES_MAX", 1000)
    monkeypatch.setattr(bounded_subscription, "UNSUBSCRIBED_FOR_S", 0.5)
    subject = names.control("inspect", "acme", "billing")
    for _ in range(5):
        await wire.publish(subject, body, wire.new_inbox(), headers)
    with pytest.raises(Unavailable):
        await js.request(subject, b"", timeout_s=0.2)
    assert len(handler.requests) == 1

    async def heard_again() -> bool:
        with suppress(Unavailable):
            return json.loads((await js.request(subject, b"", timeout_s=0.2)).data)["ok"] is True
        return False

    await until_true(heard_again)


async def test_more_than_can_be_under_way_is_denied(
    js: JetStream,
    wire: Wire,
    names: Names,
    control: ControlServer,
    handler: Handler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streams.control_requests.requests.UNDER_WAY_MAX", 2)
    handler.waiting = asyncio.Event()
    seen, inbox = KeptMessages(), wire.new_inbox()
    await wire.subscribe(inbox, seen)
    for _ in range(2):
        await wire.publish(names.control("inspect", "acme", "billing"), b"", inbox)
    await until(lambda: len(handler.requests) == 2)
    answer = await ask(js, names.control("inspect", "acme", "billing"))
    assert answer["error"]["code"] == "busy"
    handler.waiting.set()
    answers = [msgspec.json.decode(message.data) for message in await seen.first(2)]
    assert [answer["ok"] for answer in answers] == [True, True]


@pytest.mark.parametrize(
    "asked", ["{prefix}.ctl.inspect.acme.billing", "$SRV.PING", "$SRV.INFO", "$SRV.STATS"]
)
@pytest.mark.parametrize(
    "reply", ["{prefix}.journal.0", "$KV.{prefix}_receivers.acme.x", "_INBOX_{prefix}.x"]
)
async def test_a_reply_subject_that_is_not_an_inbox_gets_no_answer(
    js: JetStream,
    wire: Wire,
    prefix: str,
    control: ControlServer,
    service: MicroService,
    asked: str,
    reply: str,
) -> None:
    """An answer would be stored under our own permissions, wherever the one who asks names."""
    asked, reply = asked.format(prefix=prefix), reply.format(prefix=prefix)
    stream = f"{prefix.upper()}_CAPTURED"
    await js.stream_create({"name": stream, "subjects": [reply]})
    await wire.publish(asked, b"", reply)
    await js.request(asked, b"")
    info = await js.stream_info(stream)
    assert info is not None
    assert info.messages == 0


async def test_another_inbox_prefix_is_answered_if_the_settings_name_it(
    wire: Wire, names: Names, handler: Handler
) -> None:
    control = ControlServer(wire, names, handler, Inboxes("_INBOX_other"))
    await control.start()
    seen = KeptMessages()
    await wire.subscribe("_INBOX_other.x", seen)
    await wire.publish(names.control("inspect", "acme", "billing"), b"", "_INBOX_other.x")
    (answer,) = await seen.first(1)
    assert msgspec.json.decode(answer.data)["ok"] is True
    await control.stop()


async def test_after_stop_there_is_no_answer(
    js: JetStream, names: Names, control: ControlServer, handler: Handler
) -> None:
    handler.waiting = asyncio.Event()
    subject = names.control("inspect", "acme", "billing")
    asked = asyncio.ensure_future(js.request(subject, b"", timeout_s=0.5))
    await until(lambda: len(handler.requests) == 1)
    await control.stop()
    with pytest.raises(Unavailable):
        await asked
    with pytest.raises(Unavailable):
        await js.request(subject, b"", timeout_s=0.5)
    assert len(handler.requests) == 1


@pytest.fixture
async def service(wire: Wire, prefix: str, control: ControlServer) -> AsyncIterator[MicroService]:
    identity = Identity(
        name=prefix, id="node-1", version="1.2.3", started_at=1700000000.25, metadata={"shards": "64"}
    )
    service = MicroService(wire, identity, control.subject, control.totals, lambda: {"owned": 7})
    await service.start()
    yield service
    await service.stop()


@pytest.mark.parametrize("tail", ["", ".{name}", ".{name}.node-1"])
async def test_any_client_finds_a_node(js: JetStream, prefix: str, service: MicroService, tail: str) -> None:
    asked = tail.format(name=prefix)
    ping = await ask(js, f"$SRV.PING{asked}")
    assert ping == {
        "type": "io.nats.micro.v1.ping_response",
        "name": prefix,
        "id": "node-1",
        "version": "1.2.3",
        "metadata": {"shards": "64"},
    }
    assert (await ask(js, f"$SRV.INFO{asked}"))["type"] == "io.nats.micro.v1.info_response"
    assert (await ask(js, f"$SRV.STATS{asked}"))["type"] == "io.nats.micro.v1.stats_response"


async def test_a_node_answers_as_a_micro_service(
    js: JetStream, prefix: str, names: Names, service: MicroService
) -> None:
    await ask(js, names.control("inspect", "acme", "billing"))
    await ask(js, names.control("dance", "acme", "billing"))
    ping = ServicePing.from_dict(await ask(js, f"$SRV.PING.{prefix}"))
    info = ServiceInfo.from_dict(await ask(js, f"$SRV.INFO.{prefix}"))
    stats = ServiceStats.from_dict(await ask(js, f"$SRV.STATS.{prefix}"))
    assert (ping.id, info.id, stats.id) == ("node-1",) * 3
    assert info.description
    assert [(each.name, each.subject) for each in info.endpoints] == [("ctl", f"{prefix}.ctl.*.*.*")]
    (endpoint,) = stats.endpoints
    assert (endpoint.num_requests, endpoint.num_errors) == (2, 1)
    assert endpoint.last_error == "unknown_verb: there is no such verb"
    assert 0 <= endpoint.average_processing_time <= endpoint.processing_time
    assert endpoint.data == {"owned": 7}


async def test_when_it_started_is_an_instant(js: JetStream, prefix: str, service: MicroService) -> None:
    assert (await ask(js, f"$SRV.STATS.{prefix}"))["started"] == "2023-11-14T22:13:20.250Z"


async def test_a_service_that_stopped_is_not_found(js: JetStream, prefix: str, service: MicroService) -> None:
    await service.stop()
    with pytest.raises(Unavailable):
        await js.request(f"$SRV.PING.{prefix}", b"", timeout_s=0.2)


async def test_a_request_to_a_node_is_answered_by_that_node_alone(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The owner of the shard of a receiver with such a name says nothing."""
    node = NodeHandler()
    control = ControlServer(wire, names, OwnerOfAll(), node_handler=node)
    await control.start()
    assert (await ask(js, names.control("inspect", "_nodes", "one")))["receiver"] == "_nodes.one"
    with pytest.raises(Unavailable):
        await js.request(names.control("inspect", "_nodes", "two"), b"", timeout_s=0.2)
    await control.stop()
    assert [each.receiver for each in node.requests] == ["_nodes.one"]
