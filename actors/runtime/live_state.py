"""The live state of one receiver: each fact is decided here, folded at once, and given to the journal."""

from collections.abc import Sequence
from operator import attrgetter
from typing import assert_never

from actors.configuration.policy import Policy
from actors.configuration.transform import Unshapeable, shaping_of
from actors.machine import commands as c
from actors.machine.alerts.health_changes import FACTS_THAT_CHANGE_HEALTH, health_change
from actors.machine.bucket import Bucket
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.event import Event
from actors.machine.facts import AlertRaised, AlertRecovered, Delivered, Fact
from actors.machine.invariants import InvariantBroken, evolve_checked
from actors.machine.outcome import Answered, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.learnt_pace import pace_limits, spacing_s
from actors.machine.scheduling.rules import Rule
from actors.machine.state import UNCONFIRMED_MAX, State, open_entry
from actors.memory.pace_memory import PaceMemory
from actors.memory.tokens import Tokens
from actors.ports import Attempt, BatchAttempt, EventShaping
from actors.runtime.environment import ActorEnvironment

_TRANSFORM = attrgetter("transform")


class LiveState:
    """The state of one receiver as it is now, with everything that is needed to decide its next fact.

    - `confirmed`: its state according to the confirmed journal.
    - `barrier_index`: nothing may start before the fact with this index is confirmed.
    - `unconfirmed_deliveries`: number of events whose delivery is not confirmed.
    - `waits_for_room`: nothing starts before some of them are confirmed.
    - `policy`: the configuration in force.
    - `invalid`: the receiver has a configuration, but never had a valid one.
    - `pace_memory`: what is measured to learn the receiver's pace; None as long as nothing is.
    - `failing_restored_at`: when it came into memory, if it was failing by then; else 0.0.
    """

    __slots__ = ("barrier_index", "confirmed", "environment", "failing_restored_at", "invalid", "pace_memory",
                 "policy", "receiver", "state", "tokens", "unconfirmed_deliveries",
                 "waits_for_room")  # fmt: skip

    def __init__(self, receiver: str, environment: ActorEnvironment) -> None:
        self.receiver = receiver
        self.environment = environment
        self.state = self.confirmed = State(receiver=receiver)
        self.policy: Policy | None = None
        self.invalid = False
        self.failing_restored_at = 0.0
        self.tokens = Tokens()
        self.barrier_index = 0
        self.unconfirmed_deliveries = 0
        self.waits_for_room = False
        self.pace_memory: PaceMemory | None = None

    def restore(self, state: State, policy: Policy | None) -> None:
        """Continue from this state."""
        self.state = self.confirmed = state
        self.policy = policy
        if state.pace is not None:
            # Its last recorded attempt began before that. The clock of its owner may have been ahead.
            ended_at = state.last.at if state.last else 0.0
            self.pace_memory = PaceMemory(min(ended_at, self.environment.clock.now()))
        if state.failing_since is not None:
            self.failing_restored_at = self.environment.clock.now()
            self.environment.failing.restore(state)

    def start_paced(self, now: float, in_flight: int) -> None:
        """Count an attempt that has taken its token, and starts while the pace is measured or learnt."""
        policy = self.policy
        if policy is None:
            return
        if self.pace_memory is None:
            self.pace_memory = PaceMemory()
        per_second = pace_limits(self.state, policy, now).per_second
        if per_second is not None or self.pace_memory.is_paced:
            self.tokens.keep_one()  # Those that came between two paced attempts make no burst afterwards.
        self.pace_memory.start(now, in_flight, per_second)

    def learn(self, outcome: Answered | Failed, policy: Policy, now: float) -> None:
        """Record what an outcome teaches about the receiver's pace, once the outcome is recorded."""
        pace_memory, state = self.pace_memory, self.state
        if pace_memory is None:
            pace_memory = self.pace_memory = PaceMemory()
        observed = pace_memory.end(
            policy.adaptive, outcome, now, max(state.throttled_until, state.backoff_until)
        )
        if observed and self.environment.all_know_paces():
            self.record(c.LearnPace(observed), now)
            if self.state.pace is not state.pace:
                pace_memory.recorded(now)

    def note_wait(self, rule: Rule, in_flight: int, now: float) -> None:
        """Note that this rule holds attempts back, if a learnt limit is behind it."""
        if self.pace_memory is None or self.policy is None or rule not in (Rule.PACE, Rule.IN_FLIGHT):
            return
        learnt = pace_limits(self.state, self.policy, now).in_flight
        if rule is Rule.PACE or (learnt is not None and in_flight >= learnt):
            self.pace_memory.reach_limit()

    def record(self, command: c.Command, now: float) -> None:
        """Decide, fold the facts at once, and give them to the journal, which confirms them later."""
        environment = self.environment
        bucket = self.tokens.filled(now, environment.epoch)
        for fact in decide(self.state, self.policy, command, now, bucket):
            try:
                self.state = evolve_checked(self.state, fact)
            except InvariantBroken as broken:  # The fact must not be recorded, and nothing may follow it.
                environment.refuse(str(broken))
                raise
            environment.totals.decided(fact)
            if type(fact) is Delivered:
                if fact.returns_at:
                    self.tokens.bucket = fact.bucket  # Without a burst.
                count = len(fact.events)
                self.unconfirmed_deliveries += count
                # Two more such batches might have to wait for the confirmation, so it has to come soon.
                soon = self.unconfirmed_deliveries + 2 * count > UNCONFIRMED_MAX
                environment.recorder.add(fact, self.state, soon)
                continue
            urgent = not isinstance(fact, NEEDS_NO_CONFIRMATION)
            index = environment.recorder.add(fact, self.state, urgent)
            if urgent:
                self.barrier_index = index

    def note_outage(self) -> None:
        """Record that no time counts as failing from now on, if this node can connect to no host."""
        if self.environment.outage.since is not None and self.state.may_age:
            self.record(c.NoteOutage(), self.environment.clock.now())

    def attempt(self, post: s.Post | s.PostBatch, policy: Policy) -> Attempt | BatchAttempt:
        """The attempt that a step asks for."""
        state, may_start = self.state, self.environment.within_lease
        shaped = bool(state.transforms or state.open)
        tried = open_entry(state, post.events[0].position) if post.attempt > 1 else None
        failures, token_s = tried.failures if tried else 0, 1 / state.limit.per_second if state.limit else 0.0
        if self.pace_memory is not None:
            token_s = max(token_s, spacing_s(state, policy, self.environment.clock.now()))
        match post:
            case s.Post(event):
                return Attempt(
                    receiver=self.receiver, policy=policy, event=event, sequence=post.sequence,
                    ordinal=post.attempt, may_start=may_start, failures=failures, token_s=token_s,
                    shapings=self.shapings((event,), policy) if shaped else (),
                )  # fmt: skip
            case s.PostBatch():
                return BatchAttempt(
                    receiver=self.receiver, policy=policy, events=post.events, sequences=post.sequences,
                    ordinal=post.attempt, may_start=may_start, failures=failures, token_s=token_s,
                    shapings=self.shapings(post.events, policy) if shaped else (),
                )  # fmt: skip
            case _:
                assert_never(post)

    def confirm(self, fact: Fact, state: State) -> None:
        """Take `fact` as confirmed, since the journal holds it."""
        kind = type(fact)
        if kind in FACTS_THAT_CHANGE_HEALTH or (
            kind is Delivered and self.confirmed.failing_since is not None
        ):
            failing = self.environment.failing
            change = health_change(
                self.confirmed, fact, state, self.policy,
                invalid=self.invalid, was_offline=failing.was_reported(self.receiver),
            )  # fmt: skip
            if change is not None:
                self.environment.on_health_change(change)
            failing.note(state)
        elif isinstance(fact, (AlertRaised, AlertRecovered)):
            self.environment.on_alert(fact)
        self.confirmed = state
        if type(fact) is Delivered:
            self.unconfirmed_deliveries -= len(fact.events)

    def shapings(self, events: Sequence[Event], policy: Policy) -> tuple[EventShaping, ...]:
        """The shapings of these events, None for one that is sent as published; empty if all are."""
        state = self.state
        if not state.transforms and not any(map(_TRANSFORM, state.open)):
            return ()  # The most frequent case.
        own = {each.position: each.transform for each in state.open}
        found = tuple(
            self._shaping(own.get(event.position, state.transform), policy.pseudonym_key) for event in events
        )
        return found if any(found) else ()

    def _shaping(self, own: int, key: str | None) -> EventShaping:
        """The shaping of an event with the transform of this revision."""
        revision = self.state.transform_for(own)
        if revision == 0:
            return None
        kept = None if revision is None else self.state.kept_transform(revision)
        return Unshapeable("its transform is gone") if kept is None else shaping_of(kept.transform, key)

    def bucket_at(self, now: float) -> Bucket | None:
        """The bucket, filled up to now; None if there is no limit."""
        return self.tokens.filled(now, self.environment.epoch)
