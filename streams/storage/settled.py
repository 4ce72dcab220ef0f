"""Finds out which messages of the deliveries are settled, by the last snapshots of their receivers.

What is settled stays settled, so an answer may be old. It must not be made of records that do not fit each
other: the checkpoint is read first, and everything that it does not cover counts as needed.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from actors.errors import Unusable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal import snapshots
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.leadership import ensure_no_message, is_last, is_replicated, subjects_since
from streams.journal.snapshots import Snapshot
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import ReasonLog, retry_until_answered
from streams.storage.purge import trusted_end_of
from streams.versions import read_versioned

NOT_WRITTEN = Snapshot(as_of=0, state=State(receiver=UNKNOWN_RECEIVERS))
"""The record of unknown receivers in a shard that never had one."""
RECEIVERS_OF_TENANT_MAX = 256
"""Receivers of a tenant in one shard that are looked up to find what all of them need."""
log = logging.getLogger(__name__)
_snapshot = msgspec.json.Decoder(Snapshot)


class ShardRecords(msgspec.Struct, frozen=True):
    """The records of a shard that bound what its receivers have settled.

    - `floor`: everything above it may be needed; 0 if nothing is known.
    - `unknown`: the record of unknown receivers.
    """

    floor: int
    unknown: State = NOT_WRITTEN.state


class SettledPositions:
    """The positions up to which receivers have settled everything, each looked up once."""

    def __init__(self, js: JetStream, names: Names, deliveries: StreamInfo) -> None:
        self._js = js
        self._names = names
        self._deliveries = deliveries
        self._settled_to_by_subject: dict[str, int] = {}
        self._records: dict[int, ShardRecords] = {}
        self._reason_log = ReasonLog(js, log, "settled.unknown")

    def __len__(self) -> int:
        """The number of subjects that were looked up."""
        return len(self._settled_to_by_subject)

    def __contains__(self, subject: str) -> bool:
        return subject in self._settled_to_by_subject

    async def up_to(self, subject: str) -> int:
        """The position for the receiver of the subject; 0 if it is not known, or the subject has none.

        Waits for NATS; raises `ApiError`.
        """
        if subject not in self._settled_to_by_subject:
            address = self._names.shard_and_receiver(subject)
            self._settled_to_by_subject[subject] = await self._settled_to(*address) if address else 0
        return self._settled_to_by_subject[subject]

    async def up_to_for_all_of(self, shard: int, tenant: str) -> int:
        """The position up to which no receiver of the tenant in the shard needs a message, existing or not.

        0 if it is not known, or the tenant has too many receivers in the shard to look them up. Waits for
        NATS; raises `Unavailable` if it is not certain that a receiver has no message, and `ApiError`.
        """
        js, actors = self._js, self._names.actors
        records = await self._records_of(shard)
        if not records.floor:
            return 0
        of_tenant = self._names.actor_keys.actor(shard, f"{tenant}.*")
        known = await subjects_since(js, actors, of_tenant, asyncio.get_running_loop().time())
        if len(known) > RECEIVERS_OF_TENANT_MAX:
            return 0
        owed = needed_by_record(records.unknown, lambda each: each.startswith(f"{tenant}."))
        up_to = records.floor if owed is None else min(records.floor, owed - 1)
        for address in map(self._names.actor_keys.shard_and_actor, known):
            if address is not None:
                up_to = await self._without_message(*address, up_to)
        return up_to

    async def _without_message(self, shard: int, receiver: str, up_to: int) -> int:
        """The position, at most `up_to`, to which no message of the receiver follows those that are settled.

        A receiver that has been idle for long holds nothing: its last event is far below, and none follows.
        """
        js, stream, subject = self._js, self._deliveries.name, self._names.delivery(shard, receiver)
        settled = await self.up_to(subject)
        if settled >= up_to:
            return up_to
        message = await retry_until_answered(lambda: js.next_message(stream, subject, settled + 1))
        if message is not None:
            return min(up_to, message.position - 1)
        await ensure_no_message(js, stream, subject, settled, up_to)
        return up_to

    async def _records_of(self, shard: int) -> ShardRecords:
        if shard not in self._records:
            self._records[shard] = await self._read_records(shard)
        return self._records[shard]

    async def _settled_to(self, shard: int, receiver: str) -> int:
        # These are read first: the snapshots are at least as new as the checkpoint.
        records = await self._records_of(shard)
        floor = records.floor
        if not floor:
            return 0
        try:
            state = await self._state(shard, receiver)
        except Unusable as error:
            self._reason_log.log_once(str(error))
            return 0
        # Events from before the receiver existed may wait in the record of unknown receivers.
        if (needed := needed_by_record(records.unknown, lambda each: each == receiver)) is not None:
            floor = min(floor, needed - 1)
        return floor if state is None else min(floor, settled_to(state))

    async def _read_records(self, shard: int) -> ShardRecords:
        """The records of the shard; if one of them cannot be read, nothing in the shard counts as settled.

        A record of unknown receivers that is newer than the checkpoint is of no use. Events that it has given
        to a receiver may be covered by a snapshot of that receiver which is not stored yet: a checkpoint
        promises only those snapshots that were written before it.
        """
        try:
            checkpoint = await self._checkpoint(shard)
            record = await self._record(shard) if checkpoint.floor else None
        except Unusable as error:
            self._reason_log.log_once(str(error))
            return ShardRecords(0)
        if record is None or record.as_of > checkpoint.journal_position:
            return ShardRecords(0)
        return ShardRecords(checkpoint.floor, record.state)

    async def _checkpoint(self, shard: int) -> Checkpoint:
        """The checkpoint, with a floor that is valid for this stream; a blank one if it is about another."""
        js, names, stream = self._js, self._names, self._deliveries
        trusted_end = await trusted_end_of(js, names, shard, stream.name)
        checkpoint = await read_checkpoint(js, names, shard) or Checkpoint()
        if not trusted_end or checkpoint.created.get(stream.name) != stream.created:
            return Checkpoint()
        # The last message that was received stays: by its time, a lost tail is noticed.
        floor = min(checkpoint.floor, trusted_end - 2)
        return msgspec.structs.replace(checkpoint, floor=floor)

    async def _record(self, shard: int) -> Snapshot | None:
        """The record of unknown receivers; None if it is not certain that it is the newest one.

        Of an older one, a deposed leader's, burials would be missing that are owed.
        """
        js, keys = self._js, self._names.actor_keys
        subject = keys.actor(shard, UNKNOWN_RECEIVERS)
        message = await retry_until_answered(lambda: js.last_message(self._names.actors, subject))
        if is_replicated(self._deliveries):
            position = message.position if message else 0
            if not await is_last(js, keys.proof(shard), subject, position):
                return None
        return NOT_WRITTEN if message is None or not message.data else _decoded(message)

    async def _state(self, shard: int, receiver: str) -> State | None:
        """The state in the last snapshot; None if there certainly is none. Raises Unusable."""
        since, stream = asyncio.get_running_loop().time(), self._names.actors
        subject = self._names.actor_keys.actor(shard, receiver)
        while True:
            message = await retry_until_answered(lambda: self._js.last_message(stream, subject))
            if message is not None:
                return _decoded(message).state if message.data else None
            if not await subjects_since(self._js, stream, subject, since):
                return None


def _decoded(message: StoredMessage) -> Snapshot:
    return read_versioned(_snapshot, message.data, snapshots.VERSION, message.subject)


def settled_to(state: State) -> int:
    """The position up to which a receiver in this state needs no message any more."""
    needed = state.needed_position
    return state.frontier.position if needed is None else min(state.frontier.position, needed - 1)


def needed_by_record(record: State, is_one: Callable[[str], bool]) -> int | None:
    """The lowest position of messages that the record of unknown receivers may still need.

    `is_one` returns True for the receivers whose messages are meant.
    """
    needed = [each.position for each in record.burials if is_one(each.receiver)]
    if record.parked:  # Whose events are undecided is not in the state.
        needed.append(record.frontier.position + 1)
    return min(needed, default=None)
