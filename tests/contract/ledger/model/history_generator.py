"""Writes a random journal for a few receivers, and keeps the true state at every moment."""

from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.invariants import evolve_checked
from actors.machine.numbering import Numbered
from actors.machine.state import OpenEvent, State
from angarium.ledger.batch import milliseconds
from tests.support.installation import shard
from tests.support.ledgers import JournalWriter

RECEIVERS = [f"acme.r{number}" for number in range(6)]
FLUSH_EVERY_S = 60.0
OPEN_MAX = 3


class WrittenFlush(Struct, frozen=True):
    """A flush of the journal."""

    position: int
    shard: int
    at: int
    facts: tuple[f.Fact, ...]


class HistoryGenerator:
    """The journal, and each receiver's state after each of its facts, with the time of that."""

    def __init__(self, chance: Random, journal: JournalWriter) -> None:
        self.flushes: list[WrittenFlush] = []
        self.erased: set[str] = set()
        self._chance = chance
        self._pen = journal
        self._states = {each: State(receiver=each) for each in RECEIVERS}
        self._times: dict[str, list[int]] = {each: [] for each in RECEIVERS}
        self._after: dict[str, list[State]] = {each: [] for each in RECEIVERS}
        self._position = 0

    @property
    def now(self) -> float:
        return self._pen.at

    def state(self, receiver: str, at: int | None = None) -> State:
        """The true state of a receiver at a time, or now."""
        if at is None:
            return self._states[receiver]
        count = bisect_right(self._times[receiver], at)
        return self._after[receiver][count - 1] if count else State(receiver=receiver)

    def last_of(self, of: int) -> int:
        """The position of a shard's last flush."""
        return max((each.position for each in self.flushes if each.shard == of), default=0)

    async def flush(self) -> None:
        """Append a flush of a random shard."""
        number = self._chance.choice(sorted({shard(each) for each in RECEIVERS}))
        mine = [each for each in RECEIVERS if shard(each) == number]
        self._pen.at += FLUSH_EVERY_S
        facts = list[f.Fact]()
        for count in range(self._chance.randint(1, 4), 0, -1):
            facts.append(self._fact(self._chance.choice(mine), self.now + 1 - 2 * count))
        await self._store(number, facts)

    async def erase(self) -> str | None:
        """Take an open event out of the journal's future, as the eraser does; returns its id."""
        choices = [(name, each) for name in RECEIVERS for each in self._states[name].open]
        if not choices:
            return None
        name, event = self._chance.choice(choices)
        self.erased.add(event.id)
        self._pen.at += FLUSH_EVERY_S
        fact = f.Missing(
            receiver=name, at=self.now, first=event.position, last=event.position, reason=f.ERASED,
            next_sequence=self._states[name].frontier.sequence + 1,
        )  # fmt: skip
        self._states[name] = evolve_checked(self._states[name], fact)
        await self._store(shard(name), [fact])
        return event.id

    async def _store(self, number: int, facts: list[f.Fact]) -> None:
        receiver = next(each for each in RECEIVERS if shard(each) == number)
        self._pen.at -= 1.0  # The pen adds it.
        position = await self._pen.flush(*facts, receiver=receiver)
        at = milliseconds(self.now)
        self.flushes.append(WrittenFlush(position, number, at, tuple(facts)))
        for name in {each.receiver for each in facts}:
            state = self._after[name][-1] if self._after[name] else State(receiver=name)
            mine = [each for each in facts if each.receiver == name]
            times = [milliseconds(getattr(each, "at", 0.0)) for each in mine]
            happened = next((each for each in times if each), at)
            for fact, told in zip(mine, times, strict=True):
                happened = told or happened
                state = evolve_checked(state, fact)
                self._times[name].append(happened)
                self._after[name].append(state)

    def _fact(self, receiver: str, at: float) -> f.Fact:
        state = self._states[receiver]
        choices: list[Callable[[str, State, float], f.Fact]] = [self._opens]
        if state.opened:
            often, seldom = [self._accept, self._dies], [self._forgets, self._removed, self._other]
            choices = [*[self._attempt] * 8, *often * 2, *seldom]
        fact = self._chance.choice(choices)(receiver, state, at)
        self._states[receiver] = evolve_checked(state, fact)
        return fact

    def _opens(self, receiver: str, state: State, at: float) -> f.Fact:
        return f.Opened(receiver=receiver, at=at, position=state.frontier.position)

    def _accept(self, receiver: str, state: State, at: float) -> f.Fact:
        if len(state.open) >= OPEN_MAX:
            return self._attempt(receiver, state, at)
        return f.EventsNumbered(receiver=receiver, events=(self._new(state, at),))

    def _attempt(self, receiver: str, state: State, at: float) -> f.Fact:
        event, attempts = self._some(state, at)
        shared: dict[str, Any] = {
            "receiver": receiver,
            "events": (event,),
            "at": at,
            "attempt": attempts + 1,
            "latency_ms": 12.0,
        }
        moved = None if state.failing_since is None else state.failing_since + event.sequence % 3 / 4
        match self._chance.randrange(5):
            case 0:
                return f.Throttled(**shared, status=429, until=at + 60, failing_since=moved)
            case 1 | 2:
                answer, ours = f"<{event.id}>", event.sequence % 3 == 0
                return f.AttemptFailed(
                    **shared, status=500, error="HTTP 500", next_at=at + 60, answer=answer, ours=ours,
                    failing_since=moved,
                )  # fmt: skip
            case _:
                return f.Delivered(**shared, status=200)

    def _dies(self, receiver: str, state: State, at: float) -> f.Fact:
        event, attempts = self._some(state, at)
        return f.DeadLettered(receiver=receiver, events=(event,), at=at, reason="expired", attempts=attempts)

    def _forgets(self, receiver: str, state: State, at: float) -> f.Fact:
        front = state.frontier
        return f.Forgot(
            receiver=receiver, at=at, position=front.position, next_sequence=front.sequence + 1,
            discarded=len(state.open),
        )  # fmt: skip

    def _removed(self, receiver: str, state: State, at: float) -> f.Fact:
        front = state.frontier
        return f.Removed(
            receiver=receiver, at=at, position=front.position, next_sequence=front.sequence + 1,
            discarded=len(state.open),
        )  # fmt: skip

    def _other(self, receiver: str, state: State, at: float) -> f.Fact:
        choices: list[f.Fact] = [
            f.Paused(receiver=receiver, at=at), f.Resumed(receiver=receiver, at=at),
            f.RateSet(receiver=receiver, limit=RateLimit(float(self._chance.randint(1, 9)), 2)),
            f.Disabled(receiver=receiver, at=at, reason="failing"),
        ]  # fmt: skip
        return self._chance.choice(choices)

    def _some(self, state: State, at: float) -> tuple[Numbered, int]:
        """An event that is open, or a new one, and the number of its attempts."""
        if not state.open or (len(state.open) < OPEN_MAX and self._chance.random() < 0.4):
            return self._new(state, at), 0
        event: OpenEvent = self._chance.choice(state.open)
        known = Numbered(
            sequence=event.sequence, position=event.position, id=event.id, stored_at=event.stored_at
        )
        return known, event.attempts

    def _new(self, state: State, at: float) -> Numbered:
        self._position += 1
        return Numbered(
            sequence=state.frontier.sequence + 1, position=self._position, id=f"e{self._position:04}",
            stored_at=at - 1,
        )  # fmt: skip
