"""Rules about timed events, each taken out by itself."""

import math
from collections.abc import Callable
from typing import Any

from actors.machine.event import Event
from streams.installation.timed_subjects import EntryAddress
from streams.installation.topology import Names
from streams.nats.answers import Put
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED
from streams.routing.tenants import Tenants
from streams.timed import due_publisher, entries, timed_events
from streams.timed.entries import DueVerdict, Entry, TakenStub, entry_in
from streams.timed.timed_events import TimedEvents
from tests.sim.mutants.mutant import Mutant
from tests.sim.timed import scenarios

_entry_put, _take, _first_second = entries.entry_put, entries.take, due_publisher.first_second


def _put_over_a_stub(names: Names, address: EntryAddress, event: Event) -> Put:
    put = _entry_put(names, address, event)
    return Put(
        put.subject, put.data, {name: each for name, each in (put.headers or {}).items() if name != EXPECTED}
    )


async def _route_each(*args: Any) -> DueVerdict:
    return DueVerdict.ROUTED


async def _route_what_has_no_stub(
    js: JetStream, names: Names, address: EntryAddress, event: Event, age_s: float
) -> DueVerdict:
    message = await js.last_message(names.later, names.timed_subjects.entry(address))
    if message is not None and isinstance(entry_in(names, message), TakenStub):
        return DueVerdict.DROPPED
    return await _take(js, names, address, event, age_s)


async def _replace_whatever_is_there(js: JetStream, entry: Entry, stub: dict[str, str], age_s: float) -> bool:
    await js.publish(entry.message.subject, b"", stub)
    return True


_begin_store = TimedEvents.begin_store


def _pass_at_once(
    events: TimedEvents, tenant: str, event: Event, source: int, ended: Callable[[str], None]
) -> None:
    _begin_store(events, tenant, event, source, lambda why: None)
    ended("")


async def _begin_now(js: JetStream, names: Names, age_s: float, wall: Callable[[], float]) -> int:
    return int(wall())


async def _begin_when_stored(js: JetStream, names: Names, age_s: float, wall: Callable[[], float]) -> int:
    return await _first_second(js, names, 0.0, wall)


def _is_soon(second: int, looked_to: float, empty_minute: int) -> bool:
    return second < looked_to


TIMED_MUTANTS = (
    Mutant(
        "entry-stored-again", "an entry is stored only where nothing is",
        ((timed_events, "entry_put", _put_over_a_stub),),
        scenarios.entry_arrives_after_the_event_was_routed,
    ),
    Mutant(
        "due-untaken", "a due event is routed only if it takes its entry",
        ((timed_events, "take", _route_each),),
        scenarios.due_event_arrives_after_the_next_owners,
    ),
    Mutant(
        "stub-of-nobody", "a stub names the due event that took the entry",
        ((timed_events, "take", _route_what_has_no_stub),),
        scenarios.owner_dies_between_the_stub_and_the_copy,
    ),
    Mutant(
        "taken-unconditionally", "a stub replaces the entry that was read, and nothing else",
        ((entries, "replace_entry", _replace_whatever_is_there),),
        scenarios.event_is_cancelled_while_it_is_taken,
    ),
    Mutant(
        "passed-unstored", "`routed` passes a timed event only when its entry is stored",
        ((TimedEvents, "begin_store", _pass_at_once),),
        scenarios.owner_dies_before_it_has_stored_the_entry,
    ),
    Mutant(
        "opened-from-now", "an owner opens everything that became due before its claim",
        ((due_publisher, "first_second", _begin_now),),
        scenarios.owner_dies_before_the_event_is_due,
    ),
    Mutant(
        "due-long-before-stored", "an event may have been due as long before its entry as it is kept",
        ((due_publisher, "first_second", _begin_when_stored),),
        scenarios.owner_dies_after_it_stored_the_entry_late,
    ),
    Mutant(
        "empty-minute-unnoted", "an entry is noted whose minute was found empty",
        ((due_publisher, "is_missed", _is_soon),),
        scenarios.clock_is_set_back_from_an_empty_minute,
    ),
    Mutant(
        "clock-not-looked-at", "the due publisher looks at its clock every second",
        ((due_publisher, "CLOCK_CHECK_EVERY_S", math.inf),),
        scenarios.clock_is_set_right_after_it_was_set_back,
    ),
    Mutant(
        "opened-once", "everything is opened once more when no deposed leader answers any longer",
        ((due_publisher, "SECOND_SWEEP_S", math.inf),),
        scenarios.leader_that_was_deposed_knows_no_entry,
    ),
    Mutant(
        "taken-unheld", "the tenant of a due event that is being taken waits",
        ((Tenants, "hold", lambda *_: None),),
        scenarios.event_comes_while_the_one_before_it_is_taken,
    ),
)  # fmt: skip
