"""Events of one receiver that count as settled, and so may be sent again."""

import msgspec

from actors.machine.numbering import Frontier
from actors.machine.state import OpenEvent, State
from streams.installation.topology import Names
from streams.journal.snapshots import Snapshot
from streams.nats.jetstream import JetStream
from tests.support.installation import shard

ONE = "acme.billing"


async def end(js: JetStream, names: Names) -> int:
    """The last position of the deliveries."""
    info = await js.stream_info(names.deliveries)
    assert info is not None
    return info.last


async def settled(js: JetStream, names: Names, position: int, *still_open: int) -> None:
    """Writes a snapshot: events up to the position have numbers, and these are not settled."""
    waiting = tuple(
        OpenEvent(sequence=each, position=each, id=f"e{each}", stored_at=0.0) for each in still_open
    )
    frontier = Frontier(position=position, sequence=position)
    state = State(receiver=ONE, opened=True, frontier=frontier, open=waiting)
    snapshot = Snapshot(as_of=1, state=state)
    await js.publish(names.actor_keys.actor(shard(ONE), ONE), msgspec.json.encode(snapshot))
