"""The checkpoint of a shard: where its next owner begins to read the journal, and the state up to there.

It is a key in the bucket of the actors, next to the snapshots that it describes.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from actors.machine.bucket import Unclean
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress, recorded_progress
from streams.lost_tails.marks import UNKNOWN_MARKS, Marks
from streams.nats.answers import StreamInfo
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.versions import read_versioned

VERSION = 4
"""Version 1 listed the parked receivers in the checkpoint itself, so an older node would see none. Version 2
had no `routed`, version 3 no parked tenants."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The starting point of a new owner.

    - `journal_position`: every actor has a snapshot as of this position of the journal, or a later one
      (`sequence` in JSON).
    - `floor`: the deliveries up to here are released.
    - `routed`, `parked_tenants`: `routing`, flat; `routed` is unknown before version 3.
    - `needed`: the lowest position of the deliveries that is still needed.
    - `holder`: the receiver that needs it; empty if messages are just not released yet.
    - `parked`: the parked receivers as version 1 listed them, with their wake-up times, if known.
    - `parked_parts`: the journal position of each part of the list of parked receivers: those whose events
      are only in the stream, or whose dead letters are not stored yet, so that no incoming message brings
      them back (`streams.journal.parked_receivers`).
    - `unclean`: the last claim that did not follow a release.
    - `created`: when each stream and bucket was created, by its name.
    - `marks`: those of the flush at `journal_position`.
    """

    v: int = VERSION
    journal_position: int = field(name="sequence", default=0)
    floor: int = 0
    routed: int | UnsetType = UNSET
    parked_tenants: Mapping[str, int] = field(name="tenants", default_factory=dict)
    needed: int = 0
    holder: str = ""
    parked: dict[str, float | None] = field(default_factory=dict)
    parked_parts: tuple[int, ...] = ()
    unclean: Unclean | None = None
    created: dict[str, str] = field(default_factory=dict)
    marks: Marks | UnsetType = UNSET

    @property
    def routing(self) -> RoutingProgress | None:
        """The progress of routing; None before version 3."""
        return recorded_progress(self.routed, self.parked_tenants)

    @property
    def known(self) -> Marks:
        """The marks; empty ones if an older Angarium wrote the checkpoint."""
        return UNKNOWN_MARKS if self.marks is UNSET else self.marks


_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.json.encode(checkpoint)


def decode_checkpoint(data: bytes, where: str) -> Checkpoint:
    """Decode the checkpoint found at `where`. Raises `NewerVersion` and `NotOurs`."""
    return read_versioned(_decoder, data, VERSION, where)


async def read_checkpoint(js: JetStream, names: Names, shard: int) -> Checkpoint | None:
    """The shard's checkpoint, from the leader; None if none was written yet."""
    subject = names.actor_keys.checkpoint(shard)
    message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
    return decode_checkpoint(message.data, subject) if message is not None and message.data else None


def check_created(checkpoint: Checkpoint, infos: Iterable[StreamInfo]) -> None:
    """Raise `StreamRecreated` if one of the streams was created at another time than the checkpoint says."""
    for info in infos:
        created = checkpoint.created.get(info.name, info.created)
        if created != info.created:
            raise StreamRecreated(
                f"{info.name} was recreated: the shards know the one created {created}, this one was "
                f"created {info.created}; see angarium doctor"
            )
