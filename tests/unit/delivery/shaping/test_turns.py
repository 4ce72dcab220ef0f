"""The turns in which large bodies are shaped: one thread for a node, and a share of it for each tenant."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from actors.configuration.policy import Policy
from actors.configuration.transform import Shaping, Transform
from actors.machine.event import Event
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.shaping.body_shaper import BodyShaper

LARGE = b"[%s]" % b",".join([b"1"] * 1000)
SHAPING = Shaping(Transform(drop=("/a",)), b"")
TURNS_OF_THE_LOOP = 20
"""More than any attempt needs to come to its thread."""


class Threads:
    """Stands for the threads: a body is shaped when the test says so. `turns`: the events, by their ids."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[str] = []
        self.under_way: list[asyncio.Future[None]] = []
        monkeypatch.setattr(asyncio, "to_thread", self._run)

    async def _run(self, function: Callable[[Any], Any], pairs: list[tuple[Event, Shaping]]) -> Any:
        self.turns.append(pairs[0][0].id)
        ended = asyncio.get_running_loop().create_future()
        self.under_way.append(ended)
        try:
            await ended
            return function(pairs)
        finally:
            self.under_way.remove(ended)

    async def end_one(self) -> None:
        """The oldest one ends, and everybody goes on as far as possible."""
        self.under_way[0].set_result(None)
        await everybody_waits()

    async def end_all(self) -> list[str]:
        while self.under_way:
            await self.end_one()
        return self.turns


async def everybody_waits() -> None:
    for _ in range(TURNS_OF_THE_LOOP):
        await asyncio.sleep(0)


class Shaper:
    """A shaper, and the attempts that it was given."""

    def __init__(self) -> None:
        self._shaper = BodyShaper()
        self.attempts: list[asyncio.Task[Any]] = []

    async def give(self, receiver: str, *ids: str) -> asyncio.Task[Any]:
        """An attempt of these events, all of them large."""
        members: dict[str, Any] = {"receiver": receiver, "policy": Policy(url="https://a.example")}
        members |= {"ordinal": 1, "may_start": lambda: True, "shapings": (SHAPING,) * len(ids)}
        events = tuple(Event(position=1, id=each, stored_at=0.0, body=LARGE) for each in ids)
        attempt: Attempt | BatchAttempt = (
            Attempt(**members, event=events[0], sequence=1)
            if len(ids) == 1
            else BatchAttempt(**members, events=events, sequences=tuple(range(len(ids))))
        )
        self.attempts.append(asyncio.create_task(self._shaper.shaped(attempt)))
        await everybody_waits()
        return self.attempts[-1]


async def test_one_body_is_shaped_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads would share the interpreter with the loop, which would wait for both."""
    threads, shaper = Threads(monkeypatch), Shaper()
    for receiver in ("one.a", "two.a", "one.b"):
        await shaper.give(receiver, receiver)
    for left in (3, 2, 1):
        assert (len(threads.under_way), len(threads.turns)) == (1, 4 - left)
        await threads.end_one()
    assert not threads.under_way


async def test_each_body_of_a_batch_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, shaper = Threads(monkeypatch), Shaper()
    await shaper.give("many.a", "a1", "a2", "a3")
    await shaper.give("few.a", "b1")
    assert await threads.end_all() == ["a1", "b1", "a2", "a3"]


async def test_tenants_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, shaper = Threads(monkeypatch), Shaper()
    for number in range(5):
        await shaper.give(f"many.r{number}", f"m{number}")
    await shaper.give("few.a", "f")
    assert (await threads.end_all()).index("f") <= 2


async def test_receivers_of_a_tenant_have_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, shaper = Threads(monkeypatch), Shaper()
    for number in range(5):
        await shaper.give("one.busy", f"busy{number}")
    await shaper.give("one.quiet", "quiet")
    assert (await threads.end_all()).index("quiet") <= 2


@pytest.mark.parametrize("cancelled", [0, 1], ids=["under way", "waiting"])
async def test_a_cancelled_attempt_gives_its_turn_up(monkeypatch: pytest.MonkeyPatch, cancelled: int) -> None:
    threads, shaper = Threads(monkeypatch), Shaper()
    for receiver in ("one.a", "two.a", "three.a"):
        await shaper.give(receiver, receiver)
    shaper.attempts[cancelled].cancel()
    await everybody_waits()
    await threads.end_all()
    given = [task.done() for task in shaper.attempts]
    assert given == [True] * 3
    assert [task.cancelled() for task in shaper.attempts].count(True) == 1
    assert threads.turns[-1] == "three.a"


async def test_a_body_that_fails_by_a_defect_gives_its_turn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, shaper = Threads(monkeypatch), Shaper()
    broken, next_one = await shaper.give("one.a", "a"), await shaper.give("two.a", "b")
    threads.under_way[0].set_exception(ZeroDivisionError())
    await everybody_waits()
    await threads.end_all()
    assert isinstance(broken.exception(), ZeroDivisionError)
    assert next_one.exception() is None
