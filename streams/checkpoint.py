"""The checkpoint of a shard: from where on its next owner has to read the journal, and what lies before.

It is a key of the bucket of the actors, beside the snapshots whose truth it states.
"""

import msgspec
from msgspec import Struct, field

from actors.bucket import Unclean
from streams.jetstream import JetStream
from streams.repeat import until_answered
from streams.topology import Names
from streams.versions import read_versioned

VERSION = 1


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a new owner starts from.

    Every actor is snapshotted as of the journal `sequence` or later. `floor`: deliveries up to there are
    released. `needed`: the lowest position of the deliveries that an actor still needs, and `holder` whose it
    is, nobody's where messages are only not released yet. `parked`: the actors whose events lie in the stream
    alone, or who owe a burial, so that no message of the inbox brings them back, with the time at which they
    wake, if known. `unclean`: the last claim that did not follow a release. `created`: when each stream and
    bucket was created, by its name.
    """

    v: int = VERSION
    sequence: int = 0
    floor: int = 0
    needed: int = 0
    holder: str = ""
    parked: dict[str, float | None] = field(default_factory=dict)
    unclean: Unclean | None = None
    created: dict[str, str] = field(default_factory=dict)


_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.json.encode(checkpoint)


def decode_checkpoint(data: bytes, where: str) -> Checkpoint:
    """Raises `NewerVersion` and `NotOurs`."""
    return read_versioned(_decoder, data, VERSION, where)


async def read_checkpoint(js: JetStream, names: Names, shard: int) -> Checkpoint | None:
    """The shard's checkpoint, from the leader; None where none was written yet."""
    subject = names.checkpoint(shard)
    message = await until_answered(lambda: js.last_message(names.actors, subject))
    return decode_checkpoint(message.data, subject) if message is not None and message.data else None
