"""Settled events of a tenant under many names: they are purged whatever waits for other tenants."""

from itertools import count

import pytest

from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.facts import Burial
from actors.machine.numbering import Frontier
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.snapshots import Snapshots
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage import settled
from streams.storage.eviction import samples_of
from streams.storage.settled import SettledPositions
from streams.storage.settled_purge import purge_settled_of_tenants
from tests.contract.support.shards import SHARD, own
from tests.support.installation import install, publish, shard

EVENTS = 100
LAST_SETTLED = EVENTS - 1
"""The last message stays: by its time, a lost tail is noticed."""


def of_shard(tenant: str, number: int) -> list[str]:
    """Names of receivers of a tenant in the shard."""
    found = list[str]()
    for each in count():
        if len(found) == number:
            return found
        if shard(name := f"{tenant}.r{each}") == SHARD:
            found.append(name)
    raise AssertionError("unreachable")


ACME = of_shard("acme", EVENTS)
UMBRA = of_shard("umbra", 1)[0]
PARKED = State(receiver=UMBRA, parked=True, frontier=Frontier(position=1))


def refused(position: int, receiver: str) -> State:
    """The record of unknown receivers, which owes a dead letter."""
    burial = Burial(position=position, reason="unknown_receiver", receiver=receiver)
    return State(receiver=UNKNOWN_RECEIVERS, burials=(burial,))


async def with_states(js: JetStream, prefix: str, states: list[State]) -> tuple[Names, StreamInfo]:
    """Each event is of another receiver; `umbra` has the second one."""
    names = await install(js, prefix)
    for number, receiver in enumerate(ACME):
        await publish(js, names, UMBRA if number == 1 else receiver)
    deliveries = await stream_info(js, names.deliveries)
    claim = await own(js, names, "a")
    created = {names.deliveries: deliveries.created}
    checkpoint = Checkpoint(journal_position=claim.journal_position, floor=EVENTS, created=created)
    assert await Snapshots(js, names, claim).write(states, [], claim.journal_position, checkpoint)
    return names, deliveries


@pytest.mark.parametrize(
    ("states", "settled_to"),
    [
        ([], LAST_SETTLED),
        ([PARKED], LAST_SETTLED),
        ([State(receiver=ACME[4], frontier=Frontier(position=5))], LAST_SETTLED),
        ([State(receiver=ACME[0], opened=True)], 0),
        ([State(receiver=ACME[40], parked=True)], 40),
        ([State(receiver=ACME[40], parked=True), State(receiver=ACME[30], parked=True)], 30),
        ([refused(21, ACME[20])], 20),
        ([refused(2, UMBRA)], LAST_SETTLED),
        ([State(receiver=UNKNOWN_RECEIVERS, parked=True, frontier=Frontier(position=7))], 7),
    ],
    ids=[
        "no state", "another tenant waits", "idle for long", "nothing settled", "one waits", "two wait",
        "a letter is owed", "a letter of another tenant", "undecided",
    ],
)  # fmt: skip
async def test_events_that_no_receiver_of_the_tenant_needs_are_settled(
    js: JetStream, prefix: str, states: list[State], settled_to: int
) -> None:
    names, deliveries = await with_states(js, prefix, states)
    positions = SettledPositions(js, names, deliveries)
    assert await positions.up_to_for_all_of(SHARD, "acme") == settled_to


async def test_nothing_is_settled_of_a_tenant_with_too_many_receivers(
    js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, deliveries = await with_states(js, prefix, [State(receiver=each) for each in ACME[:3]])
    monkeypatch.setattr(settled, "RECEIVERS_OF_TENANT_MAX", 2)
    assert await SettledPositions(js, names, deliveries).up_to_for_all_of(SHARD, "acme") == 0


async def test_all_names_of_a_tenant_are_purged_at_once_and_none_of_another(
    js: JetStream, prefix: str
) -> None:
    """Each sample is of another name: purged name by name, 64 messages would go."""
    names, deliveries = await with_states(js, prefix, [PARKED])
    sampled = await samples_of(js, names, deliveries)
    await purge_settled_of_tenants(js, names, deliveries, sampled, 1e9)
    left = await js.read(names.deliveries, names.deliveries_of(SHARD), 1)
    assert [each.position for each in left.messages] == [2, EVENTS]


async def test_no_more_tenants_are_purged_than_make_enough_room(
    js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, deliveries = await with_states(js, prefix, [])
    sampled, purged = await samples_of(js, names, deliveries), list[str]()

    async def note(stream: str, subject: str, last: int) -> int:
        purged.append(subject)
        return 0

    monkeypatch.setattr(js, "purge_subject", note)
    await purge_settled_of_tenants(js, names, deliveries, sampled, 0.0)
    assert purged == []
    await purge_settled_of_tenants(js, names, deliveries, sampled, 1.0)
    assert purged == [names.delivery(SHARD, "acme.*")]


async def test_a_message_that_a_deposed_leader_does_not_know_may_wait(
    js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, deliveries = await with_states(js, prefix, [State(receiver=ACME[40])])
    ask = js.next_message

    async def know_nothing(stream: str, subject: str, sequence: int) -> StoredMessage | None:
        return None if subject == names.delivery(SHARD, ACME[40]) else await ask(stream, subject, sequence)

    monkeypatch.setattr(js, "next_message", know_nothing)
    with pytest.raises(Unavailable):
        await SettledPositions(js, names, deliveries).up_to_for_all_of(SHARD, "acme")
