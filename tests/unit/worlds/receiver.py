"""A random explorer of one receiver, crashes included; `test_machine.py` runs it.

The actor is the product's, under its host, in a shard in memory on virtual time. Whatever may happen does, as
the seed draws it: events come once, twice, again and late, attempts end in any way, configurations change and
go, facts wait to be confirmed, owners crash and lose some of those, or store them and never hear of it.

Checked at every step, besides the shard's own checks: a number names one event forever, and an event has
one number forever; none is posted before those ahead of it are settled; strict order has one event open; the
state survives JSON. At the end, once all goes well, everything that was published is settled.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from actors.configuration.policy import Policy, Rate, Retry
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.outcome import Outcome
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.view import UnreadCursor, View
from actors.machine.state import State
from actors.ports import Attempt
from actors.runtime import actor, live_state
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.ping import ping
from actors.runtime.operator_actions.resume import resume
from actors.runtime.posting_bounds import PostingBounds
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.shared_steps import OperatorRequests, hold_or_let_go
from tests.unit.worlds.values import NO_ANSWER, answer, policy
from tests.unit.worlds.virtual_time import VirtualLoop

PATIENT = Retry(base_s=0.05, cap_s=0.05, max_age_s=432000)
POLICIES = (
    policy(retry=PATIENT), policy(retry=PATIENT), policy(dedup_window=2), policy(dedup_window=3),
    policy(dedup_window=6), policy(url="https://other.example"), policy(paused=True),
    policy(retry=Retry(max_attempts=2, rejected_attempts=1, max_age_s=60)),
    policy(rate=Rate(limit=1, burst=2)), policy(rate=Rate(limit=1, per="hour", burst=1)),
    policy(backlog_max=2),
)  # fmt: skip
OUTCOMES = (200, 200, 200, 200, 500, 429, 410, 400, 0)
"""0: no answer."""


def _decide_without_gap(state: State, given: Policy | None, command: c.Command, *more: Any) -> list[f.Fact]:
    if isinstance(command, c.RemoveReceiver | c.ForgetBacklog):
        command = replace(command, waiting=0)
    return decide(state, given, command, *more)


def _step_unseen(state: State, given: Policy | None, view: View, now: float) -> s.Step:
    cursor = UnreadCursor(read_to=view.cursor.read_to, is_counted=view.cursor.is_counted)
    return next_step(state, given, replace(view, cursor=cursor), now)


def _not_urgent(*kinds: type) -> tuple[Any, str, Any]:
    return live_state, "NEEDS_NO_CONFIRMATION", (*NEEDS_NO_CONFIRMATION, *kinds)


RULES: dict[str, tuple[str, tuple[Any, str, Any]]] = {
    "above": (
        "another window holds only beyond whatever anybody can have posted",
        (PostingBounds, "posted_to_max", property(lambda bounds: 0)),
    ),
    "dead_first": (
        "a dead letter is confirmed before anything that follows it", _not_urgent(f.DeadLettered)
    ),
    "removal_first": (
        "a removal is confirmed before anything that follows it",
        _not_urgent(f.Removed, f.Opened, f.Retargeted, f.RateSet),
    ),
    "forgot_first": ("a discard is confirmed before anything that follows it", _not_urgent(f.Forgot)),
    "gap": (
        "what is discarded leaves room for its numbers", (live_state, "decide", _decide_without_gap)
    ),
    "seen": (
        "a receiver unparks only when all that was seen is settled", (actor, "next_step", _step_unseen)
    ),
}  # fmt: skip


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Take a rule out of the product; none, where it is empty."""
    if not rule:
        yield
        return
    _, (owner, name, value) = RULES[rule]
    with patch.object(owner, name, value):
        yield


def explore_one(seed: int, steps: int, off: str = "") -> State:
    """Let one course of things run, with all rules or without one; returns the state in the end."""

    async def course() -> State:
        receiver = ReceiverWorld(seed)
        await receiver.run(steps)
        return receiver.state

    with without(off), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(course())


class ReceiverWorld:
    """One receiver, its stream, its journal, and its owner.

    `broken` lists what is wrong with attempts and burials, whose own failures the product would bear.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ShardWorld(POLICIES[0])
        self.number_of: dict[int, int] = {}
        self.position_of: dict[int, int] = {}
        self.taken: set[int] = set()
        self.calm = False
        self.broken: list[str] = []
        self.operator = OperatorRequests()
        self._send, self._bury = self.world.sender.send, self.world.dead_letters.bury
        self.world.sender.send = self.send  # type: ignore[method-assign, assignment]
        self.world.dead_letters.bury = self.bury  # type: ignore[method-assign]
        self.world.sender.reply = self.reply

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            await self.world.pass_time(self.random.choice((0.0, 0.0, 0.001, 0.003, 0.02)))
            self.check()
        await self.finish()

    @property
    def state(self) -> State:
        return self.world.state

    # ---- what may happen

    def step(self) -> None:
        random, world = self.random, self.world
        match random.random():
            case draw if draw < 0.30:
                self.publish()
            case draw if draw < 0.36:
                world.hand_out()
            case draw if draw < 0.46:
                hold_or_let_go(world.journal)
            case draw if draw < 0.51:
                world.crash(snapshots=random.random() < 0.5, stored=random.choice((0, 0, 1, 2, 5)))
            case draw if draw < 0.59:
                world.put(replace(random.choice(POLICIES)))
            case draw if draw < 0.60:
                world.put(None)
            case draw if draw < 0.64:
                self.operator.ask(resume, world.actor)
            case draw if draw < 0.66:
                self.operator.ask(ping, world.actor)
            case draw if draw < 0.68:
                self.lose_events()
            case draw if draw < 0.70:
                world.actor.give_up_to(random.randint(0, len(world.stream.messages)), "evicted")
            case draw if draw < 0.72:
                self.operator.ask(forget, world.actor)
            case draw if draw < 0.76:
                world.clock.ahead_s += random.choice((0.1, 1.0, 5.0, 90.0))
                world.actor.wake()
            case draw if draw < 0.80:
                world.actor.park() if world.actor.loaded else None
            case draw if draw < 0.84:
                world.sender.latency_s = random.choice((0.001, 0.001, 0.01, 0.5))
            case draw if draw < 0.86:
                world.hand_out_again()
            case _:
                world.actor.wake()

    def publish(self) -> None:
        """A direct send, a copy of the router's, a copy that comes twice, or something sent again."""
        random, position = self.random, len(self.world.stream.messages) + 1
        again = "r1" if random.random() < 0.1 else ""
        source = 0 if again or random.random() < 0.5 else max(1, position - random.choice((0, 0, 0, 2)))
        self.world.store(name=random.choice("abcdefgh"), source=source, again=again)
        if random.random() < 0.6:
            self.world.hand_out()

    def lose_events(self) -> None:
        """Deletes open events from the stream that no owner has in memory."""
        world = self.world
        if world.actor.loaded and not world.actor.pending.cursor.reading:
            pending = world.actor.pending
            opened = [each.position for each in world.actor.live.confirmed.open]
            world.stream.lost |= {each for each in opened if not pending.has(each)}

    # ---- what the world does

    def reply(self, attempt: Attempt) -> Outcome:
        status = 200 if self.calm else self.random.choice(OUTCOMES)
        if status == 200 and attempt.sequence is not None:
            self.taken.add(attempt.sequence)
        return answer(status) if status else NO_ANSWER

    async def send(self, attempt: Attempt) -> Outcome:
        if attempt.sequence is not None and attempt.may_start():
            self.check_number(attempt.event.position, attempt.sequence)
            self.check_turn(attempt.sequence)
        return await self._send(attempt)

    async def bury(self, receiver: str, burials: Sequence[f.Burial], answers: Mapping[int, str]) -> None:
        for each in burials:
            if each.sequence is not None:
                self.check_number(each.position, each.sequence)
        await self._bury(receiver, burials, answers)

    # ---- what must hold

    def check_number(self, position: int, sequence: int) -> None:
        if self.number_of.setdefault(position, sequence) != sequence:
            self.broken.append(f"{position} has number {self.number_of[position]}, not {sequence}")
        if self.position_of.setdefault(sequence, position) != position:
            self.broken.append(f"number {sequence} is that of {self.position_of[sequence]}, not {position}")

    def check_turn(self, sequence: int) -> None:
        if sequence - 1 in self.position_of and sequence - 1 not in self.taken:
            settled = self.world.journal.folded[RECEIVER].settled_sequence
            if settled < sequence - 1:
                self.broken.append(f"{sequence} is posted while no more than {settled} are settled")

    def check(self) -> None:
        state = self.state
        assert not self.broken
        assert len(state.open) <= 1
        for entry in state.open:
            assert entry.position <= state.frontier.position
            assert entry.sequence <= state.frontier.sequence
        assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state

    async def finish(self) -> None:
        """All goes well from now on: then nothing is left to do."""
        world = self.world
        self.calm, world.sender.latency_s = True, 0.001
        world.journal.let_go()
        world.put(POLICIES[0])
        world.hand_out()
        actor = await world.host.residents.when_loaded(RECEIVER)
        await resume(actor)
        await world.until(self.is_quiet, within_s=4000)
        self.check_end()

    def is_quiet(self) -> bool:
        journal, state = self.world.journal, self.state
        assert not self.broken
        if self.world.host.shard_unacked.unacked_count or journal.confirmed_index < journal.index:
            return False
        # An alert about dead letters is over after an hour: it is not waited for.
        at_rest = not (state.open or state.parked or state.burials)
        return at_rest and state == journal.folded.get(RECEIVER)

    def check_end(self) -> None:
        settled = set[int]()
        for fact in self.world.journal.facts:
            match fact:
                case f.Delivered(events=events) | f.DeadLettered(events=events):
                    settled |= {each.position for each in events}
                case f.EventDropped(position=position) | f.EventRefused(position=position):
                    settled.add(position)
                case f.Missing(first=first, last=last):
                    settled |= set(range(first, last + 1))
                case f.Removed(position=position) | f.Forgot(position=position):
                    settled |= set(range(1, position + 1))
        assert set(range(1, len(self.world.stream.messages) + 1)) <= settled
