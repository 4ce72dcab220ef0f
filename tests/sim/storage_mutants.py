"""The rules by which storage is freed, each taken out by itself; see `tests.sim.mutants`."""

from collections.abc import Iterable

from msgspec.structs import replace

from actors.host import Host
from actors.needs import Needed, Needs
from actors.state import State
from angarium import upkeep
from streams import purge
from streams.answers import StreamInfo
from streams.checkpoint import Checkpoint, read_checkpoint
from streams.jetstream import JetStream
from streams.purge import Held, deliveries_held, eviction_end
from streams.topology import Names
from tests.sim.mutant import Mutant
from tests.sim.scenarios import storage

_FAR = 1 << 60

_read_checkpoint = read_checkpoint


async def _checkpoint_to_the_end(js: JetStream, names: Names, shard: int) -> Checkpoint | None:
    found = await _read_checkpoint(js, names, shard)
    return found and replace(found, sequence=_FAR)


async def _last_is_far(js: JetStream, names: Names, shards: int, info: StreamInfo) -> Held:
    checkpoints = [await _read_checkpoint(js, names, shard) for shard in range(shards)]
    return Held(min(each.sequence + 1 if each else 0 for each in checkpoints))


_lowest = Needs.lowest


def _needed_but_parked(needs: Needs, floor: int, states: Iterable[State]) -> Needed:
    return _lowest(needs, floor, [replace(state, parked=False) for state in states])


def _needed_but_burials(needs: Needs, floor: int, states: Iterable[State]) -> Needed:
    return _lowest(needs, floor, [replace(state, burials=()) for state in states])


def _needed_live(host: Host) -> Needed:
    return _lowest(host.needs, host.bindings.received, [shell.state for shell in host.shells.values()])


async def _held_up_to_eviction(
    js: JetStream, names: Names, shards: int, deliveries: StreamInfo, settled_end: int = 0
) -> Held:
    held = await deliveries_held(js, names, shards, deliveries, settled_end)
    return replace(held, position=max(held.position, eviction_end(deliveries)))


async def _no_events_held(js: JetStream, names: Names, partitions: int, settled_end: int = 0) -> Held:
    return Held(_FAR)


def _never_full(deliveries: StreamInfo) -> int:
    return 0


STORAGE_MUTANTS = [
    Mutant("purged-beyond-the-checkpoint", "the journal keeps what lies behind each checkpoint",
           ((purge, "read_checkpoint", _checkpoint_to_the_end),)),
    Mutant("purged-to-the-checkpoint", "the journal keeps the last message of each shard",
           ((purge, "journal_held", _last_is_far),)),
    Mutant("parked-not-needed", "what parked actors wait for is needed",
           ((Needs, "lowest", _needed_but_parked),)),
    Mutant("burials-not-needed", "what is owed a burial is needed",
           ((Needs, "lowest", _needed_but_burials),)),
    Mutant("needed-by-memory", "what is not settled by the confirmed journal is needed",
           ((Host, "needed", _needed_live),)),
    Mutant("evicted-by-the-purge", "what gives way to others is recorded before it is purged",
           ((purge, "deliveries_held", _held_up_to_eviction),)),
    Mutant("nobody-evicted", "producers are refused only while nothing can be freed",
           ((upkeep, "eviction_end", _never_full),),
           storage.full_of_what_nobody_takes),
    Mutant("unrouted-purged", "events are kept until they are routed",
           ((purge, "events_held", _no_events_held),)),
]  # fmt: skip
