"""Rules about receivers that are offline, each taken out by itself."""

from actors.machine import decide, evolve
from actors.machine import facts as f
from actors.machine.alerts.returning import after_success
from actors.machine.bucket import Bucket
from actors.machine.scheduling import next_step
from actors.machine.state import Returning, State
from streams.journal.journal import Journal
from tests.sim.mutants.mutant import Mutant
from tests.sim.offline import scenarios

_add = Journal.add


def _add_no_ping(log: Journal, fact: f.Fact, state: State, urgent: bool = False) -> int:
    """Keep the outcomes of pings from the journal: only this owner knows them."""
    if isinstance(fact, f.AttemptFailed) and fact.kind == f.OFFLINE_PING:
        return log.index
    return _add(log, fact, state, urgent)


def _with_delays(state: State, fact: f.Delivered) -> State:
    """Let open events keep the delays that were about the time offline."""
    after = after_success(state, fact)
    return State(**{name: getattr(after, name) for name in after.__struct_fields__} | {"open": state.open})


def _widest(returning: Returning, widest: int, now: float) -> int:
    return widest


def _full(bucket: Bucket, since: float) -> Bucket:
    return bucket


OFFLINE_MUTANTS = [
    Mutant("offline-events", "an offline receiver gets pings in place of events",
           ((next_step, "pings_instead", lambda *_: False),), scenarios.pings_take_the_place_of_events),
    Mutant("offline-hot", "a failed ping backs the receiver off",
           ((f.AttemptFailed, "is_trial", property(lambda fact: fact.kind == "event")),),
           scenarios.pings_take_the_place_of_events),
    Mutant("offline-unrecorded", "the outcome of a ping is a fact, so a takeover continues with its schedule",
           ((Journal, "add", _add_no_ping),), scenarios.owner_dies_between_two_pings),
    Mutant("return-delays", "after the time offline, no open event waits for its own delay",
           ((evolve, "after_success", _with_delays),), scenarios.receiver_returns_after_long_delays),
    Mutant("return-wide", "one attempt comes first after the time offline",
           ((next_step, "width_on_return", _widest),), scenarios.receiver_returns_and_hangs),
    Mutant("return-burst", "no burst follows the time offline",
           ((decide, "emptied", _full),), scenarios.receiver_returns_with_saved_tokens),
]  # fmt: skip
