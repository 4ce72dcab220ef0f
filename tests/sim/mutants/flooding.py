"""The rules of parked tenants, each taken out by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from actors.machine.bucket import Bucket
from angarium.node import shard_snapshots
from streams.journal import claim
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import ShardRecord
from streams.journal.routing_progress import RoutingProgress
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.reading.reader import Reader
from streams.routing import parked_tenants_reader, router, tenant_rates
from streams.routing.ahead_reader import AheadReader
from streams.routing.read_requests import ReadRequest
from streams.routing.router import Router
from streams.routing.tenant_rates import TenantRates
from streams.routing.tenants import TenantInMemory, Tenants
from streams.routing.unrouted_burial import UnroutedBurial
from streams.storage import purge
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import eviction, flooding

_read_past, _purge_read_past = claim.read_shard_record, vars(purge)["read_shard_record"]
_bury, _shed = UnroutedBurial.bury, Tenants.shed
_burying = set[asyncio.Task[None]]()
"""Burials that nothing waits for."""
_take_read = Tenants.take_read
_add, _drop, _init, _recognise = Tenants.add, Tenants.drop, Tenants.__init__, Tenants.recognise


def _without_parked(past: ShardRecord) -> ShardRecord:
    assert past.routing is not None
    return replace(past, routing=RoutingProgress(routed=past.routing.routed))


async def _without_the_parked(*args: Any) -> ShardRecord:
    return _without_parked(await _read_past(*args))


async def _purged_without_the_parked(*args: Any) -> ShardRecord:
    return _without_parked(await _purge_read_past(*args))


def _checkpoint_without_the_parked(**members: Any) -> Checkpoint:
    return Checkpoint(**members | {"parked_tenants": {}})


def _first_unmatched(tenant: Any) -> int:
    """The position of the first event without a match: copies of those before may be unconfirmed."""
    return tenant.unmatched[0].position if tenant.unmatched else int(tenant.read_to) + 1


def _held_and_passed(of: Tenants[Any], event: Any) -> None:
    _add(of, event)
    if of.by_name[event.tenant].parked:
        del of.holding_back[event.position]


def _unread(tenant: TenantInMemory[Any]) -> bool:
    return not tenant.events


def _unrouted(tenant: TenantInMemory[Any]) -> bool:
    return tenant.read_to >= tenant.passed_to


def _passed_to_stays(of: Tenants[Any], name: str, position: int) -> None:
    before = of.by_name[name].passed_to
    _drop(of, name, position)
    of.by_name[name].passed_to = before or position


def _passed_to_from_the_position(of: Tenants[Any], recorded: RoutingProgress, rates: TenantRates) -> None:
    _init(of, recorded, rates)
    for tenant in of.parked.values():
        tenant.passed_to = tenant.read_to


def _kept_waiting(of: Tenants[Any], name: str, *, may_park: bool) -> bool:
    return False


async def _whatever_a_replica_shows(
    js: JetStream, stream: str, subject: str, after: int, _: int, count_max: int, bytes_max: int, **__: Any
) -> list[StoredMessage]:
    return (await js.read(stream, subject, after + 1, count_max, bytes_max)).messages


def _always_kept(of: Tenants[Any], name: str, *, may_park: bool) -> bool:
    return True


def _unrecognised(of: Tenants[Any], name: str, position: int) -> bool:
    return False


def _recognised_and_passed(of: Tenants[Any], name: str, position: int) -> bool:
    recognised = _recognise(of, name, position)
    of.holding_back.pop(position, None)
    return recognised


def _recognised_and_never_overdue(of: Tenants[Any], name: str, position: int) -> bool:
    recognised = _recognise(of, name, position)
    if (event := of.holding_back.get(position)) is not None:
        event.came_at += 3600.0
    return recognised


async def _as_found(_: AheadReader) -> None:
    """Wait for nothing."""


async def _buried_unstored(*_: Any) -> None:
    """Take letters as stored."""


async def _buried_later(of: UnroutedBurial, tenant: str, found: Any) -> None:
    _burying.add(asyncio.ensure_future(_bury(of, tenant, found)))


def _routed_whatever_is_parked(of: RoutingProgress, tenant: str) -> int:
    return of.routed


def _always_taken(of: Tenants[Any], request: ReadRequest, events: Any, *, complete: bool) -> Any:
    tenant = of.parked[request.tenant]
    end, tenant.evicted_to = tenant.evicted_to, 0
    kept = _take_read(of, request, events, complete=complete)
    tenant.evicted_to = end
    return kept


def _told_as_kept(of: Tenants[Any], request: ReadRequest, events: Any, *, complete: bool) -> Any:
    _take_read(of, request, events, complete=complete)
    return events


def _next_event_kept(of: Tenants[Any], may_park: Any, *, kept: int = 1) -> list[Any]:
    return _shed(of, may_park)


def _full(_: float, now: float, epoch: int) -> Bucket:
    return Bucket(1e9, now, epoch)


def _shed_and_not_read(of: Tenants[Any], may_park: Callable[[str], bool], *, kept: int = 1) -> list[Any]:
    dropped = _shed(of, may_park, kept=kept)
    for event in dropped:
        tenant = of.by_name[event.tenant]
        tenant.read_to = max(tenant.read_to, tenant.passed_to)
    return dropped


class _PausedForEver(Reader):
    def set_pulling_paused(self, paused: bool) -> None:
        if paused:
            super().set_pulling_paused(paused)


FLOODING_MUTANTS = [
    Mutant("parked-forgotten", "a claim repeats the parked tenants",
           ((claim, "read_shard_record", _without_the_parked),),
           flooding.owner_of_a_parked_tenant_dies),
    Mutant("parked-not-in-the-checkpoint", "the checkpoint carries the parked tenants",
           ((shard_snapshots, "Checkpoint", _checkpoint_without_the_parked),),
           flooding.journal_ages_out_behind_a_parked_tenant),
    Mutant("purged-beyond-the-parked", "the purge goes never beyond a parked tenant's position",
           ((purge, "read_shard_record", _purged_without_the_parked),),
           flooding.reading_of_a_parked_tenant_stops_and_continues),
    Mutant("position-of-the-unmatched", "the position is that of the lowest event that is not routed",
           ((TenantInMemory, "unrouted_from", property(_first_unmatched)),),
           flooding.owner_of_a_parked_tenant_dies),
    Mutant("held-and-passed", "an arrival that is held stops `routed`",
           ((Tenants, "add", _held_and_passed),),
           flooding.event_is_held_behind_a_flood),
    Mutant("unparked-unread", "a tenant is parked until everything up to `passed_to` is read",
           ((TenantInMemory, "has_caught_up", property(_unread)),),
           flooding.owner_of_a_parked_tenant_dies),
    Mutant("unparked-unrouted", "a tenant is parked until everything up to `passed_to` is routed",
           ((TenantInMemory, "has_caught_up", property(_unrouted)),),
           flooding.event_is_held_behind_a_flood),
    Mutant("passed-to-not-raised", "what arrives of a parked tenant and is dropped raises `passed_to`",
           ((Tenants, "drop", _passed_to_stays),),
           flooding.replica_lags_behind_a_parked_tenant),
    Mutant("passed-to-from-the-position", "after a takeover `passed_to` is what was routed",
           ((Tenants, "__init__", _passed_to_from_the_position),),
           flooding.owner_of_a_parked_tenant_dies),
    Mutant("complete-by-a-replica", "a read is complete by the leader's word alone",
           ((parked_tenants_reader, "next_messages", _whatever_a_replica_shows),),
           flooding.replica_lags_behind_a_parked_tenant),
    Mutant("never-parked", "a tenant with too many events in memory is parked",
           ((Tenants, "admits", _always_kept),),
           flooding.owner_of_a_parked_tenant_dies),
    Mutant("waits-for-long", "a tenant whose event keeps `routed` back for too long is parked",
           ((Tenants, "park", _kept_waiting),),
           flooding.one_event_waits_and_others_are_routed),
    Mutant("never-read-ahead", "events of other tenants are read ahead of a flood",
           ((AheadReader, "arrived", lambda *_: None),),
           flooding.others_are_read_ahead_of_a_flood),
    Mutant("read-ahead-and-taken-again", "an event that was read ahead is recognised when it arrives",
           ((Tenants, "recognise", _unrecognised),),
           flooding.others_are_read_ahead_of_a_flood),
    Mutant("read-ahead-and-passed", "an event that was read ahead stops `routed` from its arrival on",
           ((Tenants, "recognise", _recognised_and_passed),),
           flooding.an_event_read_ahead_is_not_routed),
    Mutant("read-ahead-and-never-overdue", "an event that was read ahead stops `routed` for a while only",
           ((Tenants, "recognise", _recognised_and_never_overdue),),
           flooding.an_event_read_ahead_keeps_routed_back_for_a_while),
    Mutant("read-ahead-unmarked", "the mark covers what was read ahead",
           ((Reader, "note", lambda *_: None),),
           flooding.an_event_read_ahead_is_lost),
    Mutant("read-ahead-unproven", "what is read ahead is taken when the consumer has proved that it is there",
           ((AheadReader, "next_arrival", _as_found),),
           flooding.a_new_tail_is_read_ahead),
    Mutant("no-event-evicted", "events of a parked tenant are evicted before the stream is full",
           ((Router, "evict_unrouted", lambda *_: None),),
           eviction.events_of_the_largest_backlog_are_evicted),
    Mutant("parked-events-purged", "a tenant's events are purged by subject up to its own position",
           ((RoutingProgress, "routed_of", _routed_whatever_is_parked),),
           eviction.events_of_the_largest_backlog_are_evicted),
    Mutant("evicted-unburied", "what is evicted becomes a dead letter",
           ((UnroutedBurial, "bury", _buried_unstored),),
           eviction.events_of_the_largest_backlog_are_evicted),
    Mutant("evicted-before-its-letters", "a position passes what is evicted when its letters are stored",
           ((UnroutedBurial, "bury", _buried_later),),
           eviction.owner_dies_before_the_letters_are_stored),
    Mutant("page-taken-of-evicted", "what was requested of a tenant before it is evicted is not taken",
           ((Tenants, "take_read", _always_taken),),
           eviction.page_arrives_late_of_an_evicted_tenant),
    Mutant("page-counted-and-not-taken", "only events that are kept count as memory",
           ((Tenants, "take_read", _told_as_kept),),
           eviction.page_arrives_late_of_an_evicted_tenant),
    Mutant("next-event-kept", "a tenant that waits for a token needs no memory",
           ((Tenants, "shed", _next_event_kept),),
           eviction.memory_is_short_and_tenants_wait_for_tokens),
    Mutant("tokens-not-waived", "nobody waits for the token of a tenant that cannot be parked",
           ((Tenants, "waive_tokens", lambda *_: False),),
           eviction.more_tenants_wait_for_tokens_than_can_be_parked),
    Mutant("rate-of-a-tenant-ignored", "a router takes events of a tenant at its rate at most",
           ((TenantRates, "take", lambda *_: 0.0),),
           eviction.events_of_the_largest_backlog_are_evicted),
    Mutant("burst-after-a-takeover", "a router that begins has one token for each tenant",
           ((tenant_rates, "Bucket", _full),)),
    Mutant("shed-and-not-read", "what is dropped for want of memory is read again",
           ((Tenants, "shed", _shed_and_not_read),),
           eviction.memory_is_short_and_tenants_wait_for_tokens),
    Mutant("requests-paused-for-ever", "events are requested again when there is memory for them",
           ((router, "Reader", _PausedForEver),)),
]  # fmt: skip
