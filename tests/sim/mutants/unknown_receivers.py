"""Rules about receivers that are unknown, or known too little, each taken out by itself."""

from actors.machine import commands as c
from actors.memory.unacked import ShardUnacked
from actors.runtime.host import Host
from actors.runtime.live_state import LiveState
from actors.runtime.pending import Pending
from actors.runtime.unknown_receivers.record import BURIED_AT_ONCE, UnknownReceiversRecord
from streams.buckets.known_configurations import KnownConfigurations
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import unknown_receivers
from tests.sim.scenarios.recovery import early_starts

_park, _record = UnknownReceiversRecord.park, LiveState.record


def _record_and_bury(live: LiveState, command: c.Command, now: float) -> None:
    _record(live, command, now)
    record = live.environment.residents.unknown if isinstance(live.environment, Host) else None
    if isinstance(command, c.TurnAway) and record and not record.burials.under_way and live.state.burials:
        record.bury(live.state.burials[:BURIED_AT_ONCE])


def _park_beyond(record: UnknownReceiversRecord) -> None:
    """Recorded as if all that came until now had been decided."""
    if not record.state.parked:
        record.live.record(
            c.PassOver(record.environment.shard_unacked.received), record.environment.clock.now()
        )
    _park(record)


async def _know_enough(configurations: KnownConfigurations) -> None:
    """Relies on the configurations that were heard by now."""


UNKNOWN_MUTANTS = [
    Mutant("unknown-buried-unconfirmed", "who is turned away is buried once that is confirmed",
           ((LiveState, "record", _record_and_bury),),
           unknown_receivers.refusal_is_lost),
    Mutant("unknown-first", "nobody is turned away above what is held for an actor",
           ((ShardUnacked, "lowest_of_others", lambda shard_unacked, receiver: float("inf")),),
           unknown_receivers.an_event_waits_behind_a_slow_receiver),
    Mutant("unknown-delivered-later", "a name that is put is opened above all that was turned away",
           ((UnknownReceiversRecord, "opens_above", lambda record, floor: floor),),
           unknown_receivers.receiver_is_put_before_the_refusal_is_recorded),
    Mutant("unknown-unasked", "nobody is turned away before the leader has spoken",
           ((KnownConfigurations, "catch_up", _know_enough),),
           unknown_receivers.a_receiver_is_put_unnoticed),
    Mutant("unknown-hold-the-floor", "who cannot be decided is left to the stream, and recorded",
           ((UnknownReceiversRecord, "park", lambda record: None),),
           unknown_receivers.an_event_is_undecided),
    Mutant("unknown-left-behind", "a name that is put begins where the record says, while one is undecided",
           ((UnknownReceiversRecord, "opens_above",
             lambda record, floor: max(floor, record.turned_away_to)),),
           unknown_receivers.receiver_is_put_while_its_event_is_undecided),
    Mutant("unknown-overtaken", "a name that is put begins with what lies in the stream undecided",
           ((Pending, "is_behind_unknown", False),),
           unknown_receivers.receiver_is_put_while_its_event_is_undecided),
    Mutant("unknown-unread", "after a takeover all that lies beyond the record's position is decided",
           ((UnknownReceiversRecord, "has_unread", False),),
           unknown_receivers.two_owners_cannot_decide_an_event),
    Mutant("unknown-not-needed", "what is not decided stays in the stream",
           ((UnknownReceiversRecord, "park", _park_beyond),),
           unknown_receivers.two_owners_cannot_decide_an_event),
    Mutant("replaced-configuration", "while configurations are read, the leader says which one is in force",
           ((Host, "known_policy", lambda host, receiver: host.policies.policy(receiver)),),
           early_starts.node_reads_a_configuration_that_was_replaced),
]  # fmt: skip
