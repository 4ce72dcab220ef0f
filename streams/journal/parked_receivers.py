"""The list of a shard's parked receivers: after a takeover, no incoming message would activate them.

It is in the bucket of the actors, next to the snapshots, in parts of some kilobytes each: a single message
would exceed the server's limit, and every change would rewrite all of it. A changed part is written together
with the snapshots of its receivers. The checkpoint says how many parts there are, and as of which journal
position each was written, so a missing or outdated part is noticed.
"""

import asyncio
from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec
from msgspec import Struct

from actors.errors import AngariumError
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, retry_until_answered
from streams.versions import read_versioned

VERSION = 1
PART_BYTES = 8 << 10
"""Approximate size of a part; it grows by the same amount per `LARGER_PARTS_EVERY` parts, up to
`PART_BYTES_MAX`."""
PART_BYTES_MAX = 128 << 10
LARGER_PARTS_EVERY = 512
ENTRY_BYTES = 24
"""Bytes of an entry, in addition to its name."""
WAKE_UP_TOLERANCE_S = 60.0
"""A wake-up that moves by less than this does not change a part: it only determines the order of turns."""
PART_TIMEOUT_S = 15.0
"""Time that a part may be missing: longer than a leader continues without followers (10 s, nats-server
2.15)."""
READ_AT_ONCE = 16


class ParkedPart(Struct, frozen=True, kw_only=True):
    """A part of the list as of the journal position `as_of`: receivers with their wake-up times, if known."""

    v: int = VERSION
    as_of: int
    receivers: dict[str, float | None]


_decoder = msgspec.json.Decoder(ParkedPart)


class Incomplete(AngariumError):
    """A part that stays missing, or older than the checkpoint says."""


class ParkedReceivers:
    """The list as it will be written next. A receiver stays in the part to which it was added."""

    def __init__(self) -> None:
        self.changed: set[int] = set()
        self._parts: list[dict[str, float | None]] = []
        self._bytes: list[int] = []
        self._as_of: list[int] = []
        self._part_of: dict[str, int] = {}
        self._with_room: list[int] = []

    def read(self, parts: Iterable[ParkedPart]) -> None:
        """Take the stored parts. A receiver may be in two of them, after a write that was never finished."""
        for part in parts:
            number = self._append(part.as_of)
            for receiver, wakes_at in part.receivers.items():
                if receiver in self._part_of:
                    self.changed.add(number)
                else:
                    self._assign(receiver, wakes_at, number)

    def update(self, states: Iterable[State]) -> None:
        """Update the list from the confirmed states of these actors."""
        for state in states:
            if state.is_unfinished:
                self.add(state.receiver, state.wakes_at)
            elif state.receiver in self._part_of:
                self._remove(state.receiver)

    def add(self, receiver: str, wakes_at: float | None) -> None:
        """Add a parked receiver with its wake-up time."""
        number = self._part_of.get(receiver)
        if number is None:
            number = self._part_with_room()
            self._assign(receiver, wakes_at, number)
        elif _moved(self._parts[number][receiver], wakes_at):
            self._parts[number][receiver] = wakes_at
        else:
            return
        self.changed.add(number)

    def receivers(self) -> dict[str, float | None]:
        """All receivers of the list, with their wake-up times, if known."""
        found: dict[str, float | None] = {}
        for part in self._parts:
            found |= part
        return found

    def encode(self, number: int, as_of: int) -> bytes:
        """The part, as it is stored."""
        return msgspec.json.encode(ParkedPart(as_of=as_of, receivers=self._parts[number]))

    def as_of(self, position: int) -> tuple[int, ...]:
        """The journal position of each part after the changed ones are written as of `position`.

        Empty parts at the end are left out.
        """
        count = len(self._parts)
        while count and not self._parts[count - 1]:
            count -= 1
        return tuple(position if each in self.changed else self._as_of[each] for each in range(count))

    def written(self, position: int) -> None:
        """Take the changed parts as stored as of `position`."""
        for number in self.changed:
            self._as_of[number] = position
        self.changed.clear()

    def _assign(self, receiver: str, wakes_at: float | None, number: int) -> None:
        self._parts[number][receiver] = wakes_at
        self._part_of[receiver] = number
        self._bytes[number] += len(receiver) + ENTRY_BYTES

    def _remove(self, receiver: str) -> None:
        number = self._part_of.pop(receiver)
        del self._parts[number][receiver]
        self._bytes[number] -= len(receiver) + ENTRY_BYTES
        self.changed.add(number)
        heappush(self._with_room, number)

    def _part_with_room(self) -> int:
        """The first part with room, so that the list does not get longer than necessary."""
        while self._with_room:
            number = self._with_room[0]
            if self._bytes[number] < self._bytes_max(number):
                return number
            heappop(self._with_room)
        return self._append(0)

    def _append(self, as_of: int) -> int:
        number = len(self._parts)
        self._parts.append({})
        self._bytes.append(0)
        self._as_of.append(as_of)
        heappush(self._with_room, number)
        return number

    def _bytes_max(self, number: int) -> int:
        return min(PART_BYTES * (1 + number // LARGER_PARTS_EVERY), PART_BYTES_MAX)


def _moved(said: float | None, says: float | None) -> bool:
    if said is None or says is None:
        return said is not says
    return abs(says - said) > WAKE_UP_TOLERANCE_S


async def read_parked_receivers(
    js: JetStream, names: Names, shard: int, checkpoint: Checkpoint
) -> ParkedReceivers:
    """The list that belongs to the checkpoint. Raises `Incomplete`, `NewerVersion` and `NotOurs`.

    Parts may be newer than the checkpoint if a write was never finished. The journal's tail after the
    checkpoint has everything that this write knew about their receivers.
    """
    found, parts = ParkedReceivers(), checkpoint.parked_parts
    for start in range(0, len(parts), READ_AT_ONCE):
        numbers = range(start, min(start + READ_AT_ONCE, len(parts)))
        reads = (_read_part(js, names, shard, number, parts[number]) for number in numbers)
        found.read(await asyncio.gather(*reads))
    for receiver, wakes_at in checkpoint.parked.items():
        found.add(receiver, wakes_at)
    return found


async def _read_part(js: JetStream, names: Names, shard: int, number: int, as_of: int) -> ParkedPart:
    """Read a part from the leader; a leader that was deposed may unknowingly return an older one."""
    subject, pauses = names.actor_keys.parked_receivers(shard, number), Pauses()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PART_TIMEOUT_S
    while True:
        message = await retry_until_answered(lambda: js.last_message(names.actors, subject))
        if message is not None and message.data:
            part = read_versioned(_decoder, message.data, VERSION, subject)
            if part.as_of >= as_of:
                return part
        if loop.time() >= deadline:
            raise Incomplete(f"{subject} is not there as of {as_of}")
        await pauses.wait()
