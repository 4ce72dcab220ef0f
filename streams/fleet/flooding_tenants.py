"""The tenants that flood their partition of the events: those that the journal names as parked."""

import asyncio

from msgspec import Struct

from streams.fleet.installation_status import QUESTIONS_AT_ONCE
from streams.installation.topology import Names
from streams.journal.claim import read_past
from streams.nats.jetstream import JetStream


class FloodingTenant(Struct, frozen=True):
    """A parked tenant, the number of its events that are not routed, and when the first was stored."""

    tenant: str
    partition: int
    waiting: int
    oldest_at: float


async def flooding_tenants(js: JetStream, names: Names, partitions: int) -> list[FloodingTenant]:
    """The tenants whose events wait in the stream, the longest first.

    Raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`.
    """
    turn = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def of(partition: int) -> list[FloodingTenant]:
        async with turn:
            past = await read_past(js, names, partition)
            if past.routing is None:
                return []
            parked = past.routing.parked_tenants.items()
            found = [await _look(js, names, partition, tenant, position) for tenant, position in parked]
        return [each for each in found if each is not None]

    each = await asyncio.gather(*map(of, range(partitions)))
    return sorted((tenant for found in each for tenant in found), key=lambda tenant: tenant.oldest_at)


async def _look(
    js: JetStream, names: Names, partition: int, tenant: str, unrouted_from: int
) -> FloodingTenant | None:
    page = await js.read(names.events, names.event(partition, tenant, ">"), unrouted_from, batch=1)
    if not page.messages:
        return None
    return FloodingTenant(
        tenant=tenant, partition=partition, waiting=page.pending + 1, oldest_at=page.messages[0].stored_at
    )
