"""Purges settled messages by subject, where an old one that waits keeps others from being purged by position.

That holds up the stream for 4 µs a message, so it is done only if nothing can be purged by position.

A server that lost power may have lost the end of the stream, and given its positions to new messages. So
right before each purge the shard's records are compared with the stream, over the same connection.
"""

from collections import defaultdict
from operator import itemgetter

from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.storage.eviction import SampledStream, settled_surplus
from streams.storage.purge import trusted_end_of
from streams.storage.settled import SettledPositions


async def purge_settled_of_tenants(
    js: JetStream, names: Names, deliveries: StreamInfo, sampled: SampledStream, bytes_to_free: float
) -> None:
    """Purge what a tenant has settled in a shard under any name, until there is enough room.

    Purged name by name, as many messages would go at a time as were sampled, if each has a name of its own.
    Raises `Unavailable` and `ApiError`.
    """
    if deliveries.created != sampled.created:
        return
    settled, held = SettledPositions(js, names, deliveries), defaultdict[tuple[int, str], float](float)
    for each in sampled.samples:
        if each.is_settled:
            held[names.shard_or_partition(each.subject), each.tenant] += each.stands_for
    for (shard, tenant), size in sorted(held.items(), key=itemgetter(1), reverse=True):
        if bytes_to_free <= 0:
            return
        last = await settled.up_to_for_all_of(shard, tenant)
        await _purge(js, names, sampled, names.delivery(shard, f"{tenant}.*"), last)
        bytes_to_free -= size


async def purge_settled(js: JetStream, names: Names, sampled: SampledStream, bytes_to_free: float) -> None:
    """Purge settled messages subject by subject, as many as make enough room.

    Raises `Unavailable` and `ApiError`.
    """
    for subject, last in settled_surplus(sampled.samples, bytes_to_free).items():
        await _purge(js, names, sampled, subject, last)


async def _purge(js: JetStream, names: Names, sampled: SampledStream, subject: str, last: int) -> None:
    """Purge the subject up to a position, if the stream is still the one that was sampled."""
    stream = await js.existing_stream(sampled.stream)
    if stream.created != sampled.created:
        return
    # The last message that was received stays, as in `settled`.
    last = min(last, await trusted_end_of(js, names, names.shard_or_partition(subject), sampled.stream) - 2)
    if last > 0 and js.connection_changes == sampled.connection_changes:
        await js.purge_subject(sampled.stream, subject, last)
