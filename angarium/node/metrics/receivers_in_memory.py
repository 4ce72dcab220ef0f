"""The receivers of a node at one scrape: how many there are, what holds them, and what waits for them."""

from collections import defaultdict
from collections.abc import Callable

from msgspec import Struct, field

from actors.ids import tenant_of
from actors.machine.bucket import refill
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.state import State
from actors.memory.tokens import Tokens
from actors.runtime.host import Host
from actors.runtime.pending import Pending
from actors.status import held_back
from angarium.node.metrics.lateness import is_late, not_loaded_late

HELD_BACK = ("throttled", "backing_off", "offline", "paused", "disabled", "misconfigured", "unverified")
FILLS = ("empty", "low", "high", "full")


class ReceiversInMemory(Struct):
    """The receivers that exist, of all shards that were added.

    - `held`: by tenant and phase.
    - `fills`: those with a rate, by how full their buckets are.
    - `paced`: those with a learnt limit below their configured one, by what set it.
    - `backlogs`, `ages_s`: events that wait or are in flight, and the age of the oldest, by receiver.
    """

    exists: Callable[[str], bool]
    actors: int = 0
    parked: int = 0
    waiting: int = 0
    in_flight: int = 0
    late: int = 0
    held: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    fills: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    paced: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    backlogs: dict[str, float] = field(default_factory=dict)
    ages_s: dict[str, float] = field(default_factory=dict)

    def add(self, host: Host) -> None:
        """Look at the receivers of a shard. One that is removed does not count, and has no phase."""
        now = host.clock.now()
        self.parked += host.count_parked()
        self.late += not_loaded_late(host, now)
        for receiver, actor in host.actors.items():
            live, pending = actor.live, actor.pending
            waits = self._add_waiting(receiver, live.state, pending, now)
            if live.policy is None and not self.exists(receiver):
                continue
            self.actors += 1
            if not actor.loaded:
                continue
            if phase := held_back(live.state, live.policy, now):
                self.held[tenant_of(receiver), phase] += 1
            if waits and not pending.in_flight and is_late(actor, now):
                self.late += 1
            if live.policy is not None and (limits := pace_limits(live.state, live.policy, now)).is_any:
                self.paced[limits.limited_by or limits.in_flight_by] += 1
            if live.tokens.bucket is not None:
                self.fills[_fill(live.tokens, now)] += 1

    def _add_waiting(self, receiver: str, state: State, pending: Pending, now: float) -> bool:
        """Add what waits for a receiver; True if anything does."""
        events, in_flight = pending.mailbox.events, pending.in_flight
        waiting = len(events) + pending.cursor.left_min
        accepted = [each.accepted_at for each in in_flight.values()]
        for entry in state.open:
            waiting += entry.position not in in_flight
            accepted.append(entry.accepted_at)
        if not (waiting or in_flight):
            return False
        self.waiting += waiting
        self.in_flight += len(in_flight)
        self.backlogs[receiver] = waiting + len(in_flight)
        if events:
            accepted.append(events[0].accepted_at)
        if state.parked and state.waiting_since is not None:
            accepted.append(state.waiting_since)
        if accepted:
            self.ages_s[receiver] = max(0.0, now - min(accepted))
        return waiting > 0


def _fill(tokens: Tokens, now: float) -> str:
    """The word for the fill of a bucket."""
    bucket, limit = tokens.bucket, tokens.limit
    if bucket is None or limit is None:
        return "full"
    count = refill(bucket, limit, now, bucket.epoch, tokens.set_aside).tokens
    if count < 1:
        return "empty"
    if count >= limit.burst:
        return "full"
    return "low" if count < limit.burst / 2 else "high"
