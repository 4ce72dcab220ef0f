"""The answer to a failed attempt is in its fact; the last one is also in the dead letter, from memory."""

import msgspec
import pytest

from actors.configuration.policy import Policy, Retry
from actors.machine import facts as f
from actors.machine.outcome import Answered, Failed
from actors.memory.last_answers import ANSWERS_MAX, TEXT_MAX, failure_text
from actors.ports import Attempt
from actors.runtime.operator_actions.skip import skip
from streams.journal.envelope import encode_fact
from tests.unit.worlds.shard import ShardWorld, relaxed, strict
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time

TWICE = Retry(base_s=0.05, rejected_attempts=2)


def says(status: int, body: bytes) -> Answered:
    """With 429 nothing more goes to the receiver for an hour."""
    return Answered(status=status, latency_ms=1.0, body=body, headers=(("retry-after", "3600"),))


async def buried(world: ShardWorld, count: int) -> dict[int, str]:
    """The answers in the dead letters, by position."""
    await world.until(lambda: len(world.dead_letters.buried) == count, within_s=100_000)
    return world.dead_letters.answers


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_a_letter_has_the_answer_to_its_last_attempt(order: str) -> None:
    world = ShardWorld(policy(order=order, retry=TWICE))
    world.sender.reply = lambda attempt: says(422, b"%d, %d" % (attempt.event.position, attempt.ordinal))
    world.publish(3)
    assert await buried(world, 3) == {1: "1, 2", 2: "2, 2", 3: "3, 2"}


@in_virtual_time
async def test_the_fact_of_each_failed_attempt_has_the_answer_and_no_snapshot_does() -> None:
    world = strict(retry=TWICE)
    world.sender.reply = lambda attempt: says(422, b"answer %d" % attempt.ordinal)
    world.publish()
    await buried(world, 1)
    assert [fact.answer for fact in world.journal.of(f.AttemptFailed)] == ["answer 1", "answer 2"]
    assert b"answer" not in msgspec.json.encode(world.state)


@in_virtual_time
async def test_no_fact_has_the_answer_to_an_accepted_event() -> None:
    world = strict()
    world.sender.answers(says(200, b"taken"))
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.Delivered)))
    assert not [fact for fact in world.journal.facts if b"taken" in encode_fact(fact)]


@in_virtual_time
async def test_an_attempt_without_an_answer_leaves_none() -> None:
    world = strict(retry=Retry(base_s=0.05, max_attempts=2))
    world.sender.answers(says(500, b"of the first attempt"), Failed(error="timeout", detail="", latency_ms=1))
    world.publish()
    assert await buried(world, 1) == {}


@in_virtual_time
async def test_a_letter_never_has_the_answer_to_another_event() -> None:
    world = strict()
    world.sender.answers(says(200, b"of the first event"), says(429, b"of the second"))
    world.publish(3)
    await world.until(lambda: world.state.counters.throttled == 1)
    await skip(world.actor)
    await skip(world.actor)
    assert await buried(world, 2) == {2: "of the second"}


@in_virtual_time
async def test_an_answer_is_lost_with_the_memory_of_its_owner() -> None:
    world = strict()
    world.sender.answers(says(429, b"lost"))
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.Throttled)))
    world.crash()
    await skip(world.actor)
    assert await buried(world, 1) == {}


@in_virtual_time
async def test_only_the_beginnings_of_the_newest_answers_are_kept() -> None:
    world = relaxed(concurrency=64)
    world.sender.reply = lambda _: says(429, bytes(65_536))
    world.publish(64)
    await world.until(lambda: len(world.state.open) == 64 and not world.actor.pending.in_flight)
    kept = list(world.actor.burials.answers.texts.values())
    assert len(kept) == ANSWERS_MAX
    assert {len(each) for each in kept} == {TEXT_MAX}


@in_virtual_time
async def test_the_answers_to_delivered_and_buried_events_are_forgotten() -> None:
    world = strict(retry=TWICE)
    world.sender.answers(says(500, b"x"), says(200, b"x"), says(422, b"y"), says(422, b"y"))
    world.publish(2)
    await buried(world, 1)
    await world.until(lambda: not world.state.burials)
    assert not world.actor.burials.answers.texts


def test_credentials_that_it_repeats_are_hidden() -> None:
    hooked = Policy(url="https://a.example/hooks/T0/xyz", headers={"authorization": "Bearer hush-hush"})
    answer = says(401, b"no such token: hush-hush, at /hooks/T0/xyz")
    assert failure_text(answer, hooked) == "no such token: [redacted], at /[redacted]"


@in_virtual_time
async def test_the_credentials_are_those_of_the_attempt_and_not_of_a_later_configuration() -> None:
    world = strict(headers={"authorization": "Bearer hush-hush"}, retry=TWICE)

    def reply(_: Attempt) -> Answered:
        world.put(policy())
        return says(422, b"no such token: hush-hush")

    world.sender.reply = reply
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    assert world.journal.of(f.AttemptFailed)[0].answer == "no such token: [redacted]"


@pytest.mark.parametrize(
    "body", [b"\xff" * 5000, b"\x00" * 5000, b"\x1b[2J" * 1000, b'"\\' * 3000, b"a" * 5000]
)
def test_a_fact_grows_by_three_kilobytes_at_most_for_any_body(body: bytes) -> None:
    text = failure_text(says(500, body), policy())
    assert len(text) <= TEXT_MAX
    assert len(msgspec.json.encode(text)) <= 3 * TEXT_MAX + 2
    assert text.isprintable()
