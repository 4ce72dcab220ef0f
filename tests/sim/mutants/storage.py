"""The rules by which storage is freed, each taken out by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from actors.machine.state import State
from actors.memory.retention import NeededPosition, Retention
from actors.runtime.host import Host
from angarium.node.housekeeping import maintenance
from streams.installation.topology import Names
from streams.journal import snapshots
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.load_slots import LoadSlots
from streams.journal.snapshots import fenced
from streams.lost_tails.marks import Mark
from streams.nats.answers import Put, StreamInfo
from streams.nats.jetstream import JetStream
from streams.storage import purge, settled, strays
from streams.storage.purge import NeededFrom, deliveries_needed_from, surplus, surplus_end
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios.recovery import snapshots as states
from tests.sim.scenarios.recovery import storage

_FAR = 1 << 60

_read_checkpoint = read_checkpoint


async def _checkpoint_to_the_end(js: JetStream, names: Names, shard: int) -> Checkpoint | None:
    found = await _read_checkpoint(js, names, shard)
    return found and replace(found, journal_position=_FAR)


async def _last_is_far(js: JetStream, names: Names, shards: int, info: StreamInfo) -> NeededFrom:
    checkpoints = [await _read_checkpoint(js, names, shard) for shard in range(shards)]
    return NeededFrom(min(each.journal_position + 1 if each else 0 for each in checkpoints))


_update = Retention.update


def _note_but_parked(needs: Retention, state: State) -> None:
    _update(needs, replace(state, parked=False))


def _note_but_burials(needs: Retention, state: State) -> None:
    _update(needs, replace(state, burials=()))


def _needed_live(host: Host) -> NeededPosition:
    for actor in host.actors.values():
        host.retention.update(actor.state)
    return host.retention.lowest(host.shard_unacked.received)


async def _held_up_to_eviction(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, certain_end: int = 0
) -> NeededFrom:
    needed_from = await deliveries_needed_from(js, names, shards, deliveries, certain_end)
    over = surplus(deliveries)
    end = surplus_end(deliveries, deliveries.bytes - over) if over else 0
    return replace(needed_from, position=max(needed_from.position, end))


async def _no_events_needed(js: JetStream, names: Names, partitions: int, certain_end: int = 0) -> NeededFrom:
    return NeededFrom(_FAR)


_needed = Host.needed


class _AsBuilt:
    """Sends the checkpoint with which a batch was built first."""

    def __init__(self) -> None:
        self._built: dict[int, tuple[list[Put], bytes]] = {}

    def __call__(self, puts: list[Put], checkpoint: Put, fence: dict[str, str]) -> list[Put]:
        _, data = self._built.setdefault(id(puts), (puts, checkpoint.data))
        return fenced(puts, Put(checkpoint.subject, data, checkpoint.headers), fence)


def _needed_again(needed: NeededPosition, lowest: NeededPosition) -> NeededPosition:
    return lowest


def _needed_of_those_here(host: Host) -> NeededPosition:
    away, host.residents.not_loaded = host.residents.not_loaded, {}
    try:
        return _needed(host)
    finally:
        host.residents.not_loaded = away


@asynccontextmanager
async def _unbounded(slots: LoadSlots, due: float) -> AsyncIterator[None]:
    yield


async def _unstored(*_: object) -> None:
    """Store nothing."""


async def _deleted_by_subject(js: JetStream, stream: str, mark: Mark) -> None:
    message = await js.message(stream, mark.position)
    if message is not None:
        await js.purge_subject(stream, message.subject)


def _never_full(deliveries: StreamInfo) -> float:
    return 0.0


def _settled_to_the_frontier(state: State) -> int:
    return state.frontier.position


STORAGE_MUTANTS = [
    Mutant("purged-beyond-the-checkpoint", "the journal keeps what lies behind each checkpoint",
           ((purge, "read_checkpoint", _checkpoint_to_the_end),)),
    Mutant("purged-to-the-checkpoint", "the journal keeps the last message of each shard",
           ((purge, "journal_needed_from", _last_is_far),)),
    Mutant("parked-not-needed", "what parked actors wait for is needed",
           ((Retention, "update", _note_but_parked),)),
    Mutant("away-not-needed", "while a parked actor is not in memory nothing more counts as dispensable",
           ((Host, "needed", _needed_of_those_here),),
           states.parked_actors_come_back_slowly),
    Mutant("burials-not-needed", "what is owed a burial is needed",
           ((Retention, "update", _note_but_burials),)),
    Mutant("needed-by-memory", "what is not settled by the confirmed journal is needed",
           ((Host, "needed", _needed_live),)),
    Mutant("evicted-by-the-purge", "what is evicted is recorded before it is purged",
           ((purge, "deliveries_needed_from", _held_up_to_eviction),)),
    Mutant("none-evicted", "producers are refused only while nothing can be freed",
           ((maintenance, "surplus", _never_full),),
           storage.stream_is_full_of_rejected_events),
    Mutant("open-purged", "of a receiver nothing is purged that is open, or owed a burial",
           ((settled, "settled_to", _settled_to_the_frontier),)),
    Mutant("refused-purged", "of what came before a receiver was put nothing is purged that is owed a burial",
           ((settled, "UNKNOWN_RECEIVERS", "unknown.none"),),
           storage.stream_is_full_while_a_refused_event_is_not_buried),
    Mutant("unrouted-purged", "events are kept until they are routed",
           ((purge, "events_needed_from", _no_events_needed),)),
    Mutant("sent-again-as-built", "what is sent again after a read is rebuilt from what was read",
           ((snapshots, "fenced", _AsBuilt()),),
           states.batch_arrives_after_the_next_write_began),
    Mutant("loads-unbounded", "all shards of a node read a bounded number of snapshots at a time",
           ((LoadSlots, "slot", _unbounded),),
           states.a_thousand_parked_actors_come_back),
    Mutant("needed-falls", "a checkpoint needs no less than the one before it did",
           ((NeededPosition, "raised", _needed_again),)),
    Mutant("stray-without-letter", "a message that belongs to no shard goes when its letter is stored",
           ((strays, "store", _unstored),)),
    Mutant("stray-by-its-subject", "a message that belongs to no shard is deleted by its position",
           ((strays, "delete_known", _deleted_by_subject),)),
]  # fmt: skip
