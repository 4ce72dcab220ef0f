"""Quotas of tenants: excess waiting events are evicted, on record; excess dead letters are deleted.

What waits for receivers and what waits to be routed are in two streams, and a quota holds in each: an event
that is being routed is in both, and counted together it would exceed a quota within which its tenant is.

A sample tells cheaply that a tenant is far from its quota, but not how many bytes it has: if one message in a
hundred is large, the estimate may be a tenth of the truth, or, by chance, more than it. So small amounts are
counted message by message; large ones are estimated from more samples, minus a tenth. In both cases the
messages that go are counted one by one, and no more goes than exceeds the quota.
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
"""Samples of a tenant that has too many messages to count them."""
SURE_SHARE = 0.9
"""Share of an estimate from so many samples that counts as certain."""
COUNTED_FROM_SHARE = 0.8
"""Share of its quota above which a tenant's messages are counted."""
COUNTED_MAX = 4096
"""Messages of one tenant that are counted in a round."""
COUNTED_BYTES_MAX = 4 << 20
PAGE_BYTES = 1 << 20
RECEIVERS_LOOKED_UP_MAX = 256
"""Receivers of a tenant whose snapshots are read in a round; events that wait for others do not count."""


class CountedMessage(Struct, frozen=True):
    """A message that counts against a quota, and its bytes in the stream."""

    position: int
    size: int


async def beyond_quota(
    js: JetStream, names: Names, deliveries: StreamInfo, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order to evict a tenant's excess waiting events; None if it is within its quota.

    Waits for NATS; raises `Unavailable` and `ApiError`.
    """
    settled = SettledPositions(js, names, deliveries)
    subject = names.deliveries_to_all_of(tenant)
    below = await _excess_end(js, names, deliveries, subject, quota, settled)
    return EvictionOrder(tenant, below) if below else None


async def unrouted_beyond_quota(
    js: JetStream, names: Names, events: StreamInfo, partition: int, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order that what a tenant has waiting to be routed beyond its quota gives way; None if it has none.

    The record of what is routed lags behind, so the oldest of these may be routed: they do not give way, and
    as many bytes less do. Waits for NATS; raises `NewerVersion`, `NotOurs`, `Unavailable` and `ApiError`.
    """
    start = await RoutedPositions(js, names).up_to(partition, tenant) + 1
    below = await _excess_end(js, names, events, names.event(partition, tenant, ">"), quota, None, start)
    return EvictionOrder(tenant, below) if below else None


async def drop_letters_beyond(
    js: JetStream, names: Names, letters: StreamInfo, tenant: str, quota: int
) -> int:
    """Drop the oldest dead letters of a tenant beyond its quota; returns how many.

    Raises `Unavailable` and `ApiError`.
    """
    changes, subject = js.connection_changes, names.dead_of(tenant)
    below = await _excess_end(js, names, letters, subject, quota, None)
    if not below or js.connection_changes != changes:
        return 0
    return await js.purge_subject(letters.name, subject, below - 1)


async def _excess_end(
    js: JetStream, names: Names, stream: StreamInfo, subject: str, quota: int,
    settled: SettledPositions | None, start: int = 1,
) -> int:  # fmt: skip
    """The end of the excess: messages below this position go; 0 if nothing exceeds the quota.

    With `settled`, only messages count that are not settled, from `start` on.
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
            return _excess_end_rounded_up(counted, sum(each.size for each in counted) - quota)
    parts = await sample_stream(js, stream, SAMPLES_OF_MUCH_MAX, subject, start)
    excess = SURE_SHARE * await _waiting_bytes(names, parts, settled) - quota
    if excess <= 0:
        return 0
    counted, _ = await _oldest(js, stream, subject, settled, excess, start)
    return _excess_end_rounded_down(counted, excess)


async def _waiting_bytes(names: Names, parts: list[StreamPart], settled: SettledPositions | None) -> float:
    """Estimate the bytes of the messages that are not settled."""
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
    """The oldest messages that count, up to about that many bytes, and whether these are all of them."""
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
    """True if the message certainly waits; False also if too many receivers were looked up."""
    if subject not in settled and len(settled) >= RECEIVERS_LOOKED_UP_MAX:
        return False
    return position > await settled.up_to(subject)


def _excess_end_rounded_up(counted: Iterable[CountedMessage], excess: float) -> int:
    """The end of the excess; a message that exceeds the quota only in part goes, too."""
    below = 0
    for each in counted:
        if excess <= 0:
            break
        below, excess = each.position + 1, excess - each.size
    return below


def _excess_end_rounded_down(counted: Iterable[CountedMessage], excess: float) -> int:
    """The end of the excess; a message that exceeds the quota only in part stays."""
    below = 0
    for each in counted:
        excess -= each.size
        if excess < 0:
            break
        below = each.position + 1
    return below
