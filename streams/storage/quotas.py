"""Quotas of tenants: what one has beyond it gives way, waiting events on record, dead letters for good.

What waits for receivers and what waits to be routed are in two streams, and a quota holds in each: an event
that is being routed is in both, and counted together it would exceed a quota within which its tenant is.

A sample tells cheaply that a tenant is far from its quota, but not how many bytes it has: if one message in a
hundred is large, the estimate may be a tenth of the truth, or, by chance, more than it. So what is little is
counted message by message. What is much is estimated from more samples, and a tenth less counts as certain.
In both cases the messages that go are counted one by one, and only what exceeds the quota goes.
"""

from collections.abc import Iterable

from msgspec import Struct

from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.storage.eviction import SAMPLES_MAX, EvictionOrder, judged
from streams.storage.sampling import StreamPart, sample_stream, stored_size
from streams.storage.settled import SettledPositions
from streams.storage.unrouted import RoutedPositions

SAMPLES_OF_MUCH_MAX = 256
"""Messages that are looked at if a tenant has too many to count them."""
SURE_SHARE = 0.9
"""Part of an estimate from so many samples that is taken to be there."""
COUNTED_FROM_SHARE = 0.8
"""Part of its quota from which on what a tenant has is counted."""
COUNTED_MAX = 4096
"""Messages of one tenant that are counted in one look."""
COUNTED_BYTES_MAX = 4 << 20
PAGE_BYTES = 1 << 20
RECEIVERS_LOOKED_UP_MAX = 256
"""Receivers of a tenant whose snapshots are read in one look; nothing counts that others have waiting."""


class CountedMessage(Struct, frozen=True):
    """A message that counts against a quota, and its bytes in the stream."""

    position: int
    size: int


async def beyond_quota(
    js: JetStream, names: Names, deliveries: StreamInfo, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order that what a tenant has waiting beyond its quota gives way; None if it is within it.

    Waits for NATS; raises `Unavailable` and `ApiError`.
    """
    settled = SettledPositions(js, names, deliveries)
    subject = names.deliveries_to_all_of(tenant)
    below = await _surplus_end(js, names, deliveries, subject, quota, settled)
    return EvictionOrder(tenant, below) if below else None


async def unrouted_beyond_quota(
    js: JetStream, names: Names, events: StreamInfo, partition: int, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order that what a tenant has waiting to be routed beyond its quota gives way; None if it has none.

    The record of what is routed lags behind, so the oldest of these may be routed: they do not give way, and
    as many bytes less do. Waits for NATS; raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`.
    """
    start = await RoutedPositions(js, names).up_to(partition, tenant) + 1
    below = await _surplus_end(js, names, events, names.event(partition, tenant, ">"), quota, None, start)
    return EvictionOrder(tenant, below) if below else None


async def drop_letters_beyond(
    js: JetStream, names: Names, letters: StreamInfo, tenant: str, quota: int
) -> int:
    """Drop the oldest dead letters of a tenant beyond its quota; returns how many.

    Raises `Unavailable` and `ApiError`.
    """
    changes, subject = js.connection_changes, names.dead_of(tenant)
    below = await _surplus_end(js, names, letters, subject, quota, None)
    if not below or js.connection_changes != changes:
        return 0
    return await js.purge_subject(letters.name, subject, below - 1)


async def _surplus_end(
    js: JetStream, names: Names, stream: StreamInfo, subject: str, quota: int,
    settled: SettledPositions | None, start: int = 1,
) -> int:  # fmt: skip
    """The position below which there is what exceeds the quota; 0 if nothing does.

    With `settled`, only what waits counts, and nothing below `start` does.
    """
    if stream.bytes <= quota:
        return 0
    parts = await sample_stream(js, stream, SAMPLES_MAX, subject, start)
    size, count = sum(each.size for each in parts), sum(each.count for each in parts)
    if size <= COUNTED_FROM_SHARE * quota:
        return 0
    if count <= COUNTED_MAX and size <= COUNTED_BYTES_MAX:
        counted, complete = await _oldest(js, stream, subject, settled, COUNTED_BYTES_MAX, start)
        if complete:
            return _below(counted, sum(each.size for each in counted) - quota)
    parts = await sample_stream(js, stream, SAMPLES_OF_MUCH_MAX, subject, start)
    excess = SURE_SHARE * await _waiting_bytes(names, parts, settled) - quota
    if excess <= 0:
        return 0
    counted, _ = await _oldest(js, stream, subject, settled, excess, start)
    return _below_at_most(counted, excess)


async def _waiting_bytes(names: Names, parts: list[StreamPart], settled: SettledPositions | None) -> float:
    """The bytes that are not settled, by estimate."""
    if settled is None:
        return sum(each.size for each in parts)
    samples = await judged(names, settled, parts)
    return sum(each.stands_for for each in samples if not each.settled)


async def _oldest(
    js: JetStream,
    stream: StreamInfo,
    subject: str,
    settled: SettledPositions | None,
    bytes_max: float,
    start: int,
) -> tuple[list[CountedMessage], bool]:
    """The oldest messages that count, up to about so many bytes, and whether these are all of them."""
    counted, position, seen = list[CountedMessage](), start, 0
    while seen < COUNTED_MAX and bytes_max > 0:
        page = await js.read(stream.name, subject, position, max_bytes=PAGE_BYTES)
        for each in page.messages:
            if settled is None or await _waits(each.subject, each.sequence, settled):
                counted.append(CountedMessage(each.sequence, stored_size(each)))
            bytes_max -= stored_size(each)
        if not page.messages or not page.pending:
            return counted, True
        position, seen = page.messages[-1].sequence + 1, seen + len(page.messages)
    return counted, False


async def _waits(subject: str, position: int, settled: SettledPositions) -> bool:
    """True if the message is certainly one that waits; false also if its receiver is one too many."""
    if subject not in settled and len(settled) >= RECEIVERS_LOOKED_UP_MAX:
        return False
    return position > await settled.up_to(subject)


def _below(counted: Iterable[CountedMessage], excess: float) -> int:
    """The position below which the excess is; the message at its end goes, since a part of it exceeds."""
    below = 0
    for each in counted:
        if excess <= 0:
            break
        below, excess = each.position + 1, excess - each.size
    return below


def _below_at_most(counted: Iterable[CountedMessage], excess: float) -> int:
    """The position below which there is no more than the excess."""
    below = 0
    for each in counted:
        excess -= each.size
        if excess < 0:
            break
        below = each.position + 1
    return below
