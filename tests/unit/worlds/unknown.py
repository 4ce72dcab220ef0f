"""Floods of unknown receivers, for the tests of their record."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from actors.machine.facts import Burial
from actors.runtime.unknown_receivers.record import UnknownReceiversRecord
from tests.unit.worlds.shard import ShardWorld

UNKNOWN = "acme.nobody"


def names(count: int) -> list[str]:
    return [f"acme.x{number}" for number in range(count)]


def flood(world: ShardWorld, count: int, *, size: int = 2) -> None:
    """Publish an event for each of `count` names."""
    for name in names(count):
        world.publish(receiver=name, body=b"x" * size)


def record_of(world: ShardWorld) -> UnknownReceiversRecord:
    """The record of the shard."""
    assert world.host.residents.unknown is not None
    return world.host.residents.unknown


async def hold_burials(world: ShardWorld) -> Callable[[], None]:
    """No dead letter can be stored until what this returns is called."""
    bury, released = world.dead_letters.bury, asyncio.Event()

    async def hold(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        await released.wait()
        await bury(receiver, burials, answers)

    world.dead_letters.bury = hold  # type: ignore[method-assign]
    return released.set


async def all_buried(world: ShardWorld, count: int) -> None:
    await world.until(lambda: len(world.dead_letters.buried) >= count)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    assert (
        len({each.position for each in world.dead_letters.buried}) == len(world.dead_letters.buried) == count
    )
