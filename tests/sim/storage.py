"""What a purge may take: nothing that an owner, now or later, will ask for."""

from collections.abc import Callable

import msgspec

from streams.checkpoint import Checkpoint
from streams.topology import Names
from tests.sim.server.store import Stored

_checkpoint = msgspec.json.Decoder(Checkpoint)


class JournalKept:
    """What each shard needs of the journal, by what the server has stored. `purges` counts what took some."""

    def __init__(self, names: Names, fail: Callable[[str], None]) -> None:
        self.purges = 0
        self._names = names
        self._fail = fail
        self._sequences: dict[int, list[int]] = {}
        self._checkpoints: dict[int, int] = {}

    def stored(self, stream: str, message: Stored) -> None:
        """The server has stored it."""
        if stream == self._names.journal:
            shard = int(message.subject.rpartition(".")[2])
            self._sequences.setdefault(shard, []).append(message.sequence)
        elif stream == self._names.actors and message.subject.endswith("._checkpoint"):
            shard = int(message.subject.split(".")[2])
            self._checkpoints[shard] = _checkpoint.decode(message.data).sequence

    def purged(self, first: int) -> None:
        """The journal has nothing below `first` any more."""
        for shard, sequences in self._sequences.items():
            gone = [each for each in sequences if each < first]
            del sequences[: len(gone)]
            self.purges += bool(gone)
            reaches = self._checkpoints.get(shard, 0)
            if gone and gone[-1] > reaches:
                self._fail(f"the journal at {gone[-1]} is purged, shard {shard} is snapshotted to {reaches}")
            if not sequences:
                self._fail(f"the last message of shard {shard} is purged, {gone[-1]}")
