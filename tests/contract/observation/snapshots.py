"""Receivers as a node left them: a configuration, and a snapshot of the state."""

import msgspec

from actors.machine import facts as f
from actors.machine.state import OpenEvent, State
from streams.installation.topology import Names
from streams.journal.snapshots import Snapshot
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.support.installation import shard


async def write(js: JetStream, names: Names, state: State) -> None:
    """Writes a snapshot, as a node does."""
    data = msgspec.json.encode(Snapshot(as_of=1, state=state))
    answer = await js.publish(names.actor_keys.actor(shard(state.receiver), state.receiver), data)
    assert isinstance(answer, Stored)


async def put(
    js: JetStream, names: Names, state: State, config: bytes = b'{"url":"https://x.example/"}'
) -> None:
    """Stores a configuration and a snapshot of its receiver."""
    await js.publish(names.receiver(state.receiver), config)
    await write(js, names, state)


def waits(receiver: str, since: float, **members: object) -> State:
    """A receiver whose oldest event is open, so long ago that the snapshot tells it."""
    entry = OpenEvent(sequence=1, position=1, id="a", stored_at=since)
    state = State(receiver=receiver, opened=True, parked=True, open=(entry,))
    return msgspec.structs.replace(state, **members)


def failed(receiver: str, at: float) -> f.AttemptFailed:
    """The last fact of a receiver that answers 500."""
    return f.AttemptFailed(receiver=receiver, events=(), at=at, attempt=1, error="HTTP 500")


def disabled(receiver: str, now: float) -> State:
    """A receiver that answered 410 two hours ago, with an event that waits for one."""
    return waits(receiver, now - 3600, disabled="gone", last=failed(receiver, now - 7200))
