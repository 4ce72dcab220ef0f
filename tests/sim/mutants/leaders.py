"""Rules about leaders that may be deposed, each taken out by itself."""

from typing import Any

from streams.dead_letters import bury
from streams.installation.topology import Names
from streams.journal import claim, recovery, snapshots
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.reading import backlog
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios.recovery import leaders


async def _deliveries_as_told(
    js: JetStream, names: Names, attempt: claim.ClaimAttempt, clean: bool
) -> StreamInfo:
    return await stream_info(js, names.deliveries)


async def _info_as_told(js: JetStream, stream: str, since: float) -> StreamInfo:
    return await stream_info(js, stream)


async def _newest_as_told(*_: Any) -> bool:
    return True


async def _none_as_told(*_: Any) -> None:
    """Looks at nothing."""


async def _gone_as_told(js: JetStream, stream: str, position: int) -> StoredMessage | None:
    return await js.message(stream, position)


LEADER_MUTANTS = [
    Mutant("position-as-told", "the end at an unclean claim is told by a leader that a majority follows",
           ((claim, "deliveries_at_claim", _deliveries_as_told),),
           leaders.deposed_leader_returns_a_position),
    Mutant("snapshot-as-told", "a snapshot is the newest if something could be stored under that condition",
           ((snapshots, "is_last", _newest_as_told),),
           leaders.deposed_leader_returns_snapshots),
    Mutant("none-as-told", "there is nothing where a replica that reaches far enough has nothing",
           ((backlog, "ensure_no_message", _none_as_told),),
           leaders.deposed_leader_returns_a_backlog),
    Mutant("gone-as-told", "a message is gone where something behind it is not",
           ((bury, "message_at", _gone_as_told), (backlog, "message_at", _gone_as_told))),
    Mutant("end-as-told", "a stream is shorter than what is known by the word of a leader that leads",
           ((recovery, "info_since", _info_as_told),),
           leaders.deposed_leader_returns_the_end),
]  # fmt: skip
