"""The live state of one receiver: each fact is decided here, folded at once, and given to the journal."""

from collections.abc import Sequence
from operator import attrgetter

from actors.configuration.policy import Policy
from actors.configuration.transform import Unshapeable, shaping_of
from actors.machine import commands as c
from actors.machine.alerts.health_changes import FACTS_THAT_CHANGE_HEALTH, health_change
from actors.machine.bucket import Bucket
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.event import Event
from actors.machine.facts import AlertRaised, AlertRecovered, Delivered, Fact
from actors.machine.invariants import InvariantBroken, evolve_checked
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.scheduling.rules import Rule
from actors.machine.state import UNCONFIRMED_MAX, State
from actors.memory.pacing import Pacing, teaches
from actors.memory.tokens import Tokens
from actors.ports import EventShaping
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
    - `pacing`: what is measured to learn the receiver's pace; None as long as nothing is.
    - `failing_restored_at`: when it came into memory, if it was failing by then; else 0.0.
    """

    __slots__ = ("barrier_index", "confirmed", "environment", "failing_restored_at", "invalid", "pacing",
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
        self.pacing: Pacing | None = None

    def restore(self, state: State, policy: Policy | None) -> None:
        """Continue from this state."""
        self.state = self.confirmed = state
        self.policy = policy
        if state.pace is not None:
            # Its last recorded attempt began before that. The clock of its owner may have been ahead.
            ended_at = state.last.at if state.last else 0.0
            self.pacing = Pacing(min(ended_at, self.environment.clock.now()))
        if state.failing_since is not None:
            self.failing_restored_at = self.environment.clock.now()
            self.environment.failing.restore(state)

    def start_attempt(self, now: float, in_flight: int, *, has_token: bool) -> None:
        """Take the token of an attempt that starts now, unless it has one; count it if the pace is learnt."""
        epoch, policy = self.environment.epoch, self.policy
        if not has_token:
            self.tokens.take(now, epoch)
        elif self.tokens.granted_position:
            self.tokens.end_grant(now, epoch, used=True)
        if policy is None or (self.pacing is None and not policy.adaptive.measures):
            return  # The most frequent case.
        if self.pacing is None:
            self.pacing = Pacing()
        per_second = pace_limits(self.state, policy, now).per_second
        if per_second is not None or self.pacing.is_paced:
            self.tokens.keep_one()  # Those that came between two paced attempts make no burst afterwards.
        self.pacing.start(now, in_flight, per_second)

    def end_attempt(self, command: c.RecordOutcome, policy: Policy, now: float) -> None:
        """Record the outcome of an attempt, and what it teaches about the receiver's pace."""
        self.record(command, now)
        outcome, pacing = command.outcome, self.pacing
        if pacing is None:
            if not teaches(outcome):
                return  # The most frequent case.
            pacing = self.pacing = Pacing()
        state = self.state
        observed = pacing.end(policy.adaptive, outcome, now, max(state.throttled_until, state.backoff_until))
        if observed and self.environment.paces_known():
            self.record(c.LearnPace(observed), now)
            if self.state.pace is not state.pace:
                pacing.recorded(now)

    def note_wait(self, rule: Rule, in_flight: int, now: float) -> None:
        """Note that this rule holds attempts back, if a learnt limit is behind it."""
        if self.pacing is None or self.policy is None or rule not in (Rule.PACE, Rule.IN_FLIGHT):
            return
        learnt = pace_limits(self.state, self.policy, now).in_flight
        if rule is Rule.PACE or (learnt is not None and in_flight >= learnt):
            self.pacing.hold()

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
