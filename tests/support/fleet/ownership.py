"""Owners of shards over time, by the journal, and nodes that acted without owning: pure checks.

No time is allowed for but what the receivers' own process was late by when it noted them. An owner that was
followed by force stopped a second before its follower claimed (the lease ends half a second before the TTL,
the claim waits half a second longer), and one that handed over had no attempt in flight any more.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from tests.support.fleet.records import Arrival


class Flush(Struct, frozen=True, kw_only=True):
    """The writer of a message in the journal; flush 0 of an epoch is the claim.

    `at` is in seconds by the clock of the arrivals.
    """

    shard: int
    node: str
    epoch: int
    flush: int
    at: float


def zombies_wrote(flushes: Iterable[Flush]) -> Iterator[str]:
    """Epochs in a shard only rise, each begins with its claim, and no flush is missing or there twice."""
    last: dict[int, Flush] = {}
    for each in flushes:
        before = last.get(each.shard)
        who = f"shard {each.shard}: flush {each.flush} of {each.node} under epoch {each.epoch}"
        if before is not None and each.epoch < before.epoch:
            yield f"{who} was appended after a flush of {before.node} under epoch {before.epoch}"
            continue
        expected = before.flush + 1 if before is not None and each.epoch == before.epoch else 0
        if each.flush != expected:
            yield f"{who} was appended where {expected} belongs"
        last[each.shard] = each


def zombies_posted(
    arrivals: Mapping[int, Iterable[Arrival]], flushes: Iterable[Flush], late_s: float = 0.0
) -> Iterator[str]:
    """Attempts that did not come from the owner of their shard at that moment; `arrivals` are by shard.

    They were noted up to `late_s` after they had come.
    """
    claims: defaultdict[int, list[Flush]] = defaultdict(list)
    for flush in flushes:
        if flush.flush == 0:
            claims[flush.shard].append(flush)
    for shard, seen in arrivals.items():
        for each in seen:
            owners = _owners(claims[shard], each.at - late_s, each.at)
            if each.by not in owners:
                who = " or ".join(owners)
                yield f"shard {shard}: {each.event_id} came from {each.by}, when it was owned by {who}"


def _owners(claims: Sequence[Flush], since: float, until: float) -> list[str]:
    """Lists the owners of the shard between the two instants."""
    claimed_at = [claim.at for claim in claims]
    first, end = bisect_right(claimed_at, since), bisect_right(claimed_at, until)
    return [claim.node for claim in claims[max(0, first - 1) : end]] or ["nobody"]
