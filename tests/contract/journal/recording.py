"""An owner of a shard that records facts for the tests of recovery and repair."""

from actors.machine.evolve import evolve
from actors.machine.facts import Delivered, Fact
from actors.machine.numbering import Numbered
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim
from streams.journal.journal import Journal
from streams.journal.parked_receivers import ParkedReceivers
from streams.journal.snapshots import Snapshots
from streams.nats.jetstream import JetStream
from tests.contract.support.shards import RECEIVER, Clocks, Listening


class Recording:
    """An owner of a shard that records facts, one flush each, and keeps the states of its actors."""

    def __init__(self, js: JetStream, names: Names, claim: Claim) -> None:
        self.claim = claim
        self.states: dict[str, State] = {}
        self.snapshots = Snapshots(js, names, claim)
        self.listed = ParkedReceivers()
        self.listening = Listening()
        self.journal = Journal(js, names, claim, "a", self.listening, time=Clocks(), retention_s=3600.0)
        self.journal.start()

    async def record(self, *facts: Fact) -> int:
        """Returns the journal position of the last of them."""
        for fact in facts:
            before = self.states.get(fact.receiver, State(receiver=fact.receiver))
            self.states[fact.receiver] = evolve(before, fact)
            self.journal.add(fact, self.states[fact.receiver], urgent=True)
            await self.listening.has(self.journal.index)
        return self.journal.position

    async def snapshot(self, checkpoint: Checkpoint | None = None) -> None:
        position = self.journal.position
        states = list(self.states.values())
        self.listed.update(states)
        checkpoint = checkpoint or Checkpoint(
            journal_position=position, routed=0, parked_parts=self.listed.as_of(position)
        )
        assert await self.snapshots.write(states, [], position, checkpoint, self.listed)
        self.listed.written(position)

    async def stop(self) -> None:
        await self.journal.stop()


def delivered(position: int, sequence: int, receiver: str = RECEIVER, source: int = 0) -> Delivered:
    event = Numbered(sequence=sequence, position=position, id=f"id-{position}", stored_at=1.5, source=source)
    return Delivered(receiver=receiver, events=(event,), at=2.5, attempt=1, status=200)


async def recreate(js: JetStream, names: Names, stream: str) -> None:
    """Deletes a stream, and creates it again with the same configuration."""
    info = await js.stream_info(stream)
    assert info is not None
    await js.request(f"$JS.API.STREAM.DELETE.{stream}", b"")
    await js.stream_create(info.config)
