"""The events that wait to be routed: how many of each tenant, since when, and how many before one of them."""

import time

from msgspec import Struct

from streams.bounded_gather import gather_bounded
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.claim import read_shard_record
from streams.journal.routing_progress import RoutingProgress
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream

ROUTED_WITHIN_S = 10.0
"""Age up to which events may just be on their way, or routed and not recorded yet."""
SEARCHED_MAX = 64
SEARCHED_BYTES_MAX = 256 << 10
"""The first events of a partition that are checked for tenants that are not parked."""


class UnroutedEvents(Struct, frozen=True, kw_only=True):
    """Events of a tenant that are not routed, by the journal.

    - `count`: their number; `oldest_at`: when the first was stored; `oldest_size`: of its body.
    - `parked`: a router leaves them in the stream.
    """

    tenant: str
    partition: int
    count: int
    oldest_at: float
    oldest_size: int
    parked: bool


async def unrouted_tenants(js: JetStream, names: Names, partitions: int) -> list[UnroutedEvents]:
    """The tenants whose events wait in the stream, the longest first: the parked ones, and late ones.

    Raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`.
    """

    async def search(partition: int) -> list[UnroutedEvents]:
        routing = (await read_shard_record(js, names, partition)).routing
        if routing is None:
            return []
        tenants = {**routing.parked_tenants} | await _late(js, names, partition, routing.routed + 1)
        found = [await _count(js, names, partition, each, routing) for each in tenants]
        return [each for each in found if each is not None]

    each = await gather_bounded(range(partitions), search)
    return sorted((tenant for found in each for tenant in found), key=lambda tenant: tenant.oldest_at)


async def unrouted_events_of(
    js: JetStream, names: Names, partitions: int, tenant: str
) -> UnroutedEvents | None:
    """The events of one tenant, if they are parked or late. Raises like `unrouted_tenants`."""
    partition = partition_of(tenant, partitions)
    routing = (await read_shard_record(js, names, partition)).routing
    found = None if routing is None else await _count(js, names, partition, tenant, routing)
    return found if found is not None and (found.parked or _is_late(found.oldest_at)) else None


async def unrouted_before(
    js: JetStream, names: Names, event: StoredMessage
) -> tuple[UnroutedEvents, int] | None:
    """The events of the tenant of an event that is not routed, and how many of them come before it.

    None if all its copies are stored, or if it is in no partition. Raises like `unrouted_tenants`.
    """
    if (address := names.partition_and_tenant(event.subject)) is None:
        return None
    partition, tenant = address
    routing = (await read_shard_record(js, names, partition)).routing
    if routing is None or routing.covers(tenant, event.position):
        return None
    found = await _count(js, names, partition, tenant, routing)
    if found is None:
        return None
    subject = names.event(partition, tenant, ">")
    later = await js.read(names.events, subject, event.position + 1, batch=1, max_bytes=1)
    return found, max(0, found.count - len(later.messages) - later.pending - 1)


async def _late(js: JetStream, names: Names, partition: int, start: int) -> dict[str, int]:
    """The tenants among the first events that hold back what is recorded as routed, if they are late."""
    found = dict[str, int]()
    page = await js.read(names.events, names.events_of(partition), start, SEARCHED_MAX, SEARCHED_BYTES_MAX)
    for message in page.messages:
        if not _is_late(message.stored_at):
            break
        if (address := names.partition_and_tenant(message.subject)) is not None:
            found.setdefault(address[1], message.position)
    return found


async def _count(
    js: JetStream, names: Names, partition: int, tenant: str, routing: RoutingProgress
) -> UnroutedEvents | None:
    start = routing.parked_tenants.get(tenant, routing.routed + 1)
    page = await js.read(names.events, names.event(partition, tenant, ">"), start, batch=1)
    if not page.messages:
        return None
    [first] = page.messages
    return UnroutedEvents(
        tenant=tenant, partition=partition, count=page.pending + 1, oldest_at=first.stored_at,
        oldest_size=len(first.data), parked=tenant in routing.parked_tenants,
    )  # fmt: skip


def _is_late(stored_at: float) -> bool:
    return time.time() - stored_at >= ROUTED_WITHIN_S
