"""Chooses the events to evict before they are routed, in the same way as deliveries.

What is recorded as routed is settled. A router reads only what is not, also after a takeover, so everything
of a tenant up to the position before its first unrouted event can be purged by the tenant's subject. A parked
tenant keeps later events of others from being purged by position.
"""

from actors.ids import tenant_of
from streams.installation.topology import Names
from streams.journal.claim import read_shard_record
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.reading.sampling import sample_stream
from streams.storage.eviction import SAMPLES_MAX, Sample, SampledStream
from streams.storage.purge import trusted_end_of


class RoutedPositions:
    """The positions up to which tenants' events are recorded as routed. Each partition is looked up once."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._progress: dict[int, RoutingProgress] = {}

    async def up_to(self, partition: int, tenant: str) -> int:
        """The position for a tenant; 0 if nothing is known.

        Raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`.
        """
        if partition not in self._progress:
            self._progress[partition] = await self._read(partition)
        return self._progress[partition].routed_of(tenant)

    async def _read(self, partition: int) -> RoutingProgress:
        js, names = self._js, self._names
        # The mark is compared before the record is read: after a repair, a newer mark would confirm an older
        # record. The message of the mark stays: by its time, a lost tail is noticed.
        trusted_end = await trusted_end_of(js, names, partition, names.events)
        routing = (await read_shard_record(js, names, partition)).routing or NOTHING_ROUTED
        return routing.limited_to(max(trusted_end - 2, 0))


async def samples_of_events(js: JetStream, names: Names, events: StreamInfo) -> SampledStream:
    """Look at some events. One in no partition counts for no tenant: no router gives it up.

    Waits for NATS; raises like `RoutedPositions`.
    """
    changes, routed, samples = js.connection_changes, RoutedPositions(js, names), list[Sample]()
    strays, stray_tenants = 0, set[str]()
    for part in await sample_stream(js, events, SAMPLES_MAX):
        address = names.partition_and_tenant(part.message.subject)
        if address is None:
            strays += part.size
            stray_tenants.add(tenant_of(names.published_to(part.message.subject)))
        else:
            subject, up_to = names.event(*address, ">"), await routed.up_to(*address)
            samples.append(Sample(part.message.position, address[1], subject, part.size, up_to))
    return SampledStream(events.name, samples, events.created, changes, strays, frozenset(stray_tenants))
