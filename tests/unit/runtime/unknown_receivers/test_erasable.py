"""Events for unknown receivers that may be erased: the journal records that no receiver gets them."""

from actors.machine import facts as f
from tests.unit.worlds.shard import ShardWorld
from tests.unit.worlds.unknown import UNKNOWN, hold_burials
from tests.unit.worlds.virtual_time import in_virtual_time

FIRST = 1


@in_virtual_time
async def test_an_event_may_not_be_erased_before_that_is_confirmed() -> None:
    world = ShardWorld()
    world.journal.hold_at = f.TurnedAway
    world.publish(receiver=UNKNOWN)
    await world.pass_time(5.0)
    assert not world.host.has_turned_away([FIRST])
    world.journal.let_go()
    await world.until(lambda: world.host.has_turned_away([FIRST]))
    assert not world.host.has_turned_away([FIRST, FIRST + 1])


@in_virtual_time
async def test_an_event_may_not_be_erased_while_its_dead_letter_is_being_stored() -> None:
    world = ShardWorld()
    go_on = await hold_burials(world)
    world.publish(receiver=UNKNOWN)
    await world.pass_time(5.0)
    assert world.host.has_turned_away([])
    assert not world.host.has_turned_away([FIRST])
    go_on()
    await world.until(lambda: world.host.has_turned_away([FIRST]))
