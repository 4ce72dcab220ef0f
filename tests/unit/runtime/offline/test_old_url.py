"""A ping that is under way while the URL changes: it tells nothing about the new one."""

import pytest

from actors.configuration.policy import Offline, Retry
from actors.machine.outcome import Answered
from actors.runtime.operator_actions.ping import ping
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

RETRY = Retry(base_s=2, cap_s=4)
SOON = Offline(after_s=10, ping=True)
OLD = policy(url="https://old.example.com/hook", retry=RETRY, offline=SOON)
NEW = policy(url="https://new.example.com/hook", retry=RETRY, offline=SOON)
ANSWERS = [
    answer(410), answer(503, retry_after="86400"), answer(200, angarium_disable="true"), answer(500)
]  # fmt: skip


async def pinging(said: Answered) -> ShardWorld:
    """An offline receiver whose old URL takes 10 s for this answer to a ping; the new one works."""
    world = ShardWorld(OLD)
    world.sender.reply = lambda _: answer(500)
    world.publish()
    await world.pass_time(60)
    world.sender.latency_s = 10
    world.sender.reply = lambda made: said if made.policy is OLD else answer(200)
    made = len(world.sender.made)
    await world.until(lambda: len(world.sender.made) > made)
    assert world.sender.made[-1].kind == "ping"
    return world


@pytest.mark.parametrize("said", ANSWERS)
@in_virtual_time
async def test_the_answer_of_an_old_url_holds_the_new_one_back_for_nothing(said: Answered) -> None:
    world = await pinging(said)
    world.sender.latency_s = 0.001
    world.put(NEW)
    await world.pass_time(12)
    assert (world.state.disabled, world.state.throttled_until, world.state.failing_since) == ("", 0.0, None)
    world.publish()
    await world.until_settled(2)


@pytest.mark.parametrize("said", ANSWERS)
@in_virtual_time
async def test_the_answer_to_a_removed_receiver_is_not_recorded(said: Answered) -> None:
    world = await pinging(said)
    world.put(None)
    await world.until(lambda: not world.state.opened)
    last = world.state.last
    await world.pass_time(12)
    assert world.state.last is last
    assert not world.state.disabled
    assert not world.journal.folded[RECEIVER].disabled


@in_virtual_time
async def test_the_answer_of_an_old_url_to_an_operators_ping_holds_nothing_back() -> None:
    world = ShardWorld(OLD)
    world.publish()
    await world.until_settled(1)
    world.sender.latency_s = 10
    world.sender.reply = lambda _: answer(503, retry_after="86400")
    asked = world.actor.environment.spawn
    answers = list[object]()

    async def ask() -> None:
        answers.append(await ping(world.actor))

    asked(ask())
    await world.pass_time(1)
    world.put(NEW)
    await world.until(lambda: bool(answers))
    assert world.state.throttled_until == 0
