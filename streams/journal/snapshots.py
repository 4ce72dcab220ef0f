"""Snapshots of actors, and the checkpoint that says how far they reach, in the bucket of the actors.

They only shorten recovery: the journal is the truth. A snapshot says as of which journal position it is
valid, and is read from the leader. Both are written in atomic batches under two expectations. The one on the
key `_owner` is the fence: a process that wakes up late cannot overwrite a new state with an old one. The one
on the checkpoint, which every batch writes, stops late batches of our own: a batch that was repeated because
its answer was lost may still arrive, and would put an older state next to a newer checkpoint.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

import msgspec
from msgspec import Struct

from actors.errors import Unavailable
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint as Checkpoint
from streams.journal.checkpoint import encode_checkpoint
from streams.journal.claim import Claim, still_owns
from streams.journal.leadership import is_last
from streams.journal.load_slots import LoadSlots
from streams.journal.parked_receivers import ParkedReceivers
from streams.nats.answers import Put, Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses
from streams.nats.wire_names import EXPECTED, EXPECTED_SUBJECT, KV_DELETED, WRONG_LAST_SEQUENCE
from streams.versions import read_versioned

VERSION = 2
VERSION_WITHOUT_GROUPS = 1
"""Version 1 does not know which open events are tried together. It is written unless there are some."""
BATCH_MESSAGES_MAX = 256
"""Messages in one atomic batch: the server stages it in a file, which takes 4 ms."""
BATCH_TIMEOUT_S = 5.0


class Snapshot(Struct, frozen=True, kw_only=True):
    """An actor as of the journal position `as_of`, and of every later one whose flush does not name it."""

    v: int = VERSION_WITHOUT_GROUPS
    as_of: int
    state: State


def snapshot_of(state: State, as_of: int) -> Snapshot:
    """The snapshot of that state, in the lowest version that has all of it."""
    return Snapshot(v=VERSION if state.has_groups else VERSION_WITHOUT_GROUPS, as_of=as_of, state=state)


_decoder = msgspec.json.Decoder(Snapshot)


class Snapshots:
    """The snapshots of one shard, under one claim; implements `actors.ports.Snapshots`.

    All shards of a node share the `slots` in which they are read.
    """

    def __init__(self, js: JetStream, names: Names, claim: Claim, slots: LoadSlots | None = None) -> None:
        self._js = js
        self._slots = slots or LoadSlots()
        self._names = names
        self._claim = claim
        self._fence = {EXPECTED: str(claim.epoch), EXPECTED_SUBJECT: names.actor_keys.owner(claim.shard)}
        self._checkpoint = names.actor_keys.checkpoint(claim.shard)
        self._in_force = b""
        self._revision: int | None = None
        self._trouble = "no answer in time"

    async def load(self, receiver: str, due: float = 0.0) -> State | None:
        """The actor's last snapshot, from the leader. Raises `Unavailable`, `NewerVersion` and `NotOurs`."""
        try:
            snapshot = await self.read(receiver, due)
        except ApiError as error:
            raise Unavailable(f"cannot read the snapshot of {receiver}: {error}") from error
        return None if snapshot is None else snapshot.state

    async def read(self, receiver: str, due: float = 0.0) -> Snapshot | None:
        """The last snapshot, with the journal position as of which it is valid."""
        subject = self._names.actor_keys.actor(self._claim.shard, receiver)
        async with self._slots.slot(due):
            message = await self._js.last_message(self._names.actors, subject)
            if self._claim.replicated:
                # A state that is older than its checkpoint lacks facts, and numbers that they assigned.
                proof, position = (
                    self._names.actor_keys.proof(self._claim.shard),
                    message.position if message else 0,
                )
                if not await is_last(self._js, proof, subject, position):
                    raise Unavailable(f"{subject}: the snapshot at {position} is not the newest")
        if message is None or not message.data:
            return None
        return read_versioned(_decoder, message.data, VERSION, subject)

    async def receivers(self) -> list[str]:
        """The receivers that have snapshots, or had them, from the leader. Raises `Unavailable`."""
        keys = self._names.actor_keys
        try:
            found = await self._js.subjects(self._names.actors, keys.snapshots_in(self._claim.shard))
        except ApiError as error:
            raise Unavailable(f"cannot list the snapshots: {error}") from error
        return [receiver for _, receiver in filter(None, map(keys.shard_and_actor, found))]

    async def write(
        self,
        states: Sequence[State],
        forget: Iterable[str],
        as_of: int,
        checkpoint: Checkpoint,
        parked: ParkedReceivers | None = None,
    ) -> bool:
        """Write the snapshots of `states`, delete those of `forget`, and put the checkpoint for the result.

        The changed parts of the list of parked receivers are written, too; the list must not change
        meanwhile.

        The states are as of the confirmed journal position `as_of`. Returns False if another node owns the
        shard. Raises `Unavailable` if it cannot be stored for a while, and `ApiError` if the bucket is gone.
        A part may be stored then, which does no harm: only the last batch carries the new checkpoint, and the
        others repeat the one in force.
        """
        if self._revision is None:
            await self._read_in_force()
        puts: list[Put] = []
        # Each is encoded when its batch is due: encoding thousands at once would delay everything else.
        listed = self._parts(parked, as_of) if parked else ()
        for put in chain(map(self._put, states, repeat(as_of)), map(self._delete, forget), listed):
            if len(puts) == BATCH_MESSAGES_MAX - 1:
                if not await self._store(puts):
                    return False
                puts = []
            puts.append(put)
        return await self._store(puts, encode_checkpoint(checkpoint))

    def _put(self, state: State, as_of: int) -> Put:
        subject = self._names.actor_keys.actor(self._claim.shard, state.receiver)
        return Put(subject, msgspec.json.encode(snapshot_of(state, as_of)))

    def _delete(self, receiver: str) -> Put:
        return Put(self._names.actor_keys.actor(self._claim.shard, receiver), b"", KV_DELETED)

    def _parts(self, parked: ParkedReceivers, as_of: int) -> Iterator[Put]:
        for number in sorted(parked.changed):
            yield Put(
                self._names.actor_keys.parked_receivers(self._claim.shard, number),
                parked.encode(number, as_of),
            )

    async def _read_in_force(self) -> None:
        """Read the checkpoint that is in force."""
        message = await self._js.last_message(self._names.actors, self._checkpoint)
        self._revision = 0 if message is None else message.position
        self._in_force = message.data if message and message.data else encode_checkpoint(Checkpoint())

    async def _store(self, puts: list[Put], checkpoint: bytes | None = None) -> bool:
        """Store one batch, with the checkpoint in force unless it carries another.

        Returns False if another node owns the shard. Raises `Unavailable`.
        """
        try:
            async with asyncio.timeout(BATCH_TIMEOUT_S):
                return await self._publish_until_stored(puts, checkpoint)
        except TimeoutError:
            raise Unavailable(self._trouble) from None

    async def _publish_until_stored(self, puts: list[Put], checkpoint: bytes | None) -> bool:
        """Publish the batch until it is stored or fenced; wait if there are too many (10210), or no room.

        If an expectation does not hold although `_owner` is ours, this very batch was stored before and its
        answer was lost, or a batch of an earlier write that was given up came late. The batch is rebuilt on
        top of that: the checkpoint in force may be newer than the one that we knew.
        """
        pauses = Pauses(self._js)
        while True:
            data = self._in_force if checkpoint is None else checkpoint
            checkpoint_put = Put(self._checkpoint, data, {EXPECTED: str(self._revision)})
            answer = await self._js.publish_batch(fenced(puts, checkpoint_put, self._fence))
            match answer:
                case Stored(position):
                    self._in_force, self._revision = data, position
                    return True
                case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                    if not await still_owns(self._js, self._names, self._claim):
                        return False
                    await self._read_in_force()
                case Refused(text=why) | Unanswered(why=why):
                    self._trouble = why
            await pauses.wait()


def fenced(puts: list[Put], checkpoint: Put, fence: dict[str, str]) -> list[Put]:
    """A batch that ends with its `checkpoint` and expects what the headers `fence` say.

    A message has room for one expectation, so a checkpoint without others is put twice.
    """
    if not puts:
        return [checkpoint, Put(checkpoint.subject, checkpoint.data, fence)]
    first, *others = puts
    return [Put(first.subject, first.data, {**(first.headers or {}), **fence}), *others, checkpoint]
