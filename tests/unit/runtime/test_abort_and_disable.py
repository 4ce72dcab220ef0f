"""Answers that steer: `angarium-abort` ends an event, `angarium-disable` its receiver, after a crash, too."""

import asyncio
from typing import Any

import pytest

from actors.configuration.policy import Retry
from actors.machine import facts as f
from actors.machine.state import BURIALS_MAX
from actors.runtime.operator_actions.resume import resume
from tests.unit.worlds.shard import relaxed, strict
from tests.unit.worlds.values import answer
from tests.unit.worlds.virtual_time import in_virtual_time

ABORT = answer(500, angarium_abort="true")


@in_virtual_time
async def test_an_aborted_event_becomes_a_dead_letter_and_the_next_one_is_sent() -> None:
    world = strict(retry=Retry(base_s=0.05, cap_s=0.05, rejected_attempts=1000))
    world.sender.answers(ABORT, 200)
    world.publish(2)
    await world.until_settled(1)
    assert world.sender.numbers == [1, 2]
    await world.until(lambda: len(world.dead_letters.buried) == 1)
    [letter] = world.dead_letters.buried
    assert (letter.sequence, letter.reason, letter.attempts, letter.status) == (1, "rejected", 1, 500)


@in_virtual_time
async def test_an_aborted_event_whose_owner_dies_before_it_is_given_up_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too many dead letters are owed: the event waits for room, and only the state says that it is over."""
    world = relaxed(concurrency=256, retry=Retry(base_s=0.05, cap_s=0.05, rejected_attempts=1000))
    world.sender.reply = lambda _: ABORT
    there_is_room, bury = asyncio.Event(), world.dead_letters.bury

    async def bury_later(*told: Any) -> None:
        await there_is_room.wait()
        await bury(*told)

    monkeypatch.setattr(world.dead_letters, "bury", bury_later)
    world.publish(BURIALS_MAX + 3)
    await world.until(lambda: len(world.sender.made) == BURIALS_MAX + 3)
    await world.pass_time(1)
    assert len(world.state.burials) == BURIALS_MAX
    assert [each.aborted for each in world.state.open] == [True] * 3
    world.crash()
    await world.pass_time(1)
    there_is_room.set()
    await world.until(lambda: len(world.dead_letters.buried) == BURIALS_MAX + 3)
    assert {each.reason for each in world.dead_letters.buried} == {"rejected"}
    assert len(world.sender.made) == BURIALS_MAX + 3


@pytest.mark.parametrize(("status", "first_sent_again"), [(200, 2), (500, 1)])
@in_virtual_time
async def test_a_receiver_that_answers_disable_gets_nothing_until_it_is_resumed(
    status: int, first_sent_again: int
) -> None:
    world = strict()
    world.sender.answers(answer(status, angarium_disable="true"))
    world.publish(3)
    await world.pass_time(3600)
    assert world.sender.numbers == [1]
    assert world.state.disabled == "asked"
    world.crash()
    await world.pass_time(60)
    assert world.sender.numbers == [1]
    await resume(world.actor)
    await world.until_settled(3)
    assert world.sender.numbers[1] == first_sent_again
    assert len(world.journal.of(f.Disabled)) == 1


@in_virtual_time
async def test_an_attempt_knows_how_many_before_it_have_failed_which_no_throttled_one_has() -> None:
    world = strict(retry=Retry(base_s=0.05, cap_s=0.05))
    world.sender.answers(500, answer(429, retry_after="1"), 500, 200, 200)
    world.publish(2)
    await world.until_settled(2)
    assert [(each.ordinal, each.failures) for each in world.sender.made] == [
        (1, 0), (2, 1), (3, 1), (4, 2), (1, 0),
    ]  # fmt: skip
