"""Requests that somebody waits for are answered, whatever becomes of the shard."""

from collections.abc import Callable

import msgspec
import pytest

from actors.runtime.discarding import forget
from streams.control import Control, Denied, Done, Request
from streams.installation.topology import Names
from streams.nats.wire import Message
from tests.unit.shard_world import ShardWorld, in_virtual_time, strict


class Desk:
    """Forgets the receiver of a shard."""

    def __init__(self, world: ShardWorld) -> None:
        self._world = world

    def owns(self, receiver: str) -> bool:
        return True

    async def deal(self, request: Request) -> Done | Denied:
        return Done({"discarded": await forget(self._world.shell)})


class Wire:
    """Keeps what is published, and what hears the requests; it is its own subscription."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    async def publish(self, subject: str, data: bytes) -> None:
        self.answers.append(data)

    async def subscribe(self, subject: str, handler: Callable[[Message], None]) -> "Wire":
        self.hear = handler
        return self

    async def unsubscribe(self) -> None:
        """Nothing more comes."""


@in_virtual_time
@pytest.mark.parametrize("node_ends", [False, True])
async def test_who_asks_of_a_shard_that_ends_is_told_to_ask_again(node_ends: bool) -> None:
    """A node that stops tells nothing: its connection ends as well."""
    world, wire, names = strict(), Wire(), Names()
    world.sender.latency_s = 5.0
    world.publish()
    await world.until(lambda: bool(world.sender.made))
    control = Control(wire, names, Desk(world))  # type: ignore[arg-type]
    await control.start()
    wire.hear(Message(names.control("forget", "acme", "billing"), b"", "_INBOX.x"))
    await world.pass_time(1)
    if node_ends:
        await control.stop()
    world.host.stop()
    await world.pass_time(1)
    codes = [msgspec.json.decode(each)["error"]["code"] for each in wire.answers]
    assert codes == ([] if node_ends else ["unavailable"])
