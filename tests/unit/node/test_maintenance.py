"""Which shards a node maintains, and when it works for all: as their owner, within its lease."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.tenant_settings import SettingsByTenant
from angarium.node.housekeeping import maintenance
from angarium.node.housekeeping.maintenance import Maintenance
from angarium.node.shard import Shard
from streams.installation.topology import Names
from tests.unit.worlds.virtual_time import in_virtual_time

EPOCH = 7


class OwnedShard(SimpleNamespace):
    """A shard of the node, as far as maintenance looks at it."""

    def __init__(self, number: int) -> None:
        super().__init__(number=number, claim=SimpleNamespace(epoch=EPOCH), is_suspended=False)
        self.ended = asyncio.Event()


def maintained(*shards: OwnedShard) -> Maintenance:
    context = SimpleNamespace(
        js=None, names=Names(), routing=SimpleNamespace(tenant_settings=SettingsByTenant())
    )
    return Maintenance(cast(Any, context), 4, {each.number: cast(Shard, each) for each in shards})


def test_the_owner_of_shard_0_works_for_all_until_it_ends_or_its_lease_expires() -> None:
    first, other = OwnedShard(0), OwnedShard(1)
    maintains = maintained(other, first)
    assert maintains.epoch_of_shard_0() == EPOCH
    first.is_suspended = True
    assert maintains.epoch_of_shard_0() is None
    first.is_suspended = False
    first.ended.set()
    assert maintains.epoch_of_shard_0() is None
    assert maintained(other).epoch_of_shard_0() is None


@pytest.mark.parametrize("number", [0, 1])
@in_virtual_time
async def test_parts_for_all_are_done_by_the_owner_of_shard_0_alone(number: int) -> None:
    done = set[str]()

    async def noted(_: Maintenance, part: str, *__: object) -> None:
        done.add(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Maintenance, "_try", noted)
        running = asyncio.ensure_future(maintained(OwnedShard(number)).run())
        await asyncio.sleep(10 * maintenance.ROUND_EVERY_S)
        running.cancel()
    assert {"order_evicted_deliveries", "move_checkpoints_on", "maintain", "find_leftovers"} <= done
    for_all = {name for name in done if name.startswith(("purge", "bury", "drop"))}
    assert bool(for_all) == (number == 0)
