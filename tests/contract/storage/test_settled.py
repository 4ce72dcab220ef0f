"""Messages that may be purged by subject: those that no record of their shard needs any more."""

import pytest
from msgspec.structs import replace

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.facts import Burial
from actors.machine.numbering import Frontier
from actors.machine.state import State
from streams.journal.checkpoint import Checkpoint
from streams.journal.snapshots import Snapshots
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage.eviction import samples_of
from tests.contract.support.shards import RECEIVER, SHARD, own
from tests.support.installation import install, publish, shard

EVENTS = 10
LAST_SETTLED = EVENTS - 1
"""The last message stays: by its time, a lost tail is noticed."""
DONE = State(receiver=RECEIVER, frontier=Frontier(position=EVENTS))
REFUSED = Burial(position=4, reason="unknown_receiver", receiver=RECEIVER)
OF_ANOTHER = Burial(position=2, reason="unknown_receiver", receiver="acme.other")


@pytest.mark.parametrize(
    ("states", "settled_to"),
    [
        ([], LAST_SETTLED),
        ([DONE], LAST_SETTLED),
        ([replace(DONE, parked=True, frontier=Frontier(position=6))], 6),
        ([State(receiver=UNKNOWN_RECEIVERS, burials=(REFUSED,))], 3),
        ([DONE, State(receiver=UNKNOWN_RECEIVERS, burials=(REFUSED,))], 3),
        ([DONE, State(receiver=UNKNOWN_RECEIVERS, burials=(OF_ANOTHER,))], LAST_SETTLED),
        ([DONE, State(receiver=UNKNOWN_RECEIVERS, parked=True)], 0),
    ],
    ids=[
        "no state",
        "all settled",
        "parked",
        "to be refused",
        "refused before it was put",
        "another is refused",
        "undecided",
    ],
)  # fmt: skip
async def test_a_message_is_settled_only_if_no_record_of_its_shard_needs_it(
    js: JetStream, prefix: str, states: list[State], settled_to: int
) -> None:
    """An event that came while its receiver was unknown may wait in the record of unknown receivers."""
    names = await install(js, prefix)
    assert shard(RECEIVER) == SHARD
    for _ in range(EVENTS):
        await publish(js, names, RECEIVER)
    deliveries = await stream_info(js, names.deliveries)
    claim = await own(js, names, "a")
    created = {names.deliveries: deliveries.created}
    checkpoint = Checkpoint(sequence=claim.sequence, floor=EVENTS, created=created)
    assert await Snapshots(js, names, claim).write(states, [], claim.sequence, checkpoint)
    samples = await samples_of(js, names, deliveries)
    assert {each.settled_to for each in samples} == {settled_to}
