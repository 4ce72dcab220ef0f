"""Events whose receiver misbehaves: each has an outcome, and keeps its number."""

from typing import Any

import pytest

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import publish
from tests.support.fleet.records import Arrival
from tests.support.fleet.sink import Answer, Hang, Manner, Reply, Reset

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = {"base_s": 0.05, "cap_s": 0.2}
SOON_S = 2.0
"""A deadline that only a receiver without an answer misses, also on a busy machine."""


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    return shared_fleet


def first(*answers: Answer) -> Manner:
    """These answers first, then always 200."""
    return lambda number: answers[number - 1] if number <= len(answers) else Reply()


async def two_events(fleet: Fleet, receiver: str, manner: Manner, **members: Any) -> None:
    """Two events for a receiver of that manner."""
    fleet.sink.manners[receiver] = manner
    await fleet.configure([receiver], retry=QUICK, **members)
    for event_id in ("a", "b"):
        await publish(fleet.js, receiver, f"{receiver.replace('.', ':')}-{event_id}", event_id.encode())


async def accepted(fleet: Fleet, receiver: str) -> list[Arrival]:
    """Wait until the second event was accepted; returns all that came."""
    arrivals = fleet.sink.arrivals[receiver]
    await fleet.until(lambda: any(each.accepted and each.sequence == 2 for each in arrivals), "both arrived")
    return arrivals


def shape(arrivals: list[Arrival]) -> list[tuple[int, int, int | None]]:
    """Number, attempt and answer of each request."""
    return [(each.sequence, each.attempt, each.status) for each in arrivals]


@pytest.mark.parametrize(
    ("name", "answers"), [("hangs", [Hang()]), ("fails", [Reply(status=500), Reply(status=500)])]
)
async def test_an_attempt_that_failed_is_made_again(fleet: Fleet, name: str, answers: list[Answer]) -> None:
    await two_events(fleet, f"t.{name}", first(*answers), timeout_s=SOON_S)
    arrivals = await accepted(fleet, f"t.{name}")
    tried = [each.status if isinstance(each, Reply) else None for each in answers] + [200]
    assert shape(arrivals) == [*((1, number, status) for number, status in enumerate(tried, 1)), (2, 1, 200)]
    assert len({each.event_id for each in arrivals}) == 2
    await counted(fleet, f"t.{name}", delivered=2, failed_attempts=len(answers), dead=0)


async def test_a_connection_that_is_reset_costs_an_attempt_at_most(fleet: Fleet) -> None:
    """On a kept connection the request is sent once more within the same attempt (RFC 9112, 9.3.1)."""
    await two_events(fleet, "t.resets", first(Reset(), Reset(), Reply(), Reset(), Reset()))
    arrivals = await accepted(fleet, "t.resets")
    assert [each.status for each in arrivals] == [None, None, 200, None, None, 200]
    assert [each.sequence for each in arrivals] == [1, 1, 1, 2, 2, 2]
    for attempts in ([each.attempt for each in arrivals[:3]], [each.attempt for each in arrivals[3:]]):
        assert attempts == sorted(attempts)
    await counted(fleet, "t.resets", delivered=2, dead=0)


@pytest.mark.parametrize(("name", "status", "retry_after"), [("busy", 503, "1"), ("slower", 429, "1")])
async def test_a_receiver_is_left_alone_until_the_time_it_named(
    fleet: Fleet, name: str, status: int, retry_after: str
) -> None:
    receiver = f"t.{name}"
    await two_events(fleet, receiver, first(Reply(status=status, headers=(("retry-after", retry_after),))))
    arrivals = await accepted(fleet, receiver)
    assert shape(arrivals) == [(1, 1, status), (1, 2, 200), (2, 1, 200)]
    assert arrivals[1].at - arrivals[0].at >= int(retry_after)
    await counted(fleet, receiver, throttled=1, failed_attempts=0)


async def test_a_receiver_that_named_a_time_is_shown_as_throttled_until_it_is_resumed(
    fleet: Fleet,
) -> None:
    await two_events(fleet, "t.away", first(Reply(status=429, headers=(("retry-after", "3600"),))))
    await fleet.until_true(lambda: in_phase(fleet, "t.away", "throttled"), "t.away is throttled")
    assert len(fleet.sink.arrivals["t.away"]) == 1
    await fleet.ask("resume", "t.away")
    assert shape(await accepted(fleet, "t.away")) == [(1, 1, 429), (1, 2, 200), (2, 1, 200)]


async def test_too_many_requests_without_a_time_is_a_backoff(fleet: Fleet) -> None:
    await two_events(fleet, "t.vague", first(Reply(status=429), Reply(status=429)))
    assert shape(await accepted(fleet, "t.vague")) == [(1, 1, 429), (1, 2, 429), (1, 3, 200), (2, 1, 200)]
    await counted(fleet, "t.vague", throttled=2, failed_attempts=0)


async def test_a_receiver_that_answered_410_gets_nothing_until_it_is_resumed(fleet: Fleet) -> None:
    await two_events(fleet, "t.gone", first(Reply(status=410)))
    await fleet.until_true(lambda: in_phase(fleet, "t.gone", "disabled"), "t.gone is disabled")
    shown = await fleet.ask("inspect", "t.gone")
    assert (shown["backlog"], shown["disabled"], shown["resume_at"]) == (2, "gone", None)
    assert shape(fleet.sink.arrivals["t.gone"]) == [(1, 1, 410)]
    await fleet.ask("resume", "t.gone")
    assert shape(await accepted(fleet, "t.gone")) == [(1, 1, 410), (1, 2, 200), (2, 1, 200)]


async def test_a_poisonous_event_becomes_a_dead_letter_and_the_next_is_delivered(fleet: Fleet) -> None:
    await two_events(fleet, "t.poisoned", first(*[Reply(status=400)] * 5))
    arrivals = await accepted(fleet, "t.poisoned")
    assert shape(arrivals) == [*((1, attempt, 400) for attempt in range(1, 6)), (2, 1, 200)]
    await fleet.until_true(lambda: buried(fleet, "t.poisoned"), "the dead letter is there")
    (letter,) = await fleet.read(names.dead_letters, names.dead("t.poisoned"))
    assert letter.data == b"a"
    assert {name: letter.headers[name] for name in letter.headers if name.startswith("Angarium-")} == {
        "Angarium-Id": "t:poisoned-a",
        "Angarium-Reason": "rejected",
        "Angarium-Sequence": "1",
        "Angarium-Attempts": "5",
        "Angarium-Status": "400",
    }
    await counted(fleet, "t.poisoned", delivered=1, dead=1, failed_attempts=5)


async def in_phase(fleet: Fleet, receiver: str, phase: str) -> bool:
    return bool((await fleet.ask("inspect", receiver))["phase"] == phase)


async def counted(fleet: Fleet, receiver: str, **counts: int) -> None:
    """Wait until the actor has counted that."""

    async def so() -> bool:
        counters = (await fleet.ask("inspect", receiver))["counters"]
        return {name: counters[name] for name in counts} == counts

    await fleet.until_true(so, f"{receiver} counted {counts}")


async def buried(fleet: Fleet, receiver: str) -> bool:
    return await fleet.js.last_message(names.dead_letters, names.dead(receiver)) is not None
