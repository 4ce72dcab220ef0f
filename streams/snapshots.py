"""Snapshots of actors, and the checkpoint that says how far they reach, in the bucket of the actors.

They only shorten the way back: the journal is the truth. A snapshot says as of which journal sequence it is
true. Both are written in atomic batches that the key `_owner` fences, so that nobody back from the dead
puts an old state over a young one, and read from the leader.

Every batch bears a checkpoint that is true with it: one that is not the last of its write bears the
checkpoint that was in force. So a batch may arrive late, twice, or after the ones that followed it: what it
leaves behind is older, and whole, and the journal's tail after its checkpoint makes up for it.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from actors.state import State
from streams.answers import Put, Refused, Stored, Unanswered
from streams.checkpoint import Checkpoint as Checkpoint
from streams.checkpoint import encode_checkpoint, read_checkpoint
from streams.claim import Claim
from streams.errors import Unavailable
from streams.fence import EXPECTED, EXPECTED_SUBJECT, WRONG_LAST_SEQUENCE
from streams.jetstream import JetStream
from streams.repeat import Pauses
from streams.topology import Names
from streams.versions import read_versioned

VERSION = 1
BATCH = 256
"""Messages of one atomic batch: one server stages it in a file, which takes 4 ms."""
PATIENCE_S = 5.0
DELETED = {"KV-Operation": "DEL"}

log = logging.getLogger(__name__)


class Snapshot(Struct, frozen=True, kw_only=True):
    """An actor as of the journal sequence `as_of`, and of every later one that does not speak of it."""

    v: int = VERSION
    as_of: int
    state: State


_decoder = msgspec.json.Decoder(Snapshot)


class Snapshots:
    """The snapshots of one shard, under one claim; implements `actors.ports.Snapshots`."""

    def __init__(self, js: JetStream, names: Names, claim: Claim) -> None:
        self._js = js
        self._names = names
        self._shard = claim.shard
        self._fence = {EXPECTED: str(claim.epoch), EXPECTED_SUBJECT: names.owner(claim.shard)}
        self._in_force: Put | None = None

    async def load(self, receiver: str) -> State | None:
        """The actor's last snapshot, from the leader. Raises `Unavailable`, `NewerVersion` and `NotOurs`."""
        snapshot = await self.read(receiver)
        return None if snapshot is None else snapshot.state

    async def read(self, receiver: str) -> Snapshot | None:
        """The same, with the journal sequence as of which it is true."""
        subject = self._names.actor(self._shard, receiver)
        message = await self._js.last_message(self._names.actors, subject)
        if message is None or not message.data:
            return None
        return read_versioned(_decoder, message.data, VERSION, subject)

    async def write(
        self, states: Sequence[State], forget: Sequence[str], as_of: int, checkpoint: Checkpoint
    ) -> bool:
        """Write the snapshots of `states`, delete those of `forget`, and make the checkpoint true by it.

        The states are as of the confirmed journal sequence `as_of`. False: another node owns the shard.
        Raises `Unavailable` where it could not be stored for a while; some of it may be, which does no
        harm.
        """
        puts = [self._put(Snapshot(as_of=as_of, state=state)) for state in states]
        puts += [Put(self._names.actor(self._shard, receiver), b"", DELETED) for receiver in forget]
        new = Put(self._names.checkpoint(self._shard), encode_checkpoint(checkpoint))
        while len(puts) >= BATCH:
            if not await self._store([*puts[: BATCH - 1], await self._checkpoint_in_force()]):
                return False
            del puts[: BATCH - 1]
        if not await self._store([*puts, new]):
            return False
        self._in_force = new
        return True

    def _put(self, snapshot: Snapshot) -> Put:
        subject = self._names.actor(self._shard, snapshot.state.receiver)
        return Put(subject, msgspec.json.encode(snapshot))

    async def _checkpoint_in_force(self) -> Put:
        if self._in_force is None:
            found = await read_checkpoint(self._js, self._names, self._shard)
            data = encode_checkpoint(found or Checkpoint())
            self._in_force = Put(self._names.checkpoint(self._shard), data)
        return self._in_force

    async def _store(self, puts: list[Put]) -> bool:
        """One fenced batch. Too many at once (10210), one cut off (10176), a full store: it waits."""
        first = puts[0]
        fenced = [Put(first.subject, first.data, {**(first.headers or {}), **self._fence}), *puts[1:]]
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        pauses = Pauses()
        while True:
            answer = await self._js.publish_batch(fenced)
            match answer:
                case Stored():
                    return True
                case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                    return False
                case Refused() | Unanswered():
                    log.debug("snapshot.repeated", extra={"shard": self._shard, "answer": str(answer)})
            if asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(f"snapshots of shard {self._shard}: {answer}")
            await pauses.wait()
