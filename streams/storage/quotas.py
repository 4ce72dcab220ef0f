"""Quotas of tenants: excess waiting events are evicted and recorded; excess dead letters are deleted.

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
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.reading.sampling import StreamPart, sample_stream, stored_size
from streams.storage.eviction import SAMPLES_MAX, EvictionOrder, samples_of_parts
from streams.storage.settled import SettledPositions
from streams.storage.unrouted import RoutedPositions

SAMPLES_OF_MUCH_MAX = 256
"""Samples of a tenant that has too many messages to count them."""
SURE_SHARE = 0.9
"""Share of an estimate from so many samples that counts as certain."""
COUNTED_FROM_SHARE = 0.8
"""Share of its quota above which a tenant's messages are counted."""
COUNTED_MAX = 4096
"""Messages of one tenant that are counted at a time."""
COUNTED_BYTES_MAX = 4 << 20
READ_BYTES_MAX = 64 << 20
"""Bytes that are read at a time to find what counts; the next count begins behind what is settled."""
PAGE_BYTES = 1 << 20
PAGE_MESSAGES = 4096
RECEIVERS_LOOKED_UP_MAX = 256
"""Receivers whose snapshots are read for one count, besides those of the samples: what others have waiting
does not count."""


class CountedMessage(Struct, frozen=True):
    """A message that counts against a quota, and its bytes in the stream."""

    position: int
    size: int


class SettledPrefixes:
    """The positions below which all deliveries of a tenant are settled, as far as earlier counts went.

    Settled deliveries stay for a day, also those that the quota itself evicted. A count that began with the
    first of them might never come to one that waits. After a new connection all of it is forgotten: the
    server may have lost the end of the stream, and given its positions to new messages.
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._valid_for = ("", 0)
        self._ends: dict[str, int] = {}

    def end(self, deliveries: StreamInfo, tenant: str) -> int:
        """The position below which all deliveries of the tenant are settled."""
        valid_for = (deliveries.created, self._js.connection_changes)
        if valid_for != self._valid_for:
            self._valid_for, self._ends = valid_for, {}
        return self._ends.get(tenant, 1)

    def note(self, deliveries: StreamInfo, tenant: str, end: int) -> None:
        """Note the end of the prefix; one that began with another stream or connection is forgotten."""
        if end > self.end(deliveries, tenant):
            self._ends[tenant] = end


class CountedSubject(Struct, frozen=True):
    """The messages of a subject (a wildcard) from `start` on; with `settled`, only those that wait count."""

    stream: StreamInfo
    subject: str
    start: int = 1
    settled: SettledPositions | None = None


class QuotaCount(Struct, frozen=True):
    """The oldest messages that count; `complete` if these are all. None that counts is below `start`."""

    messages: list[CountedMessage]
    complete: bool
    start: int


async def beyond_quota(
    js: JetStream, names: Names, deliveries: StreamInfo, tenant: str, quota: int, prefixes: SettledPrefixes
) -> EvictionOrder | None:
    """The order to evict a tenant's excess waiting events; None if it is within its quota.

    Waits for NATS; raises `Unavailable` and `ApiError`.
    """
    changes, start = js.connection_changes, prefixes.end(deliveries, tenant)
    settled = SettledPositions(js, names, deliveries)
    counting = CountedSubject(deliveries, names.deliveries_to_all_of(tenant), start, settled)
    below, start = await _excess_end(js, names, counting, quota)
    if js.connection_changes == changes:
        prefixes.note(deliveries, tenant, start)
    return EvictionOrder(tenant, below) if below else None


async def unrouted_beyond_quota(
    js: JetStream, names: Names, events: StreamInfo, partition: int, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order to evict what a tenant has waiting to be routed beyond its quota; None if there is no excess.

    The record of what is routed lags behind, so the oldest of these may be routed already: they are not
    evicted, and as many bytes less are. Waits for NATS; raises `NewerVersion`, `NotOurs`, `Unavailable` and
    `ApiError`.
    """
    start = await RoutedPositions(js, names).up_to(partition, tenant) + 1
    counting = CountedSubject(events, names.event(partition, tenant, ">"), start)
    below, _ = await _excess_end(js, names, counting, quota)
    return EvictionOrder(tenant, below) if below else None


async def drop_letters_beyond(
    js: JetStream, names: Names, letters: StreamInfo, tenant: str, quota: int
) -> int:
    """Drop the oldest dead letters of a tenant beyond its quota; returns how many.

    Raises `Unavailable` and `ApiError`.
    """
    changes, subject = js.connection_changes, names.dead_of(tenant)
    below, _ = await _excess_end(js, names, CountedSubject(letters, subject), quota)
    if not below or js.connection_changes != changes:
        return 0
    return await js.purge_subject(letters.name, subject, below - 1)


async def _excess_end(js: JetStream, names: Names, counting: CountedSubject, quota: int) -> tuple[int, int]:
    """The position below which the excess is, 0 if there is none; and where the next count begins."""
    stream, subject, start = counting.stream, counting.subject, counting.start
    if stream.bytes <= quota:
        return 0, start
    parts = await sample_stream(js, stream, SAMPLES_MAX, subject, start)
    size, count = sum(each.size for each in parts), sum(each.count for each in parts)
    if size <= COUNTED_FROM_SHARE * quota:
        return 0, start
    if count <= COUNTED_MAX and size <= COUNTED_BYTES_MAX:
        counted = await _oldest(js, counting, COUNTED_BYTES_MAX)
        if counted.complete:
            held = sum(each.size for each in counted.messages)
            return _excess_end_rounded_up(counted.messages, held - quota), counted.start
    parts = await sample_stream(js, stream, SAMPLES_OF_MUCH_MAX, subject, start)
    excess = SURE_SHARE * await _waiting_bytes(names, parts, counting.settled) - quota
    if excess <= 0:
        return 0, start
    counted = await _oldest(js, counting, excess)
    return _excess_end_rounded_down(counted.messages, excess), counted.start


async def _waiting_bytes(names: Names, parts: list[StreamPart], settled: SettledPositions | None) -> float:
    """Estimate the bytes of the messages that are not settled."""
    if settled is None:
        return sum(each.size for each in parts)
    samples = await samples_of_parts(names, settled, parts)
    return sum(each.stands_for for each in samples if not each.is_settled)


async def _oldest(js: JetStream, counting: CountedSubject, bytes_max: float) -> QuotaCount:
    """The oldest messages that count, up to about so many bytes.

    Only these use up the bytes and `COUNTED_MAX`: what is settled must not keep a count from what waits.
    """
    counted, position, start, read = list[CountedMessage](), counting.start, counting.start, 0
    settled = counting.settled
    lookups_max = RECEIVERS_LOOKED_UP_MAX + (len(settled) if settled else 0)
    is_prefix = settled is not None
    while len(counted) < COUNTED_MAX and bytes_max > 0 and read < READ_BYTES_MAX:
        page = await js.read(
            counting.stream.name, counting.subject, position, batch=PAGE_MESSAGES, max_bytes=PAGE_BYTES
        )
        for each in page.messages:
            size = stored_size(each)
            read += size
            if settled is None or await _waits(each, settled, lookups_max):
                counted.append(CountedMessage(each.position, size))
                bytes_max -= size
                is_prefix = False
            elif each.subject not in settled:
                is_prefix = False
            if is_prefix:
                start = each.position + 1
        if not page.messages or not page.pending:
            return QuotaCount(counted, True, start)
        position = page.messages[-1].position + 1
    return QuotaCount(counted, False, start)


async def _waits(message: StoredMessage, settled: SettledPositions, lookups_max: int) -> bool:
    """True if the message is certainly one that waits; false also if its receiver is one too many."""
    if message.subject not in settled and len(settled) >= lookups_max:
        return False
    return message.position > await settled.up_to(message.subject)


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
