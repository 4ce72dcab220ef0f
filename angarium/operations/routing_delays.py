"""Events that wait to be routed, in words: how many of a tenant, since when, and what holds them."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from actors.configuration.policy import Rate
from actors.errors import Unavailable, Unusable
from actors.tenant_settings import ALL_OTHERS, SettingsByTenant, TenantSettings
from actors.times_as_text import age_text
from angarium.access import Access
from angarium.quantities import count_text
from streams.bounded_gather import gather_bounded
from streams.fleet.live_members import live_members
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.claim import Owner, read_owner
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.observation.receiver_snapshots import shard_count
from streams.observation.unrouted_events import (
    UnroutedEvents,
    unrouted_before,
    unrouted_events_of,
    unrouted_tenants,
)

COPY_BYTES = 1 << 10
"""Bytes that a copy may take in the deliveries in addition to its body."""
REASONS_TIMEOUT_S = 5.0
TENANTS_NOTED_MAX = 5
"""Tenants with a note of their own in a list of receivers."""


class RoutingDelay(Struct, frozen=True, kw_only=True):
    """Events of a tenant that wait to be routed.

    - `why` says what holds them, as far as that is known; else it is empty. `remedy` and `command` end it.
    - `rate`: the tenant's rate, if that is what holds them.
    """

    events: UnroutedEvents
    why: str = ""
    remedy: str = ""
    command: str = ""
    rate: Rate | None = None

    @property
    def is_certain(self) -> bool:
        """False if they may be routed already: of a tenant that is not parked, some are read ahead.

        The journal counts these as routed only when everything before them is.
        """
        return self.events.parked or (bool(self.why) and self.rate is None)

    @property
    def text(self) -> str:
        """`3 events of acme wait to be routed, the oldest for 40s`, and the reason."""
        text = self.waiting_text(f" of {self.events.tenant}")
        return f"{text}: {self.why}" if self.why else text

    def waiting_text(self, whose: str = "") -> str:
        """The number of events that wait, and since when."""
        count, age = self.events.count, age_text(time.time() - self.events.oldest_at)
        if count == 1:
            return f"1 event{whose} waits to be routed, for {age}"
        return f"{count:,} events{whose} wait to be routed, the oldest for {age}"


async def routing_delays(
    js: JetStream, names: Names, partitions: int, tenants: Mapping[str, TenantSettings], tenant: str | None
) -> list[RoutingDelay]:
    """The tenants whose events certainly wait, or this one, and why; the longest wait first.

    Raises `Unusable`, `Unavailable` and `ApiError`.
    """
    if tenant is None:
        found = await unrouted_tenants(js, names, partitions)
    else:
        one = await unrouted_events_of(js, names, partitions, tenant)
        found = [] if one is None else [one]
    return [each for each in await _all_delays(js, names, tenants, found) if each.is_certain]


async def _all_delays(
    js: JetStream, names: Names, tenants: Mapping[str, TenantSettings], found: Sequence[UnroutedEvents]
) -> list[RoutingDelay]:
    """The reasons why the events of each tenant wait, or may wait."""
    if not found:
        return []
    alive = {each.node for each in (await live_members(js, names))[0]}
    deliveries = await stream_info(js, names.deliveries)
    room = deliveries.max_bytes - deliveries.bytes if deliveries.max_bytes > 0 else None
    partitions = sorted({each.partition for each in found})
    owners = dict(zip(partitions, await _owners(js, names, partitions), strict=True))
    delays = list[RoutingDelay]()
    for each in found:
        owner = owners[each.partition]
        if owner is None or owner.released is not None or owner.node not in alive:
            why = f"no live node owns partition {each.partition}"
            delays.append(RoutingDelay(events=each, why=why, remedy="start one", command="angarium node"))
        elif room is not None and room < each.oldest_size + COPY_BYTES:
            remedy = "find out why they are not delivered, or raise max_bytes of the stream"
            delays.append(RoutingDelay(events=each, why=f"{names.deliveries} is full", remedy=remedy))
        elif (rate := SettingsByTenant(tenants).for_tenant(each.tenant).rate) is not None:
            table = each.tenant if each.tenant in tenants else f'"{ALL_OTHERS}"'
            why = f"the rate of {each.tenant} is {rate.limit:g}/{rate.per}"
            remedy = f"this is meant; if it is not, raise rate in [tenants.{table}] on all nodes"
            delays.append(RoutingDelay(events=each, why=why, remedy=remedy, rate=rate))
        else:
            delays.append(RoutingDelay(events=each))
    return delays


async def _owners(js: JetStream, names: Names, partitions: Sequence[int]) -> list[Owner | None]:
    async def owner(partition: int) -> Owner | None:
        return (await read_owner(js, names, partition))[0]

    return await gather_bounded(partitions, owner)


async def why_unrouted(access: Access, event: StoredMessage, recent_s: float) -> str:
    """Why an event waits to be routed, and how many come before it; empty if all its copies are stored.

    It is also empty if no event of its tenant has waited for `recent_s`: they are on their way.
    """
    found = await unrouted_before(access.js, access.names, event)
    if found is None or time.time() - found[0].oldest_at < recent_s:
        return ""
    events, before = found
    [delay] = await _all_delays(access.js, access.names, access.settings.tenants, [events])
    if not delay.is_certain:
        return "it is not recorded yet that it is routed; ask again"
    match before:
        case 0:
            place = f"it is the next one of {events.tenant}"
        case 1:
            place = f"1 event of {events.tenant} comes before it"
        case _:
            place = f"{before:,} events of {events.tenant} come before it"
    why = f"; {delay.why}" if delay.why else ""
    if delay.rate is not None:
        why += f", so its turn comes in about {age_text((before + 1) / delay.rate.per_second)}"
    return f"it waits to be routed: {place}{why}"


async def unrouted_notes(access: Access, tenant: str | None) -> list[str]:
    """A sentence for each tenant whose events wait to be routed, or for this one.

    Nothing if NATS does not permit its user to look, or does not answer.
    """
    js, names = access.js, access.names
    try:
        async with asyncio.timeout(REASONS_TIMEOUT_S):
            if not (shards := await shard_count(js, names)):
                return []
            # What follows asks again until it is answered.
            await js.last_message(names.journal, names.journal_of(partition_of(tenant or "", shards)))
            found = await routing_delays(js, names, shards, access.settings.tenants, tenant)
    except (Unusable, Unavailable, ApiError, TimeoutError):
        return []
    notes = [each.text for each in found[:TENANTS_NOTED_MAX]]
    if len(found) > TENANTS_NOTED_MAX:
        more = count_text(len(found) - TENANTS_NOTED_MAX, "more tenant")
        notes.append(f"events of {more} wait to be routed")
    return notes
