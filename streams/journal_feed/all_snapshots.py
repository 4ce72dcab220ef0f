"""Reads the snapshots of all actors, for a reader that has not read the facts before them."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal import snapshots
from streams.journal.leadership import info_since, subjects_since
from streams.journal.snapshots import Snapshot
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.versions import read_versioned

READS_AT_ONCE = 32

_snapshot = msgspec.json.Decoder(Snapshot)


class KnownState(Struct, frozen=True):
    """The state of a receiver at the position `as_of` of the journal, written at `stored_at`."""

    shard: int
    as_of: int
    stored_at: float
    state: State


async def all_snapshots(js: JetStream, names: Names) -> AsyncIterator[KnownState]:
    """All snapshots, each from the leader. Waits while NATS is away; raises NewerVersion and NotOurs.

    A snapshot covers every fact of its actor that the journal does not hold any more. A deposed leader may
    have an older one, so the leader proves that it knows all that was stored before this call; over another
    connection another one may answer, and proves it again.
    """
    keys = names.actor_keys
    since, changes = asyncio.get_running_loop().time(), js.connection_changes
    found = await subjects_since(js, names.actors, keys.snapshots, since)
    subjects = sorted(each for each in found if keys.shard_and_actor(each) is not None)
    for start in range(0, len(subjects), READS_AT_ONCE):
        some = subjects[start : start + READS_AT_ONCE]
        messages = await asyncio.gather(*(_last(js, names, each) for each in some))
        while js.connection_changes != changes:
            changes = js.connection_changes
            await info_since(js, names.actors, since)
            messages = await asyncio.gather(*(_last(js, names, each) for each in some))
        for message in messages:
            if message is not None and message.data and (found_in := keys.shard_and_actor(message.subject)):
                read = read_versioned(_snapshot, message.data, snapshots.VERSION, message.subject)
                yield KnownState(found_in[0], read.as_of, message.stored_at, read.state)


async def _last(js: JetStream, names: Names, subject: str) -> StoredMessage | None:
    return await retry_until_answered(lambda: js.last_message(names.actors, subject))
