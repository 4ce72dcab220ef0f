"""Support for tests of a shard's memory: adjustable clocks, a listener, and facts to record."""

from collections.abc import Callable, Sequence

from actors.machine.facts import EventDropped
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim, NotOwned, Owner, claim, release
from streams.journal.envelope import Flush, decode_flush
from streams.journal.journal import JournalEntry
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.journal.snapshots import Snapshots
from streams.lost_tails.marks import Mark, Marks
from streams.nats.jetstream import JetStream
from tests.support.waiting import until

SHARD = 2
RECEIVER = "acme.billing"


class Clocks:
    """A `Timekeeper` that stands still unless it is turned."""

    def __init__(self, wall: float = 1_800_000_000.0, boottime: float = 1000.0) -> None:
        self.now = wall
        self.since_boot = boottime

    def wall(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.since_boot

    def turn(self, seconds: float) -> None:
        self.now += seconds
        self.since_boot += seconds


class Listening:
    """A journal's listener that remembers. `released` says which floor the facts up to an index give."""

    def __init__(self, released: Callable[[int], int] = lambda index: 0) -> None:
        self.entries: list[JournalEntry] = []
        self.positions: list[int] = []
        self.fences: list[str] = []
        self.released = released
        self.known = Marks()
        self.progress = NOTHING_ROUTED

    def floor_for_flush(self, index: int) -> int:
        return self.released(index)

    def routing(self) -> RoutingProgress:
        return self.progress

    def marks(self) -> Marks:
        return self.known

    def flush_confirmed(self, entries: Sequence[JournalEntry], position: int) -> None:
        self.entries += entries
        self.positions.append(position)

    def ownership_lost(self, why: str) -> None:
        self.fences.append(why)

    async def has(self, count: int) -> None:
        await until(lambda: len(self.entries) >= count)

    @property
    def indices(self) -> list[int]:
        return [entry.index for entry in self.entries]


def any_node(_: Owner | None) -> bool:
    return True


async def own(
    js: JetStream,
    names: Names,
    node: str,
    *,
    shard: int = SHARD,
    clocks: Clocks | None = None,
    resumes: int = 0,
) -> Claim:
    """A claim that succeeds."""
    claimed = await claim(js, names, shard, node, clocks or Clocks(), may_claim=any_node, resumes=resumes)
    assert not isinstance(claimed, NotOwned), claimed
    return claimed


async def last_flush(js: JetStream, names: Names) -> Flush:
    """The last one in the journal."""
    message = await js.last_message(names.journal, names.journal_of(SHARD))
    assert message is not None
    return decode_flush(message.data, "the journal")


async def mark_at(js: JetStream, names: Names, position: int) -> Mark:
    """A message of the deliveries, as a flush remembers it."""
    message = await js.message(names.deliveries, position)
    assert message is not None
    return Mark(position=position, stored_at=message.stored_at)


def repeated(position: int, receiver: str = RECEIVER) -> EventDropped:
    return EventDropped(receiver=receiver, position=position)


def blank(receiver: str = RECEIVER) -> State:
    return State(receiver=receiver)


async def lose_events(js: JetStream, names: Names) -> None:
    """Make the shard one that has routed events which are not there any more."""
    claimed = await own(js, names, "a")
    await release(js, names, claimed, "a")
    again = await claim(js, names, SHARD, "a", Clocks(), may_claim=any_node)
    assert not isinstance(again, NotOwned)
    marks = Marks(events=Mark(position=9, stored_at=1.5))
    await Snapshots(js, names, again).write([], [], 0, Checkpoint(marks=marks, routed=0))
    await js.purge(names.journal, again.journal_position + 1)
    await release(js, names, again, "a")
