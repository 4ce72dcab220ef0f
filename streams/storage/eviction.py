"""Chooses the events to evict when the deliveries are full: one tenant's backlog costs others no event.

Settled messages go first, at any position: an old waiting event keeps later messages from being purged by
sequence. Then the tenant with the largest backlog loses its oldest events.

The size of a backlog is estimated from a sample: each message stands for those that follow it
(`streams/storage/sampling.py`). All nodes look at nearly the same messages, so they choose alike without
exchanging anything.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

import msgspec
from msgspec import Struct

from actors.errors import Unusable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal import snapshots
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.leadership import subjects_since
from streams.journal.snapshots import Snapshot
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import until_answered
from streams.storage.purge import surplus, trusted_end_of
from streams.storage.sampling import StreamPart, sample_stream
from streams.versions import read_versioned

SAMPLES_MAX = 64
"""Messages that are looked at; each may be as large as an event may be."""
LOOKS_WITHOUT_EFFECT = 15
"""Looks, two seconds apart, after which an order counts as one without effect."""

_snapshot = msgspec.json.Decoder(Snapshot)


class Sample(Struct, frozen=True):
    """A message that was looked at; `stands_for` bytes of the stream are taken to be like it.

    `settled_to`: all messages of its receiver up to this position are settled, on confirmed record.
    """

    position: int
    subject: str
    stands_for: float
    settled_to: int

    @property
    def tenant(self) -> str:
        return self.subject.split(".")[3]

    @property
    def settled(self) -> bool:
        return self.position <= self.settled_to


class EvictionOrder(Struct, frozen=True):
    """An order to evict the waiting events of `tenant` below a position; of all tenants if it is empty."""

    tenant: str
    below: int


async def samples_of(js: JetStream, names: Names, deliveries: StreamInfo) -> list[Sample]:
    """Look at some messages of the deliveries. Waits for NATS; raises `ApiError` and NotOurs."""
    parts = await sample_stream(js, deliveries, SAMPLES_MAX)
    return await _judged(js, names, deliveries, parts)


async def _judged(
    js: JetStream, names: Names, deliveries: StreamInfo, parts: Sequence[StreamPart]
) -> list[Sample]:
    """The first messages of the parts, with the settled positions of their receivers."""
    settled = _Settled(js, names, deliveries)
    messages = [(each.message.sequence, each.message.subject, each.size) for each in parts]
    return [
        Sample(position, subject, size, await settled.up_to(subject)) for position, subject, size in messages
    ]


async def beyond_quota(
    js: JetStream, names: Names, deliveries: StreamInfo, tenant: str, quota: int
) -> EvictionOrder | None:
    """The order to evict a tenant's waiting events beyond its quota; None if it is within the quota.

    Waits for NATS; raises like `samples_of`.
    """
    if deliveries.bytes <= quota:
        return None
    parts = await sample_stream(js, deliveries, SAMPLES_MAX, names.deliveries_to_all_of(tenant))
    if sum(each.size for each in parts) <= quota:
        return None
    waiting = _waiting(await _judged(js, names, deliveries, parts))
    bytes_to_free = sum(each.stands_for for each in waiting) - quota
    return EvictionOrder(tenant, _below(waiting, bytes_to_free)) if bytes_to_free > 0 else None


async def drop_letters_beyond(
    js: JetStream, names: Names, letters: StreamInfo, tenant: str, quota: int
) -> int:
    """Drop the oldest dead letters of a tenant beyond its quota; returns how many.

    Raises like `samples_of`.
    """
    if letters.bytes <= quota:
        return 0
    subject = names.dead_of(tenant)
    parts = await sample_stream(js, letters, SAMPLES_MAX, subject)
    bytes_to_free = float(sum(each.size for each in parts) - quota)
    below = 0
    for part in parts:
        if bytes_to_free > 0:
            below, bytes_to_free = part.message.sequence + 1, bytes_to_free - part.size
    return await js.purge_subject(letters.name, subject, below - 1) if below else 0


class _Settled:
    """The positions up to which receivers have settled everything, as their last snapshots say."""

    def __init__(self, js: JetStream, names: Names, deliveries: StreamInfo) -> None:
        self._js = js
        self._names = names
        self._deliveries = deliveries
        self._settled_to_by_subject: dict[str, int] = {}
        self._floors: dict[int, int] = {}

    async def up_to(self, subject: str) -> int:
        """The position for the receiver of the subject; 0 if it is not known."""
        if subject not in self._settled_to_by_subject:
            _, _, shard, receiver = subject.split(".", 3)
            self._settled_to_by_subject[subject] = await self._settled_to(int(shard), receiver)
        return self._settled_to_by_subject[subject]

    async def _settled_to(self, shard: int, receiver: str) -> int:
        # This is read first: the snapshots are at least as new as the checkpoint.
        if shard not in self._floors:
            self._floors[shard] = await self._floor(shard)
        floor = self._floors[shard]
        if not floor:
            return 0
        try:
            # Events from before the receiver existed may wait in the record of unknown receivers.
            record = await self._state(shard, UNKNOWN_RECEIVERS) or State(receiver=UNKNOWN_RECEIVERS)
            state = await self._state(shard, receiver)
        except Unusable:
            return 0
        if (needed := needed_by_record(record, receiver)) is not None:
            floor = min(floor, needed - 1)
        return floor if state is None else min(floor, settled_to(state))

    async def _floor(self, shard: int) -> int:
        """The floor of the shard; 0 if its records are not about this stream."""
        js, names, stream = self._js, self._names, self._deliveries
        trusted_end = await trusted_end_of(js, names, shard, stream.name)
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        known = checkpoint.created.get(stream.name) == stream.created
        # The last message that was received stays: by its time, a lost tail is noticed.
        return min(checkpoint.floor, trusted_end - 2) if known and trusted_end else 0

    async def _state(self, shard: int, receiver: str) -> State | None:
        """The state in the last snapshot; None if there certainly is none. Raises Unusable."""
        since, stream = asyncio.get_running_loop().time(), self._names.actors
        subject = self._names.actor_keys.actor(shard, receiver)
        while True:
            message = await until_answered(lambda: self._js.last_message(stream, subject))
            if message is not None:
                break
            if not await subjects_since(self._js, stream, subject, since):
                return None
        if not message.data:
            return None
        return read_versioned(_snapshot, message.data, snapshots.VERSION, subject).state


def settled_to(state: State) -> int:
    """The position up to which a receiver in this state needs no message any more."""
    needed = state.needed_position
    return state.frontier.position if needed is None else min(state.frontier.position, needed - 1)


def needed_by_record(record: State, receiver: str) -> int | None:
    """The lowest position of the receiver's messages that the record of unknown receivers may still need."""
    needed = [each.position for each in record.burials if each.receiver == receiver]
    if record.parked:  # Whose events are undecided is not in the state.
        needed.append(record.frontier.position + 1)
    return min(needed, default=None)


def settled_surplus(samples: Sequence[Sample], bytes_to_free: float) -> dict[str, int]:
    """The subjects whose settled messages make enough room, with the position up to which they are settled.

    Those with most settled bytes come first; all of them if they are too few.
    """
    held, settled_up_to = defaultdict[str, float](float), dict[str, int]()
    for each in samples:
        if each.settled:
            held[each.subject] += each.stands_for
            settled_up_to[each.subject] = each.settled_to
    chosen = dict[str, int]()
    for subject, size in sorted(held.items(), key=itemgetter(1), reverse=True):
        if bytes_to_free <= 0:
            break
        chosen[subject] = settled_up_to[subject]
        bytes_to_free -= size
    return chosen


def eviction_order(samples: Sequence[Sample], bytes_to_free: float) -> EvictionOrder | None:
    """The order to evict the oldest events of the tenant with most waiting; None if enough is settled."""
    waiting, bytes_to_free = _waiting(samples), bytes_to_free - _settled_bytes(samples)
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
    return sorted((each for each in samples if not each.settled), key=lambda each: each.position)


def _settled_bytes(samples: Sequence[Sample]) -> float:
    return sum(each.stands_for for each in samples if each.settled)


def _below(waiting: Sequence[Sample], bytes_to_free: float) -> int:
    """The position below which there is as much as that."""
    below = 0
    for each in waiting:
        if bytes_to_free > 0:
            below, bytes_to_free = each.position + 1, bytes_to_free - each.stands_for
    return below


class EvictionOrders:
    """The orders that one node follows, look by look.

    If nothing is removed for long, events of all tenants are evicted. Those of the chosen one may belong to
    shards that no node runs, or there may be no room for its dead letters.
    """

    def __init__(self) -> None:
        self._removed = -1
        self._without_effect = 0

    def next_order(self, samples: Sequence[Sample], deliveries: StreamInfo) -> EvictionOrder | None:
        """The order for the stream as it is now; None if no event has to be evicted."""
        order = eviction_order(samples, surplus(deliveries))
        removed = deliveries.last - deliveries.messages
        stands_still = order is not None and removed == self._removed
        self._without_effect = self._without_effect + 1 if stands_still else 0
        self._removed = removed
        if order is None or self._without_effect < LOOKS_WITHOUT_EFFECT:
            return order
        return EvictionOrder("", _below(_waiting(samples), surplus(deliveries) - _settled_bytes(samples)))


async def purge_settled(js: JetStream, names: Names, samples: Sequence[Sample], bytes_to_free: float) -> None:
    """Purge settled messages by subject, as many as make enough room. Raises `Unavailable` and `ApiError`.

    That holds up the stream for 4 µs a message, so it is done only if nothing can be purged by sequence.
    """
    for subject, last in settled_surplus(samples, bytes_to_free).items():
        await js.purge_subject(names.deliveries, subject, last)
