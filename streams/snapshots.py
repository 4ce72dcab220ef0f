"""Snapshots of actors and the checkpoint of their shard, in the bucket of the actors.

They only shorten the way back: the journal is the truth. A snapshot says as of which journal sequence it is
true, the checkpoint up to which one all of them are. Both are written in atomic batches that the key `_owner`
fences, and read from the leader, for an old snapshot beside a young checkpoint would lose facts.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from actors.bucket import Unclean
from actors.state import State
from streams.claim import Claim
from streams.jetstream import JetStream
from streams.topology import Names


class Snapshot(Struct, frozen=True, kw_only=True):
    """An actor as of the journal sequence `as_of`, and every later one that does not speak of it."""

    v: int = 1
    as_of: int
    state: State


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a new owner starts from.

    Every actor is snapshotted as of the journal `sequence` or later. `floor`: deliveries up to there are
    released. `needed`: the lowest position of the deliveries that an actor still needs. `parked`: the actors
    whose events lie in the stream alone, with the time at which they wake, if known. `unclean`: the last claim
    that did not follow a release. `created`: the creation times of all streams.
    """

    v: int = 1
    sequence: int = 0
    floor: int = 0
    needed: int = 0
    parked: dict[str, float | None] = field(default_factory=dict)
    unclean: Unclean | None = None
    created: dict[str, str] = field(default_factory=dict)


class Snapshots:
    """The snapshots of one shard, under one claim."""

    def __init__(self, js: JetStream, names: Names, claim: Claim) -> None:
        raise NotImplementedError

    async def load(self, receiver: str) -> State | None:
        """The actor's last snapshot, from the leader. Raises `Unavailable` and `NewerVersion`."""
        raise NotImplementedError

    async def write(
        self, states: Sequence[State], forget: Sequence[str], as_of: int, checkpoint: Checkpoint
    ) -> bool:
        """Write these snapshots and the checkpoint that they make true; False where the shard is not ours."""
        raise NotImplementedError
