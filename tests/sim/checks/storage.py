"""Checks of purges: nothing goes that an owner may still read."""

from bisect import bisect_left
from collections.abc import Callable
from itertools import dropwhile

import msgspec

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.parked_receivers import ParkedPart
from tests.sim.checks.folded_journals import Deliveries, FoldedJournal
from tests.sim.server.streams.store import Stored

_checkpoint = msgspec.json.Decoder(Checkpoint)
_part = msgspec.json.Decoder(ParkedPart)


class Checkpoints:
    """The checkpoint in force of each shard, as the server has it. None may say less than one before it."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._in_force: dict[int, Checkpoint] = {}

    def stored(self, shard: int, checkpoint: Checkpoint) -> None:
        before = self._in_force.get(shard, checkpoint)
        for member in ("journal_position", "floor", "needed"):
            said, says = getattr(before, member), getattr(checkpoint, member)
            if says < said:
                self._fail(f"the {member} of the checkpoint of shard {shard} falls from {said} to {says}")
        self._in_force[shard] = checkpoint


class ParkedKept:
    """The parts of the lists of parked receivers, as the server has them."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._parts: dict[tuple[int, str], ParkedPart] = {}

    def stored(self, shard: int, key: str, data: bytes) -> None:
        self._parts[shard, key] = _part.decode(data)

    def named(self, shard: int, checkpoint: Checkpoint) -> set[str]:
        """Collects the receivers in the parts that the checkpoint names, each as of when it says."""
        named: set[str] = set()
        for number, as_of in enumerate(checkpoint.parked_parts):
            part = self._parts.get((shard, f"_parked.{number}"))
            if part is None or part.as_of < as_of:
                self._fail(f"the checkpoint of shard {shard} has part {number} as of {as_of}, not {part}")
            else:
                named |= part.receivers.keys()
        return named


class JournalKept:
    """The messages of the journal that each shard needs. `purges` counts the purges that took some."""

    def __init__(self, names: Names, fail: Callable[[str], None]) -> None:
        self.purges = 0
        self._names = names
        self._fail = fail
        self._positions: dict[int, list[int]] = {}
        self._checkpoints: dict[int, int] = {}

    def stored(self, stream: str, message: Stored) -> None:
        """The server has stored it."""
        if stream == self._names.journal:
            shard = int(message.subject.rpartition(".")[2])
            self._positions.setdefault(shard, []).append(message.sequence)
        elif stream == self._names.actors and message.subject.endswith("._checkpoint"):
            shard = int(message.subject.split(".")[2])
            self._checkpoints[shard] = _checkpoint.decode(message.data).journal_position

    def purged(self, first: int) -> None:
        """The journal has nothing below `first` any more."""
        for shard, positions in self._positions.items():
            gone = [each for each in positions if each < first]
            del positions[: len(gone)]
            self.purges += bool(gone)
            reaches = self._checkpoints.get(shard, 0)
            if gone and gone[-1] > reaches:
                self._fail(f"the journal at {gone[-1]} is purged, shard {shard} is snapshotted to {reaches}")
            if not positions:
                self._fail(f"the last message of shard {shard} is purged, {gone[-1]}")


class DeliveriesKept:
    """The deliveries that the stored journals have not settled.

    `purges` counts the purges that took some, `purges_by_subject` the messages that went in another way.
    """

    def __init__(
        self, deliveries: Deliveries, journal_of: Callable[[str], FoldedJournal], fail: Callable[[str], None]
    ) -> None:
        self.purges = self.purges_by_subject = 0
        self._deliveries = deliveries
        self._journal_of = journal_of
        self._fail = fail
        self._first = 1

    def needed(self, state: State) -> int | None:
        """The lowest position that an actor in this state needs, except repeats, of those there are."""
        needed = [each.position for each in state.open] + [each.position for each in state.burials]
        if state.parked:
            after = max(state.frontier.position, self._first - 1)
            waiting = self._deliveries.between(state.receiver, after, 1 << 60)
            # The journal may be ahead of this state, and its window without the ids that were in it then.
            is_passed = self._journal_of(state.receiver).numbering(state.receiver).is_passed
            needed += list(dropwhile(is_passed, waiting))[:1]
        return min(needed, default=None)

    def purged(self, first: int) -> None:
        """The deliveries have nothing below `first` any more."""
        before, self._first = self._first, max(first, self._first)
        for receiver, positions in self._deliveries.positions.items():
            gone = positions[bisect_left(positions, before) : bisect_left(positions, first)]
            gone = [each for each in gone if each not in self._deliveries.deleted]
            self.purges += bool(gone)
            self._check_settled(receiver, gone)

    def purged_one(self, position: int) -> None:
        """The deliveries do not have the message at `position` any more."""
        self.purges_by_subject += 1
        self._check_settled(self._deliveries.events[position][0], [position])

    def _check_settled(self, receiver: str, gone: list[int]) -> None:
        journal_of = self._journal_of(receiver)
        state = journal_of.states.get(receiver) or State(receiver=receiver)
        unknown = journal_of.states.get(UNKNOWN_RECEIVERS) or State(receiver=UNKNOWN_RECEIVERS)
        owed = {each.position for each in (*state.burials, *unknown.burials)}
        for position in gone:
            if position in owed or not journal_of.is_settled(receiver, position, state):
                self._fail(f"{receiver}: the event at {position} is purged and not settled: {state}")
