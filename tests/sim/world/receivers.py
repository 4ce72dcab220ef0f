"""The receivers of a simulated world, and the `Sender` through which a simulated process reaches them.

A receiver's temper is drawn from the seed and changes with time: it answers, errs, hangs, resets, throttles,
refuses, or takes the event and its answer is lost. Whatever a dead process had on its way arrives or does
not, but its answer is lost.
"""

import asyncio
from collections.abc import Sequence
from email.utils import formatdate
from enum import StrEnum
from random import Random
from typing import Protocol

from actors.machine.event import Event
from actors.machine.outcome import ABORT, DISABLE, Answered, Failed, NotSent, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.shaping.body_shaper import shape_bodies
from tests.sim.handshakes.answers import answer_to
from tests.sim.world.process import EPOCH_S, Process
from tests.sim.world.world import World

TOKEN_HELD_MAX_S = 0.05
"""Between the taking of a token and the first byte: name, connection, TLS."""


class Manner(StrEnum):
    """A way of dealing with one attempt."""

    TAKES = "takes it"
    TAKES_SLOWLY = "takes it slowly"
    TAKES_AND_IS_LOST = "takes it, and the answer is lost"
    HANGS = "hangs"
    ERRS = "errs"
    RESETS = "resets the connection"
    IS_AWAY = "is away"
    THROTTLES = "throttles"
    THROTTLES_BY_DATE = "throttles until a date"
    IS_TIRED = "throttles without saying how long"
    REJECTS = "rejects it"
    IS_GONE = "is gone"


POISON = "poison"
TAKEN = frozenset({Manner.TAKES, Manner.TAKES_SLOWLY, Manner.TAKES_AND_IS_LOST})
GOOD = {Manner.TAKES: 1.0}


class Watcher(Protocol):
    """A listener to what happens between nodes and receivers."""

    def started(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        """The first byte leaves."""

    def taken(self, receiver: str, position: int) -> None:
        """The receiver answers 2xx, be it heard or not."""

    def proved(self, attempt: Attempt) -> None:
        """The receiver answers a handshake with its proof, be it heard or not."""

    def ended(self, process: Process, attempt: Attempt | BatchAttempt, outcome: Outcome) -> None:
        """Something has come back to the node, or nothing in time."""


class Receivers:
    """All receivers of a world; `calm` makes good ones of them. What begins with `POISON` they all reject.

    Some steer: now and then an answer of theirs has one of the headers that count.

    - `secrets`: the one that a receiver has, if it is not the newest of its configuration.
    - `allowed_per_minute`: requests a minute that they allow in handshakes of CloudEvents.
    - `proof_after_s`: the time that they take for a handshake.
    - `next_answers`: those of a receiver that is set on an order of them, one for each attempt.
    - `hidden_limits`: attempts a second of a receiver beyond which it answers 429, and says nothing.
    """

    def __init__(self, world: World, names: Sequence[str], watcher: Watcher) -> None:
        self.world = world
        self.chance = world.random("receivers")
        self.watcher = watcher
        self._tempers = {name: _temper(self.chance) for name in names}
        self._patience = {name: self.chance.choice((1.0, 3.0, 30.0)) for name in names}

        self._wishing = world.random("steering")
        self._wishes: dict[str, tuple[str, ...]] = {
            name: (ABORT, ABORT, DISABLE) for name in names if self._wishing.random() < 0.5
        }
        self._always = False
        self.secrets: dict[str, str] = {}
        self.allowed_per_minute: int | None = None
        self.proof_after_s = 0.0
        self.next_answers: dict[str, list[Answered]] = {}
        self.hidden_limits: dict[str, int] = {}
        self.refused = 0
        self._admitted: dict[str, list[float]] = {}

    def is_too_much(self, name: str) -> bool:
        """True if this attempt is beyond the receiver's hidden limit."""
        if (limit := self.hidden_limits.get(name)) is None:
            return False
        admitted = [each for each in self._admitted.get(name, []) if each > self.world.now - 1]
        if full := len(admitted) >= limit:
            self.refused += 1
        self._admitted[name] = admitted if full else [*admitted, self.world.now]
        return full

    def calm(self) -> None:
        self._tempers = dict.fromkeys(self._tempers, GOOD)
        self._wishes = {}
        self.secrets.clear()
        self.next_answers.clear()

    def change(self, name: str) -> None:
        """Another temper."""
        self._tempers[name] = _temper(self.chance)

    def set_on(self, name: str, manner: Manner) -> None:
        """From now on it does nothing else."""
        self._tempers[name] = {manner: 1.0}

    def is_away(self, name: str) -> bool:
        """True if no connection to it can be opened."""
        return self._tempers[name] == {Manner.IS_AWAY: 1.0}

    def says_always(self, name: str, header: str) -> None:
        """From now on all its answers have this header."""
        self._wishes[name], self._always = (header,), True

    def steered(self, name: str, outcome: Outcome) -> Outcome:
        """The outcome, with the header of a receiver that steers: mostly one that does not take the event."""
        headers = self._wishes.get(name, ())
        if not isinstance(outcome, Answered) or not headers:
            return outcome
        if not self._always and self._wishing.random() >= (0.02 if outcome.status < 300 else 0.6):
            return outcome
        added = (self._wishing.choice(headers), "true")
        return Answered(
            status=outcome.status, latency_ms=outcome.latency_ms, headers=(*outcome.headers, added)
        )

    def manner(self, name: str, numbered: Sequence[tuple[Event, int | None]]) -> Manner:
        temper = self._tempers[name]
        manner = self.chance.choices(list(temper), list(temper.values()))[0]
        poison = any(event.id.startswith(POISON) for event, _ in numbered)
        if manner is Manner.TAKES and (poison or self._dislikes(name)):
            return Manner.REJECTS
        return manner

    def _dislikes(self, name: str) -> bool:
        """True now and then for a receiver that steers: good ones would never answer what it could abort."""
        return name in self._wishes and not self._always and self._wishing.random() < 0.3

    def pause_s(self, name: str) -> float:
        """The pause that a throttling receiver asks for."""
        return self.chance.random() * self._patience[name]


def _temper(chance: Random) -> dict[Manner, float]:
    """Good for the most part, mixed, or set on one vice."""
    vices = [each for each in Manner if each is not Manner.TAKES]
    match chance.random():
        case draw if draw < 0.4:
            return GOOD
        case draw if draw < 0.8:
            return GOOD | {each: chance.choice((0.03, 0.2, 1.0)) for each in chance.sample(vices, 3)}
        case _:
            return GOOD | {chance.choice(vices): 20.0}


class SimSender:
    """Makes attempts for one process."""

    def __init__(self, process: Process, receivers: Receivers) -> None:
        self._process = process
        self._receivers = receivers

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        outcome: Outcome = NotSent(why="nobody waits for it any more")
        try:
            outcome = await self._send(attempt)
            return outcome
        finally:
            self._receivers.watcher.ended(self._process, attempt, outcome)

    async def _send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        receivers, receiver, began_at = self._receivers, attempt.receiver, self._process.monotonic()
        chance, manner = receivers.chance, receivers.manner(receiver, attempt.numbered)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * TOKEN_HELD_MAX_S)
        if manner is Manner.IS_AWAY:
            return Failed(error="connect", detail="connection refused", latency_ms=1.0, unreached=True)
        if not attempt.may_start():
            return NotSent(why="the lease is over")
        shaped = shape_bodies([event for event, _ in attempt.numbered], attempt.shapings)
        if isinstance(shaped, NotSent):
            return shaped
        receivers.watcher.started(self._process, attempt)
        deadline = began_at + attempt.policy.timeout_s
        await asyncio.sleep(self._answer_after_s(manner, deadline))
        if isinstance(attempt, Attempt) and attempt.kind == "handshake" and manner in TAKEN:
            return await self._proof(attempt, manner, deadline)
        if manner in TAKEN:
            for event, _ in attempt.numbered:
                receivers.watcher.taken(receiver, event.position)
        if self._process.monotonic() >= deadline or manner in (Manner.HANGS, Manner.TAKES_AND_IS_LOST):
            await asyncio.sleep(max(0.0, deadline - self._process.monotonic()))
            return Failed(error="timeout", detail="no answer in time", latency_ms=1.0)
        return receivers.steered(receiver, self._outcome(manner, receiver))

    async def _proof(self, attempt: Attempt, manner: Manner, deadline: float) -> Outcome:
        """The answer to a handshake of a receiver that is well; it may lack the right secret."""
        receivers = self._receivers
        await asyncio.sleep(receivers.proof_after_s)
        now = EPOCH_S + receivers.world.now
        secret = receivers.secrets.get(attempt.receiver)
        outcome = answer_to(attempt, secret, receivers.allowed_per_minute, now)
        if isinstance(outcome, Answered):
            receivers.watcher.proved(attempt)
        if self._process.monotonic() >= deadline or manner is Manner.TAKES_AND_IS_LOST:
            await asyncio.sleep(max(0.0, deadline - self._process.monotonic()))
            return Failed(error="timeout", detail="no answer in time", latency_ms=1.0)
        return outcome

    def _answer_after_s(self, manner: Manner, deadline: float) -> float:
        chance = self._receivers.chance
        if manner is Manner.TAKES_SLOWLY:
            return chance.random() * 1.2 * max(0.0, deadline - self._process.monotonic())
        return chance.choice((0.0, 0.001, 0.02)) * chance.random()

    def _outcome(self, manner: Manner, receiver: str) -> Outcome:
        receivers = self._receivers
        chance = receivers.chance
        if answers := receivers.next_answers.get(receiver):
            return answers.pop(0)
        if receivers.is_too_much(receiver):
            return _answer(429)
        match manner:
            case Manner.TAKES | Manner.TAKES_SLOWLY:
                return _answer(chance.choice((200, 201, 204)))
            case Manner.ERRS:
                return _answer(chance.choice((301, 404, 500, 503)))
            case Manner.THROTTLES:
                seconds = str(round(receivers.pause_s(receiver)))
                return _answer(chance.choice((429, 503)), ("retry-after", seconds))
            case Manner.THROTTLES_BY_DATE:
                now = EPOCH_S + receivers.world.now + chance.uniform(-1000, 1000)
                until = formatdate(now + receivers.pause_s(receiver), usegmt=True)
                return _answer(429, ("retry-after", until), ("date", formatdate(now, usegmt=True)))
            case Manner.IS_TIRED:
                return _answer(429)
            case Manner.REJECTS:
                return _answer(chance.choice((400, 413, 422)))
            case Manner.IS_GONE:
                return _answer(410)
            case _:
                return Failed(error="reset", detail="connection reset", latency_ms=1.0)


def _answer(status: int, *headers: tuple[str, str]) -> Answered:
    return Answered(status=status, latency_ms=1.0, headers=headers)
