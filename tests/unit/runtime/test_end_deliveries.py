"""Erasing: an event leaves the stream, and no number and no other event is lost."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from actors.configuration.policy import Retry
from actors.errors import ControlDenied
from actors.machine import facts as f
from actors.machine.facts import Burial
from actors.machine.outcome import Answered
from actors.machine.state import OPEN_MAX, UNRECORDED_MAX
from actors.runtime.actor import Actor
from actors.runtime.host import Host
from actors.runtime.operator_actions.end_deliveries import EndedDeliveries, end_deliveries
from tests.unit.worlds.shard import RECEIVER, ShardWorld, relaxed, strict
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time


def sent(world: ShardWorld) -> dict[int, int]:
    """The number of each position that was posted: one, from any owner."""
    numbers: dict[int, int] = {}
    for each in world.sender.made:
        assert each.sequence is not None
        assert numbers.setdefault(each.event.position, each.sequence) == each.sequence, "two numbers"
    assert len(set(numbers.values())) == len(numbers), "one number for two events"
    return numbers


async def erased(world: ShardWorld, position: int) -> EndedDeliveries:
    return await end_deliveries(world.actor, f"e{position}", [position])


@in_virtual_time
async def test_an_event_that_waits_is_discarded_and_its_number_is_a_gap() -> None:
    world = strict(paused=True)
    world.publish(4)
    await world.until(lambda: world.state.parked)
    assert await erased(world, 2) == EndedDeliveries(messages=1, waiting=1)
    assert world.stream.lost == {2}
    world.put(policy())
    await world.until_settled(3)
    assert sent(world) == {1: 1, 3: 3, 4: 4}
    assert (world.state.counters.discarded, world.state.counters.duplicates) == (1, 0)
    assert [each.reason for each in world.journal.of(f.Missing)] == ["erased"]
    assert world.journal.folded[RECEIVER] == world.state


@pytest.mark.parametrize("world_of", [strict, relaxed])
def test_an_event_that_fails_is_discarded_and_the_others_go_on(world_of: type[ShardWorld]) -> None:
    @in_virtual_time
    async def run() -> None:
        world = world_of()
        world.sender.reply = lambda attempt: answer(500 if attempt.event.position == 1 else 200)
        world.publish(3)
        await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
        assert await erased(world, 1) == EndedDeliveries(messages=1, waiting=1)
        await world.until_settled(2)
        assert sent(world) == {1: 1, 2: 2, 3: 3}
        made = len(world.sender.made)
        await world.pass_time(600)
        assert len(world.sender.made) == made

    run()


@in_virtual_time
async def test_no_answer_to_an_erased_event_stays_in_memory() -> None:
    """The answer may repeat the body. Answers to other events go into their dead letters as before."""
    world = relaxed()
    world.sender.reply = lambda _: Answered(status=500, latency_ms=5.0, headers=(), body=b"secret")
    world.publish(2)
    await world.until(lambda: len(world.actor.burials.answers.texts) == 2)
    await erased(world, 1)
    assert world.actor.burials.answers.texts == {2: "secret"}
    assert world.actor.last_answer is None


@in_virtual_time
async def test_an_event_that_is_settled_changes_no_state() -> None:
    world = strict()
    world.publish(2)
    await world.until_settled(2)
    before = world.state
    assert await erased(world, 1) == EndedDeliveries(messages=1, waiting=0)
    assert world.state == before
    assert world.stream.lost == {1}


@in_virtual_time
async def test_a_duplicate_that_nothing_follows_is_erased() -> None:
    """The duplicate has no number, so the frontier never reaches it."""
    world = strict()
    world.publish()
    world.publish(name="e1")
    await world.until(lambda: world.state.counters.duplicates == 1)
    assert await end_deliveries(world.actor, "e1", [1, 2]) == EndedDeliveries(messages=2, waiting=0)
    assert world.stream.lost == {1, 2}
    world.publish()
    await world.until_settled(2)
    assert sent(world) == {1: 1, 3: 2}


@in_virtual_time
async def test_an_attempt_under_way_is_awaited() -> None:
    world = strict()
    world.sender.latency_s = 5.0
    world.publish(2)
    await world.until(lambda: bool(world.sender.made))
    assert await erased(world, 1) == EndedDeliveries(messages=1, waiting=0)
    await world.until_settled(2)
    assert sent(world) == {1: 1, 2: 2}


@in_virtual_time
async def test_only_the_event_of_that_id_is_erased() -> None:
    world = strict(paused=True)
    world.publish(2)
    await world.until(lambda: world.state.parked)
    assert await end_deliveries(world.actor, "e1", [2]) == EndedDeliveries(messages=0, waiting=0)
    assert world.stream.lost == set()


@in_virtual_time
async def test_to_erase_twice_is_to_erase_once() -> None:
    world = strict(paused=True)
    world.publish(3)
    await world.until(lambda: world.state.parked)
    await erased(world, 2)
    state = world.state
    assert await erased(world, 2) == EndedDeliveries(messages=0, waiting=0)
    assert world.state == state


@in_virtual_time
async def test_a_dead_letter_that_is_owed_is_awaited_by_asking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = strict(retry=Retry(max_attempts=1))
    world.sender.reply = lambda _: answer(500)
    stored = asyncio.Event()
    bury = world.dead_letters.bury

    async def late(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        await stored.wait()
        await bury(receiver, burials, answers)

    monkeypatch.setattr(world.dead_letters, "bury", late)
    world.publish()
    await world.until(lambda: bool(world.state.burials))
    with pytest.raises(ControlDenied, match="dead letter is being stored"):
        await erased(world, 1)
    assert world.stream.lost == set()
    stored.set()
    await world.until(lambda: not world.state.burials)
    assert await erased(world, 1) == EndedDeliveries(messages=1, waiting=0)


@in_virtual_time
async def test_an_event_far_back_gets_no_number() -> None:
    world = strict(paused=True)
    world.publish(OPEN_MAX + 10)
    await world.until(lambda: world.state.parked)
    assert await erased(world, OPEN_MAX + 5) == EndedDeliveries(messages=1, waiting=1)
    assert world.state.open == ()
    world.put(policy())
    await world.until_settled(OPEN_MAX + 9)
    assert list(sent(world).values()) == list(range(1, OPEN_MAX + 10))
    assert world.state.counters.discarded == 1


@in_virtual_time
async def test_posts_of_an_owner_far_back_are_not_guessed_at() -> None:
    world = strict(paused=True)
    world.publish(UNRECORDED_MAX + 10)
    await world.until(lambda: world.state.parked)
    world.crash()
    await world.until(lambda: world.actor.loaded)
    with pytest.raises(ControlDenied, match="may have sent it"):
        await erased(world, OPEN_MAX + 5)
    assert await erased(world, UNRECORDED_MAX + 5) == EndedDeliveries(messages=1, waiting=1)


@in_virtual_time
async def test_nothing_is_posted_until_it_is_gone() -> None:
    world = strict()
    world.sender.reply = lambda attempt: answer(500 if attempt.event.position == 1 else 200)
    world.publish(3)
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    world.stream.delay_s = 50.0
    before = len(world.sender.made)
    task = asyncio.ensure_future(erased(world, 2))
    await world.pass_time(120)
    assert not task.done()
    assert len(world.sender.made) == before
    await task


def crashes(at_s: float, stored: int, *, paused: bool = False) -> None:
    """An owner dies while it erases, after others were posted on no record; the next one erases again."""

    @in_virtual_time
    async def run() -> None:
        world = strict(paused=paused)
        world.publish(3)
        if paused:
            await world.until(lambda: world.state.parked)
        else:
            await world.until(lambda: len(world.sender.made) >= 2)
        task = asyncio.ensure_future(erased(world, 2))
        await world.pass_time(at_s)
        task.cancel()
        with suppress(asyncio.CancelledError, ControlDenied):
            await task
        world.crash(stored=stored)
        world.put(policy())
        await world.until(lambda: world.actor.loaded)
        for _ in range(100):
            try:
                await erased(world, 2)
            except ControlDenied:
                await world.pass_time(0.1)
            else:
                break
        world.publish(2)
        folded = world.journal.folded
        await world.until(lambda: folded[RECEIVER].frontier.position >= 5 and not folded[RECEIVER].open)
        sent(world)
        assert {1, 3, 4, 5} <= {each.event.position for each in world.sender.made}

    run()


MOMENTS = [0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.1, 0.199, 0.201, 0.203, 0.21, 0.5]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("at_s", MOMENTS)
def test_no_crash_gives_a_number_twice(at_s: float, paused: bool) -> None:
    for stored in range(4):
        crashes(at_s, stored, paused=paused)


def found_by_a_crash(words: str) -> bool:
    """True if some crash ends with that complaint."""
    for paused in (False, True):
        for at_s in MOMENTS:
            for stored in range(4):
                try:
                    crashes(at_s, stored, paused=paused)
                except AssertionError as error:
                    if words in str(error):
                        return True
    return False


def test_without_numbers_in_order_a_crash_gives_one_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unnumbered(actor: Actor, position: int) -> bool:
        return position <= actor.state.frontier.position

    monkeypatch.setattr("actors.runtime.operator_actions.end_deliveries.settle_in_order", unnumbered)
    assert found_by_a_crash("two numbers")


def test_gone_before_its_end_is_recorded_a_crash_gives_a_number_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(host: Host, index: int) -> None:
        return

    monkeypatch.setattr(Host, "confirmed_to", at_once)
    assert found_by_a_crash("two numbers")
