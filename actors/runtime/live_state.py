"""The live state of one receiver: each fact is decided here, taken as done, and given to the journal."""

from actors.machine import commands as c
from actors.machine.bucket import Bucket
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.facts import Delivered, Fact
from actors.machine.invariants import InvariantBroken, evolve_checked
from actors.machine.state import State
from actors.memory.tokens import Tokens
from actors.news import NEWSWORTHY_FACTS, news
from actors.policy import Policy
from actors.runtime.shard_ports import ShardPorts

UNCONFIRMED_MAX = 256
"""Settlements that may be on no confirmed record yet."""


class LiveState:
    """The state of one receiver as it is, and all that its next fact is decided by.

    `confirmed` is what the confirmed journal says. Nothing may start before the fact with index `barrier` is
    confirmed; `unconfirmed` counts the deliveries that are not. `policy` is the configuration in force, and
    `invalid` says that there is one, and never was a valid one.
    """

    __slots__ = ("barrier", "confirmed", "host", "invalid", "policy", "receiver", "state", "tokens",
                 "unconfirmed")  # fmt: skip

    def __init__(self, receiver: str, host: ShardPorts) -> None:
        self.receiver = receiver
        self.host = host
        self.state = self.confirmed = State(receiver=receiver)
        self.policy: Policy | None = None
        self.invalid = False
        self.tokens = Tokens()
        self.barrier = 0
        self.unconfirmed = 0

    def begin(self, state: State, policy: Policy | None) -> None:
        """Take the state, which is known now."""
        self.state = self.confirmed = state
        self.policy = policy

    def record(self, command: c.Command, now: float) -> None:
        """Decide, and take what was decided as done; the journal will confirm it."""
        host = self.host
        bucket = self.tokens.filled(now, host.epoch)
        for fact in decide(self.state, self.policy, command, now, bucket):
            try:
                self.state = evolve_checked(self.state, fact)
            except InvariantBroken as broken:  # Nothing of it may be recorded, nor what would follow begin.
                host.refuse(str(broken))
                raise
            host.totals.decided(fact)
            hurried = not isinstance(fact, NEEDS_NO_CONFIRMATION)
            index = host.recorder.add(fact, self.state, hurried)
            if hurried:
                self.barrier = index
            elif type(fact) is Delivered:
                self.unconfirmed += 1

    def confirm(self, fact: Fact, state: State) -> None:
        """Take `fact` as confirmed: the journal holds it."""
        kind = type(fact)
        if kind in NEWSWORTHY_FACTS or (kind is Delivered and self.confirmed.failing_since is not None):
            told = news(self.confirmed, fact, state, self.policy, invalid=self.invalid)
            if told is not None:
                self.host.tell(told)
        self.confirmed = state
        if kind is Delivered:
            self.unconfirmed -= 1

    def bucket_at(self, now: float) -> Bucket | None:
        """The bucket, filled up to now; None where there is no limit."""
        return self.tokens.filled(now, self.host.epoch)
