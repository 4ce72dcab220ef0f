"""A takeover with many parked actors: the earliest due comes first, and no receiver waits for all others."""

import asyncio

import pytest

from actors.machine import facts as f
from actors.machine.numbering import Frontier
from actors.machine.state import State
from actors.runtime.actor import Actor
from actors.runtime.host import PASSIVATE_AFTER_S
from actors.runtime.residents import LOADS_AT_ONCE, WOKEN_IN_TURN_MAX
from streams.journal.load_slots import LoadSlots
from tests.unit.worlds.shard import RECEIVER, ShardWorld, Snapshots
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time

MANY = 3000
LOAD_S = 0.01


class SlowSnapshots(Snapshots):
    """One at a time, and each takes its time. `loaded` are those that were read, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = LoadSlots(1)
        self.loaded: list[str] = []

    async def load(self, receiver: str, due: float = 0.0) -> State | None:
        async with self.slots.slot(due):
            found = self.held.get(receiver)
            await asyncio.sleep(LOAD_S)
            self.loaded.append(receiver)
            return found


def parked(receiver: str, until: float = 0.0) -> State:
    return State(
        receiver=receiver, opened=True, parked=True, backoff_until=until, frontier=Frontier(size=256)
    )


def taken_over(*states: State) -> ShardWorld:
    """A world in which these actors come back from their snapshots."""
    world = ShardWorld(policy())
    world.snapshots = SlowSnapshots()
    world.journal.folded = {each.receiver: each for each in states}
    for state in states:
        world.policies.known[state.receiver] = world.policies.leader[state.receiver] = policy()
    world.crash(snapshots=True)
    return world


def loaded(world: ShardWorld) -> list[str]:
    assert isinstance(world.snapshots, SlowSnapshots)
    return world.snapshots.loaded


@in_virtual_time
async def test_the_earliest_wake_up_comes_first() -> None:
    disabled = State(receiver="acme.told", parked=True, disabled="gone")
    many = [parked(f"acme.r{number}", 1000.0 - number) for number in range(100)]
    world = taken_over(disabled, *many)
    await world.until(lambda: not world.host.residents.not_loaded)
    # As many as there are loaders are on their way before any other is known of.
    assert loaded(world)[-1] == "acme.told"
    assert loaded(world)[LOADS_AT_ONCE:-1] == [
        f"acme.r{number}" for number in range(99 - LOADS_AT_ONCE, -1, -1)
    ]


@in_virtual_time
async def test_an_event_for_a_parked_actor_does_not_wait_for_all_others() -> None:
    world = taken_over(*(parked(f"acme.r{number}", 1.0) for number in range(MANY)), parked(RECEIVER, 1e9))
    await world.pass_time(1.0)
    assert RECEIVER in world.host.residents.not_loaded
    world.publish()
    await world.until(lambda: RECEIVER not in world.host.residents.not_loaded, within_s=3 * LOAD_S)
    assert len(world.host.residents.not_loaded) > MANY - 200


@in_virtual_time
async def test_an_actor_that_is_not_parked_does_not_wait_for_them_either() -> None:
    world = taken_over(*(parked(f"acme.r{number}", 1.0) for number in range(MANY)))
    world.publish()
    await world.until_settled(1)
    assert len(world.host.residents.not_loaded) > MANY - 200


@in_virtual_time
async def test_a_snapshot_that_was_read_too_slowly_is_not_used() -> None:
    """The actor came for an event meanwhile, has done something since, and is at rest again."""
    world = taken_over(parked(RECEIVER, 1e9))
    read, going_on = world.snapshots.held[RECEIVER], asyncio.Event()

    async def load(receiver: str, due: float = 0.0) -> State:
        if due:
            await going_on.wait()
        return read

    world.snapshots.load = load  # type: ignore[method-assign]
    world.crash(snapshots=True)
    await world.pass_time(0.1)
    world.put(policy(url="https://example.com/other"))
    world.publish()
    await world.until(lambda: world.state.frontier.position == 1 and not world.state.parked)
    await world.pass_time(1.0)
    world.host.unsaved.take()
    world.host.snapshots_written()
    await world.until(lambda: RECEIVER not in world.host.actors, within_s=2 * PASSIVATE_AFTER_S)
    going_on.set()
    await world.pass_time(1.0)
    assert RECEIVER not in world.host.actors


@in_virtual_time
async def test_nothing_more_is_dispensable_until_all_are_back() -> None:
    world = taken_over(*(parked(f"acme.r{number}", 1.0) for number in range(10)))
    world.publish(3)
    await world.until(lambda: world.journal.floor == 3)
    assert world.host.residents.not_loaded
    assert world.host.needed().position == 0
    await world.until(lambda: not world.host.residents.not_loaded)
    await world.until(lambda: not world.host.parked)
    assert world.host.needed().position == 4


@pytest.mark.parametrize("known", [True, False])
@in_virtual_time
async def test_many_come_and_are_woken_in_turns(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands at once would keep all others of the node waiting."""
    world, advance, in_turn, turn = ShardWorld(policy()), Actor.wake, list[int](), 0

    def pass_on() -> None:
        nonlocal turn
        turn += 1

    def note(actor: Actor) -> None:
        in_turn.append(turn)
        asyncio.get_running_loop().call_soon(pass_on)
        advance(actor)

    monkeypatch.setattr(Actor, "wake", note)
    world.journal.folded = {
        f"acme.r{number}": parked(f"acme.r{number}", 1e9) for number in range(10 * WOKEN_IN_TURN_MAX)
    }
    world.policies.known.update(dict.fromkeys(world.journal.folded, policy()))
    world.crash(snapshots=not known)
    await world.until(lambda: len(in_turn) >= 10 * WOKEN_IN_TURN_MAX)
    world.host.residents.wake_all()
    await world.until(lambda: len(in_turn) >= 20 * WOKEN_IN_TURN_MAX)
    assert max(map(in_turn.count, in_turn)) <= 2 * LOADS_AT_ONCE
    assert not world.journal.of(f.Missing)


@in_virtual_time
async def test_an_actor_whose_snapshot_takes_long_is_not_idle_when_it_comes() -> None:
    """Otherwise it might leave memory before its request begins, and a second actor be made."""
    world = ShardWorld(policy())

    async def load(receiver: str, due: float = 0.0) -> State | None:
        await world.pass_time(2 * PASSIVATE_AFTER_S)
        return None

    world.snapshots.load = load  # type: ignore[method-assign]
    actor = await world.host.residents.when_loaded(RECEIVER)
    assert actor.active_at == world.clock.now()


@in_virtual_time
async def test_a_caller_never_gets_an_actor_that_has_left_memory() -> None:
    """Changes to that actor would be lost, and two actors would decide at the same time."""
    world = ShardWorld(policy())
    world.publish()
    await world.until(lambda: len(world.journal.of(f.Delivered)) == 1)
    world.crash(snapshots=True)
    left = world.host.residents.activate(RECEIVER)
    asking = asyncio.get_running_loop().create_task(world.host.residents.when_loaded(RECEIVER))
    await left.ready
    left.active_at = float(
        "-inf"
    )  # The record of unknown receivers lets go of those that it only told of events.
    await world.host.residents.passivate(world.clock.now())
    assert RECEIVER not in world.host.actors
    actor = await asking
    assert actor is not left
    assert actor is world.host.actors[RECEIVER]
