"""Claiming a shard: four steps after which exactly one owner can append to the shard's journal.

    1. put `_owner`, expecting what was read there; its revision is the epoch
    2. read the journal's last message from the leader; give up if it bears a higher epoch
    3. read `_owner` again; give up if it is not mine any more
    4. append `Claimed`, expecting the message of step 2; where that is not the last any more, back to 2

`_owner` alone decides nothing: between two of these steps a whole other ownership may pass. The append does,
since it makes every append of an earlier owner fail; and 2 and 3 see to it that the epochs in a journal only
rise. Who may try at all is a question of heartbeats (`streams.members`), and not asked here.
"""

from collections.abc import Callable

from msgspec import Struct

from actors.bucket import Unclean
from streams.clock import Timekeeper
from streams.jetstream import JetStream
from streams.topology import Names


class Owner(Struct, frozen=True, kw_only=True):
    """The value of `_owner`. `released` is the epoch that the holder gave up in order; None: it still holds."""

    v: int = 1
    node: str
    at: float
    released: int | None = None


class Lost(Struct, frozen=True):
    """Somebody else owns the shard, or may: no ownership came of it. `why` is for the log."""

    why: str


class Predecessor(Struct, frozen=True):
    """Whose message the journal's last one was before the claim, and where it lies."""

    node: str
    epoch: int
    flush: int
    sequence: int


class Claim(Struct, frozen=True, kw_only=True):
    """The ownership of a shard, as recorded.

    `at` and `boottime` are the same moment by both clocks. `clean`: the owner before released it in order, so
    it posted nothing unrecorded. `position`: the last of the deliveries after `_owner` was put. `unclean`: the
    last claim that was not clean, this one included. `sequence`: where `Claimed` lies in the journal. `floor`:
    the deliveries up to there are released. `predecessor`: None where the journal was empty.
    """

    shard: int
    epoch: int
    at: float
    boottime: float
    clean: bool
    position: int
    unclean: Unclean | None
    sequence: int
    floor: int
    predecessor: Predecessor | None


async def claim(
    js: JetStream,
    names: Names,
    shard: int,
    node: str,
    time: Timekeeper,
    *,
    may_claim: Callable[[Owner | None], bool],
    resumes: int = 0,
) -> Claim | Lost:
    """Claim the shard. Goes on until it is decided, however long NATS is away; may be cancelled at any time.

    `resumes` is the epoch of a claim of this very process whose memory is whole (`Journal.reclaim`): where the
    journal ends with it, nobody posted anything unrecorded, and the new claim is clean.
    """
    raise NotImplementedError


async def release(js: JetStream, names: Names, claim: Claim, node: str) -> bool:
    """Give the shard up, on record, once nothing is left to record. False where it is somebody else's."""
    raise NotImplementedError
