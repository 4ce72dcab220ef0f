"""Receivers while their node still reads the configurations: what it knows may long have been replaced."""

from tests.unit.worlds.shard import RECEIVER, strict
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time


@in_virtual_time
async def test_the_leader_says_which_configuration_is_in_force() -> None:
    world = strict(paused=True)
    world.policies.is_complete = False
    world.policies.known[RECEIVER] = policy()
    world.publish(2)
    await world.until(lambda: world.state.parked)
    world.host.configuration_changed(RECEIVER, policy())
    await world.pass_time(5)
    assert world.sender.numbers == []


@in_virtual_time
async def test_a_configuration_or_removal_that_is_read_activates_no_receiver() -> None:
    world = strict()
    world.policies.is_complete = False
    world.policies.remove("acme.removed", world.clock.now())
    world.host.configuration_changed("acme.removed", None)
    world.host.configuration_changed("acme.idle", policy())
    assert not world.host.actors
