"""Chooses the events to evict when the deliveries are full: one tenant's backlog costs others no event.

Settled messages go first, at any position: an old waiting event keeps later messages from being purged by
position. Then the tenant with the largest backlog loses its oldest events.

The size of a backlog is estimated from a sample: each message stands for those that follow it
(`streams/reading/sampling.py`). All nodes look at nearly the same messages, so they choose alike without
exchanging anything.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from operator import itemgetter

from msgspec import Struct

from actors.ids import tenant_of
from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.reading.sampling import StreamPart, sample_stream
from streams.storage.purge import surplus
from streams.storage.settled import SettledPositions

SAMPLES_MAX = 64
"""Messages that are checked; each may be as large as an event may be."""
ROUNDS_WITHOUT_EFFECT = 45
"""Rounds, two seconds apart, after which an order counts as one without effect: an attempt under way may take
60 s, and the snapshots that follow it some more."""
ROUNDS_EXCLUDED = 300
"""Rounds after which a tenant whose events could not go is tried again."""


class Sample(Struct, frozen=True):
    """A message that was read; `stands_for` bytes of the stream are taken to be like it.

    `settled_to`: all messages of its receiver up to this position are settled, on confirmed record.
    """

    position: int
    tenant: str
    subject: str
    stands_for: float
    settled_to: int

    @property
    def is_settled(self) -> bool:
        return self.position <= self.settled_to


class EvictionOrder(Struct, frozen=True):
    """An order to evict the waiting events of `tenant` below a position; of all tenants if it is empty."""

    tenant: str
    below: int


class SampledStream(Struct, frozen=True):
    """Samples of a stream, and how to check that it is still the same stream.

    `stray_bytes`: what belongs to no shard or partition, by estimate, of `stray_tenants`. It leaves by
    itself, as dead letters of its tenants.
    """

    stream: str
    samples: list[Sample]
    created: str
    connection_changes: int
    stray_bytes: float = 0.0
    stray_tenants: frozenset[str] = frozenset()


async def samples_of(js: JetStream, names: Names, deliveries: StreamInfo) -> SampledStream:
    """Look at some messages of the deliveries. Waits for NATS; raises `Unavailable` and `ApiError`."""
    changes = js.connection_changes
    settled = SettledPositions(js, names, deliveries)
    parts = await sample_stream(js, deliveries, SAMPLES_MAX)
    strays = sum(each.size for each in parts if names.shard_and_receiver(each.message.subject) is None)
    samples = await samples_of_parts(names, settled, parts)
    return SampledStream(deliveries.name, samples, deliveries.created, changes, strays)


async def samples_of_parts(
    names: Names, settled: SettledPositions, parts: Sequence[StreamPart]
) -> list[Sample]:
    """The first messages of the parts, with the settled positions of their receivers.

    A message that belongs to no shard is left out: no receiver gives it up (`streams.storage.strays`).
    """
    found = [(each.message.position, each.message.subject, each.size) for each in parts]
    return [
        Sample(position, tenant_of(address[1]), subject, size, await settled.up_to(subject))
        for position, subject, size in found
        if (address := names.shard_and_receiver(subject)) is not None
    ]


def settled_surplus(samples: Sequence[Sample], bytes_to_free: float) -> dict[str, int]:
    """The subjects whose settled messages make enough room, with the position up to which they are settled.

    Those with the most settled bytes come first; all of them if they are too few.
    """
    held, settled_up_to = defaultdict[str, float](float), dict[str, int]()
    for each in samples:
        if each.is_settled:
            held[each.subject] += each.stands_for
            settled_up_to[each.subject] = each.settled_to
    chosen = dict[str, int]()
    for subject, size in sorted(held.items(), key=itemgetter(1), reverse=True):
        if bytes_to_free <= 0:
            break
        chosen[subject] = settled_up_to[subject]
        bytes_to_free -= size
    return chosen


def eviction_order(
    samples: Sequence[Sample], bytes_to_free: float, without: Collection[str] = ()
) -> EvictionOrder | None:
    """The order to evict the oldest events of the tenant with the most waiting; None if enough is settled.

    The tenants `without` are not evicted; None also if no other has anything waiting.
    """
    waiting = [each for each in _waiting(samples) if each.tenant not in without]
    bytes_to_free -= _settled_bytes(samples)
    if bytes_to_free <= 0 or not waiting:
        return None
    held = defaultdict[str, float](float)
    for each in waiting:
        held[each.tenant] += each.stands_for
    # By name if they hold the same, so that all nodes choose the same one.
    tenant = max(sorted(held), key=held.__getitem__)
    return EvictionOrder(tenant, _below([each for each in waiting if each.tenant == tenant], bytes_to_free))


def _waiting(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that are not settled, in their order."""
    return sorted((each for each in samples if not each.is_settled), key=lambda each: each.position)


def _settled_bytes(samples: Sequence[Sample]) -> float:
    return sum(each.stands_for for each in samples if each.is_settled)


def _below(waiting: Sequence[Sample], bytes_to_free: float) -> int:
    """The position below which there is as much as that."""
    below = 0
    for each in waiting:
        if bytes_to_free > 0:
            below, bytes_to_free = each.position + 1, bytes_to_free - each.stands_for
    return below


class EvictionOrders:
    """The orders that one node follows, round by round.

    What the chosen tenant has waiting may be of shards that no node runs. So if nothing is removed for long,
    it is excluded, and the next one is chosen; if no other is left, all of them are, and then it begins again
    with twice as many bytes: some of the oldest events may stay, however often they are to go.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._removed = -1
        self._without_effect = 0
        self._excluded_at: dict[str, int] = {}
        self._factor = 1

    def next_order(
        self, samples: Sequence[Sample], deliveries: StreamInfo, leaving: float = 0.0
    ) -> EvictionOrder | None:
        """The order for the stream as it is now; None if no event has to be evicted.

        `leaving`: bytes that leave without an order.
        """
        self._rounds += 1
        removed = deliveries.last - deliveries.messages
        stands_still, self._removed = removed == self._removed, removed
        bytes_to_free = surplus(deliveries) - leaving
        if eviction_order(samples, bytes_to_free) is None:
            self._without_effect, self._factor = 0, 1
            return None
        self._without_effect = self._without_effect + 1 if stands_still else 0
        order = self._order(samples, bytes_to_free)
        if self._without_effect >= ROUNDS_WITHOUT_EFFECT:
            self._without_effect = 0
            if order.tenant:
                self._excluded_at[order.tenant] = self._rounds
            else:
                self._excluded_at.clear()
                self._factor *= 2
            order = self._order(samples, bytes_to_free)
        return order

    def _order(self, samples: Sequence[Sample], bytes_to_free: float) -> EvictionOrder:
        """The order for those that are not excluded; for all if none is left."""
        tried_before = self._rounds - ROUNDS_EXCLUDED
        self._excluded_at = {who: at for who, at in self._excluded_at.items() if at > tried_before}
        settled = _settled_bytes(samples)
        bytes_to_free = self._factor * (bytes_to_free - settled) + settled
        order = eviction_order(samples, bytes_to_free, self._excluded_at)
        return order or EvictionOrder("", _below(_waiting(samples), bytes_to_free - settled))
