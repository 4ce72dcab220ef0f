"""Requests of waiting clients are answered, whatever happens to the shard; floods are bounded."""

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from actors.runtime.operator_actions.forget import forget
from streams.control_requests.micro_service import ANSWERS_AT_ONCE, Identity, MicroService
from streams.control_requests.requests import (
    TENANT_UNDER_WAY_MAX,
    UNDER_WAY_MAX,
    ControlRequest,
    ControlServer,
    ControlTotals,
    Denied,
    Granted,
)
from streams.installation.topology import Names
from streams.nats.wire import Message
from tests.support.waiting import until
from tests.unit.worlds.shard import ShardWorld, strict
from tests.unit.worlds.virtual_time import in_virtual_time


class Handler:
    """Forgets the receiver of a shard."""

    def __init__(self, world: ShardWorld) -> None:
        self._world = world

    def owns(self, receiver: str) -> bool:
        return True

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        return Granted({"discarded": await forget(self._world.actor)})


class Wire:
    """Keeps what is published, and what hears the requests; it is its own subscription."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    async def publish(self, subject: str, data: bytes) -> None:
        self.answers.append(data)

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, headers: bool = True
    ) -> "Wire":
        self.hear = handler
        return self

    async def unsubscribe(self) -> None:
        """Ends the subscription."""


@in_virtual_time
@pytest.mark.parametrize("node_ends", [False, True])
async def test_a_request_to_a_shard_that_ends_is_answered_unavailable(node_ends: bool) -> None:
    """A node that stops says nothing: its connection ends as well."""
    world, wire, names = strict(), Wire(), Names()
    world.sender.latency_s = 5.0
    world.publish()
    await world.until(lambda: bool(world.sender.made))
    control = ControlServer(wire, names, Handler(world))  # type: ignore[arg-type]
    await control.start()
    wire.hear(Message(names.control("forget", "acme", "billing"), b"", "_INBOX.x"))
    await world.pass_time(1)
    if node_ends:
        await control.stop()
    world.host.stop()
    await world.pass_time(1)
    codes = [msgspec.json.decode(each)["error"]["code"] for each in wire.answers]
    assert codes == ([] if node_ends else ["unavailable"])


class Stuck(Wire):
    """Sends nothing before it is `free`."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def publish(self, subject: str, data: bytes) -> None:
        await self.free.wait()
        await super().publish(subject, data)


async def test_a_flood_of_questions_about_the_service_costs_a_bounded_number_of_answers() -> None:
    """A client that may list the nodes must not be able to fill their memory, nor to hold them up."""
    wire, encoded = Stuck(), 0

    def data() -> dict[str, int]:
        nonlocal encoded
        encoded += 1
        return {}

    identity = Identity(name="angarium", id="n1", version="1.2.3", started_at=0.0)
    totals = ControlTotals()
    service = MicroService(wire, identity, "angarium.ctl.*.*.*", totals, data)  # type: ignore[arg-type]
    await service.start()
    before = len(asyncio.all_tasks())
    for _ in range(1000):
        wire.hear(Message("$SRV.STATS", b"", "_INBOX.x"))
    assert encoded == len(asyncio.all_tasks()) - before == ANSWERS_AT_ONCE
    wire.free.set()
    await service.stop()
    assert len(wire.answers) == ANSWERS_AT_ONCE


async def test_beyond_the_largest_number_of_denials_nothing_is_answered() -> None:
    wire, names = Stuck(), Names()
    control = ControlServer(wire, names, Busy())  # type: ignore[arg-type]
    await control.start()
    before = len(asyncio.all_tasks())
    for _ in range(10 * UNDER_WAY_MAX):
        wire.hear(Message(names.control("inspect", "acme", "billing"), b"", "_INBOX.x"))
    assert len(asyncio.all_tasks()) - before == 2 * UNDER_WAY_MAX
    await control.stop()


async def test_one_tenant_leaves_room_for_the_requests_of_others() -> None:
    wire, names = Stuck(), Names()
    wire.free.set()
    handler = Busy()
    control = ControlServer(wire, names, handler)  # type: ignore[arg-type]
    await control.start()
    for _ in range(2 * TENANT_UNDER_WAY_MAX):
        wire.hear(Message(names.control("inspect", "acme", "billing"), b"", "_INBOX.x"))
    wire.hear(Message(names.control("inspect", "other", "billing"), b"", "_INBOX.x"))
    await until(lambda: len(wire.answers) == TENANT_UNDER_WAY_MAX)
    assert Counter(each.receiver for each in handler.requests) == {
        "acme.billing": TENANT_UNDER_WAY_MAX, "other.billing": 1,
    }  # fmt: skip
    await control.stop()


class Busy:
    """Is not done with anything."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []

    def owns(self, receiver: str) -> bool:
        return True

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        self.requests.append(request)
        await asyncio.Event().wait()
        raise AssertionError
