"""A random explorer of one receiver that gets batches; `test_batches.py` runs it.

The actor is the product's, under its host, in a shard in memory on virtual time. The seed draws what happens:
events come once, twice and late, POSTs end in any way, some events are rejected or make the receiver fail,
some receivers take few events at a time, configurations change, operators skip and discard, events expire or
are lost from the stream, bodies are dropped and read again, owners crash with unconfirmed facts.

Each POST is held against the journal: order, numbers, what lies between its numbers, what failed together,
what is given up, the limits of the configuration, the rate. At the end everything is settled as it should be.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from actors.configuration.policy import BatchLimits, Policy, Rate, Retry
from actors.machine import facts as f
from actors.machine import invariants
from actors.machine.evolve import parts_of
from actors.machine.facts import Fact
from actors.machine.numbering import Numbered
from actors.machine.outcome import Outcome
from actors.machine.scheduling import batches, expiry, next_step
from actors.machine.state import State
from actors.ports import BatchAttempt
from actors.runtime import live_state, posting_bounds
from actors.runtime.host import Host
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.resume import resume
from actors.runtime.operator_actions.skip import skip
from tests.unit.worlds.batch_rules import RULES, Change
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.shared_steps import OperatorRequests, hold_or_let_go
from tests.unit.worlds.values import NO_ANSWER, answer, policy
from tests.unit.worlds.virtual_time import VirtualLoop

SIZES = (1, 1, 2, 3, 4, 5)
AT_MOST, BURIALS_AT_MOST = 5, 3
"""Bounds in the place of the product's 256 and 128, which random courses would hardly reach."""
REJECTED_ATTEMPTS = 2
RATE = Rate(limit=20, burst=3)
Together = tuple[Numbered, ...]


class Sent(NamedTuple):
    """The first and last number of a POST, by which its receiver recognises it."""

    first: int
    last: int


class BatchWorld:
    """One receiver, its stream, its journal, and its owner.

    - `poison`: events that the receiver rejects (422), or that make it fail (500).
    - `takes`: more events in one POST are answered with `refusal`.
    - `processed`: positions that the receiver worked on; it drops a POST that it has seen before.
    - `broken`: what is wrong with a POST, whose own failures the product would bear.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.most = self.random.choice((0, 0, 2, 3))
        self.takes, self.refusal = self.random.choice(((AT_MOST, 500),) * 3 + ((2, 422), (1, 500), (2, 500)))
        self.limited = self.random.random() < 0.3
        self.world = ShardWorld(self.draw_policy())
        self.poison: dict[int, int] = {}
        self.processed, self.seen = set[int](), set[Sent]()
        self.number_of: dict[int, int] = {}
        self.position_of: dict[int, int] = {}
        self.starts: list[float] = []
        self.decided = deque[float]()
        self.calm = False
        self.broken: list[str] = []
        self.operator = OperatorRequests()
        self._send = self.world.sender.send
        self.world.sender.send = self.send  # type: ignore[method-assign, assignment]
        self.world.sender.reply_to_batch = self.reply

    def draw_policy(self, most: int | None = None) -> Policy:
        random = self.random
        limits = BatchLimits(
            max_events=min(random.choice(SIZES), most or AT_MOST), max_bytes=random.choice((4, 9, 99)),
            linger_s=random.choice((0, 0, 0, 1.5, 4)),
        )  # fmt: skip
        order: Any = random.choice(("strict", "relaxed"))
        return policy(
            order=order, concurrency=2, batch=limits, dedup_window=16, rate=RATE if self.limited else None,
            retry=Retry(
                base_s=0.05, cap_s=0.1, max_age_s=120, max_attempts=self.most,
                rejected_attempts=REJECTED_ATTEMPTS,
            ),
        )  # fmt: skip

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            await self.world.pass_time(self.random.choice((0.0, 0.001, 0.003, 0.02, 0.06)))
            self.check()
        await self.finish()

    @property
    def state(self) -> State:
        return self.world.state

    # ---- what may happen

    def step(self) -> None:
        random, world = self.random, self.world
        match random.random():
            case draw if draw < 0.34:
                self.publish()
            case draw if draw < 0.44:
                hold_or_let_go(world.journal)
            case draw if draw < 0.50:
                stored, first = random.choice((0, 0, 1, 2, 5)), random.choice((1, 2, 3, None))
                self.decided.clear()
                world.crash(snapshots=random.random() < 0.5, stored=stored, handed_out=first)
            case draw if draw < 0.56:
                world.put(self.draw_policy())
            case draw if draw < 0.60:
                world.put(replace(world.policies.known[RECEIVER], paused=random.random() < 0.5))
            case draw if draw < 0.63:
                self.operator.ask(resume, world.actor)
            case draw if draw < 0.66:
                self.operator.ask(skip, world.actor)
            case draw if draw < 0.67:
                self.operator.ask(forget, world.actor)
            case draw if draw < 0.69:
                self.lose_events()
            case draw if draw < 0.73:
                world.clock.ahead_s += random.choice((0.1, 1.0, 5.0, 100.0))
                world.actor.wake()
            case draw if draw < 0.80:
                world.actor.park() if world.actor.loaded else None
            case draw if draw < 0.83:
                world.sender.latency_s = random.choice((0.001, 0.001, 0.01, 0.2))
            case draw if draw < 0.86:
                world.hand_out_again(random.choice((1, 2, 3, None)))
            case draw if draw < 0.89:
                world.within_lease = not world.within_lease
            case _:
                world.actor.wake()

    def publish(self) -> None:
        """A run of events; some have an id that came before, some are poison."""
        random, world = self.random, self.world
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            position = len(world.stream.messages) + 1
            earlier = [each.id for _, each in world.stream.messages[-5:]]
            name = random.choice(earlier) if earlier and random.random() < 0.2 else f"e{position}"
            world.store(name=name, body=b"x" * random.choice((1, 1, 2, 3)))
            if (drawn := random.random()) < 0.2:
                self.poison[position] = 422 if drawn < 0.1 or not self.most else 500
        world.hand_out()

    def lose_events(self) -> None:
        """Delete an open event from the stream that no owner has in memory."""
        world = self.world
        if world.actor.loaded and not world.actor.pending.cursor.reading:
            pending = world.actor.pending
            opened = [each.position for each in world.actor.live.confirmed.open]
            world.stream.lost |= set([each for each in opened if not pending.has(each)][:1])

    # ---- what the receiver does

    def reply(self, attempt: BatchAttempt) -> Outcome:
        positions = [each.position for each in attempt.events]
        bad = {self.poison[each] for each in positions if each in self.poison}
        if 500 in bad:
            return answer(500)
        if len(positions) > self.takes:
            return answer(self.refusal)
        if 422 in bad:
            return answer(422)
        status = 200
        if not self.calm and self.random.random() < 0.3:
            status = self.random.choice((500, 500, 0, 429, 410))
        if status == 200 or (status in (500, 0) and self.random.random() < 0.5):
            sent = Sent(attempt.sequences[0], attempt.sequences[-1])
            if sent not in self.seen:
                self.processed.update(positions)
            self.seen.add(sent)
        return answer(status) if status else NO_ANSWER

    async def send(self, attempt: BatchAttempt) -> Outcome:
        decided_at = self.decided.popleft()
        if attempt.may_start():
            self.check_post(attempt, decided_at)
        outcome = await self._send(attempt)
        await asyncio.sleep(self.random.choice((0, 0, 0.005, 0.1)))  # POSTs do not end in order.
        return outcome

    # ---- what must hold

    def need(self, holds: bool, text: str) -> None:
        if not holds:
            self.broken.append(text)

    def check_post(self, attempt: BatchAttempt, now: float) -> None:
        """Check a POST that was decided, and took its token, at the time `now`."""
        world, limits, need = self.world, attempt.policy.batch, self.need
        assert limits is not None
        mine, positions = attempt.sequences, [each.position for each in attempt.events]
        need(
            list(mine) == sorted(set(mine)) and positions == sorted(set(positions)), f"{mine} is in disorder"
        )
        for number, position in zip(mine, positions, strict=True):
            given = self.number_of.setdefault(position, number)
            need(given == number, f"{position} has number {given}, not {number}")
            named = self.position_of.setdefault(number, position)
            need(named == position, f"number {number} is that of {named}, not {position}")
        oldest = attempt.events[0]
        need(now - oldest.stored_at < attempt.policy.retry.max_age_s, f"{mine} is expired, and posted")
        size = sum(len(each.body) for each in attempt.events)
        fits = len(mine) <= limits.max_events and size <= limits.max_bytes
        need(fits or len(mine) == 1, f"{mine} is larger than allowed")
        need(world.actor.adopted_policy is attempt.policy, f"{mine} is posted under another configuration")
        self.check_rate(attempt.policy.rate, now)
        self.check_turn(attempt, [*world.journal.facts, *(each.fact for each in world.journal.waiting)])

    def check_turn(self, attempt: BatchAttempt, facts: Sequence[Fact]) -> None:
        """No event before or between has to be waited for, and who failed together goes together."""
        live, confirmed = self.world.actor.live, self.world.journal.folded[RECEIVER]
        mine, strict = attempt.sequences, attempt.policy.order == "strict"
        delivered = {
            each.sequence for fact in facts if isinstance(fact, f.Delivered) for each in fact.events
        }  # fmt: skip
        unsettled = {each.sequence for each in confirmed.open}
        for number in range(1 if strict else mine[0], mine[-1]):
            settled = number in delivered or (
                number <= confirmed.frontier.sequence and number not in unsettled
            )
            self.need(number in mine or settled, f"{mine} is posted before {number} is settled")
        last: dict[int, Together] = {}
        for fact in facts:
            if isinstance(fact, f.AttemptFailed | f.Throttled):
                last |= {each.sequence: part for part in parts_of(fact) for each in part}
        together = last.get(mine[0], ())
        self.need(all(last.get(each, ()) is together for each in mine), f"{mine} mixes what failed apart")
        still = {each.sequence for each in live.state.open}
        left = tuple(each.sequence for each in together if each.sequence in still and
                     last[each.sequence] is together)  # fmt: skip
        if together and mine != left:
            size, limits = 0, attempt.policy.batch
            assert limits is not None
            bodies = {position: each.body for position, (_, each) in enumerate(self.world.stream.messages, 1)}
            fitting = list[int]()
            for number in left[: limits.max_events]:
                size += len(bodies[self.position_of.get(number, 0)]) if number in self.position_of else 0
                if fitting and size > limits.max_bytes:
                    break
                fitting.append(number)
            self.need(mine == tuple(fitting), f"{mine} instead of {left}")

    def check_rate(self, rate: Rate | None, now: float) -> None:
        if rate is None:
            self.starts.clear()
            return
        self.starts.append(now)
        for index, at in enumerate(self.starts):
            most = rate.burst_max + rate.per_second * (now - at) + 1e-6
            self.need(len(self.starts) - index <= most, "more attempts than the rate allows")

    def check(self) -> None:
        assert not self.broken, self.broken
        world = self.world
        if not world.actor.loaded:
            return
        live, pending = world.actor.live, world.actor.pending
        waiting = [each.fact for each in world.journal.waiting]
        unsure = sum(len(fact.events) for fact in waiting if isinstance(fact, f.Delivered))
        assert unsure + len(pending.in_flight) <= AT_MOST
        assert len(live.state.open) <= AT_MOST
        assert not world.refused, world.refused
        assert msgspec.json.decode(msgspec.json.encode(live.state), type=State) == live.state

    async def finish(self) -> None:
        """All goes well from now on, in batches as small as the receiver takes: nothing is left to do."""
        world = self.world
        self.calm, world.sender.latency_s, world.within_lease = True, 0.001, True
        world.journal.let_go()
        world.put(self.draw_policy(self.takes))
        world.hand_out()
        actor = await world.host.residents.when_loaded(RECEIVER)
        await resume(actor)
        await world.until(self.is_quiet, within_s=400)
        self.check_end()

    def is_quiet(self) -> bool:
        journal, state = self.world.journal, self.state
        assert not self.broken, self.broken
        if self.world.host.shard_unacked.unacked_count or journal.confirmed_index < journal.index:
            return False
        busy = state.open or state.parked or state.burials  # An alert may go on for an hour: no matter.
        return not busy and state == journal.folded.get(RECEIVER)

    def check_end(self) -> None:
        """Each event was processed or given up, and what was given up for its failures had failed alone."""
        facts, limit = self.world.journal.facts, REJECTED_ATTEMPTS + math.ceil(math.log2(AT_MOST))
        rejected = dict.fromkeys(self.number_of, 0)
        for fact in facts:
            if isinstance(fact, f.AttemptFailed) and fact.rejected:
                for each in fact.events:
                    rejected[each.position] += 1
        assert all(count <= limit for count in rejected.values())
        for fact in facts:
            if isinstance(fact, f.Delivered):
                assert {each.position for each in fact.events} <= self.processed
            if isinstance(fact, f.DeadLettered) and fact.reason in ("rejected", "attempts"):
                for each in fact.events:
                    self.check_given_up(each, fact.reason)

    def check_given_up(self, event: Numbered, reason: str) -> None:
        failures = [
            fact for fact in self.world.journal.facts
            if isinstance(fact, f.AttemptFailed) and event in fact.events and not (fact.gone or fact.ours)
        ]  # fmt: skip
        assert len(failures[-1].events) == 1
        if reason == "rejected":
            assert event.position in self.poison or self.refusal == 422
            return
        assert sum(not fact.halved for fact in failures) >= self.most


# ---- the rules

BOUNDS: tuple[Change, ...] = (
    (posting_bounds, "UNCONFIRMED_MAX", AT_MOST), (live_state, "UNCONFIRMED_MAX", AT_MOST),
    (next_step, "OPEN_MAX", AT_MOST), (batches, "OPEN_MAX", AT_MOST), (invariants, "OPEN_MAX", AT_MOST),
    (next_step, "BURIALS_MAX", BURIALS_AT_MOST), (expiry, "BURIALS_MAX", BURIALS_AT_MOST),
    (invariants, "BURIALS_MAX", BURIALS_AT_MOST),
)  # fmt: skip


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Take a rule out of the product, if one is named; in any case the bounds are small."""
    with ExitStack() as stack:
        for owner, name, value in (*BOUNDS, *RULES.get(rule, ())):
            stack.enter_context(patch.object(owner, name, value))
        yield


def explore_batches(seed: int, steps: int, off: str = "") -> State:
    """Let one course of things run, with all rules or without one; returns the state in the end."""

    async def course() -> State:
        receiver, started = BatchWorld(seed), Host.attempt_started

        def watched(host: Host) -> None:
            receiver.decided.append(host.clock.now())
            started(host)

        with patch.object(Host, "attempt_started", watched):
            await receiver.run(steps)
        return receiver.state

    with without(off), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(course())
