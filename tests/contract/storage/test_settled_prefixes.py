"""Quotas of what waits: events that are settled and stay for replays do not hide it."""

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.snapshots import Snapshots
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.reading.sampling import StreamPart
from streams.storage import quotas
from streams.storage.eviction import Sample
from streams.storage.quotas import SettledPrefixes, beyond_quota
from streams.storage.settled import SettledPositions
from tests.contract.support.shards import RECEIVER, own
from tests.support.installation import install, publish

SETTLED, WAITING = 600, 100
QUOTA = 400_000
TENANT = RECEIVER.split(".")[0]


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    """Deliveries of one receiver: the first ones are settled, the others wait."""
    names = await install(js, prefix)
    for number in range(SETTLED + WAITING):
        await publish(js, names, RECEIVER, b"x" * (8000 if number >= SETTLED else 1000))
    deliveries = await stream_info(js, names.deliveries)
    claim = await own(js, names, "a")
    created = {names.deliveries: deliveries.created}
    checkpoint = Checkpoint(journal_position=claim.journal_position, floor=SETTLED, created=created)
    assert await Snapshots(js, names, claim).write([], [], claim.journal_position, checkpoint)
    return names


def evicted_positions(below: int) -> range:
    return range(SETTLED + 1, below)


@pytest.mark.parametrize("counted_max", [50, 4096])
async def test_settled_messages_do_not_use_up_the_count(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, counted_max: int
) -> None:
    """Half of what waits is beyond the quota; the samples stand for a tenth less, which counts as certain."""
    monkeypatch.setattr(quotas, "COUNTED_MAX", counted_max)
    monkeypatch.setattr(quotas, "COUNTED_BYTES_MAX", 0)
    monkeypatch.setattr(quotas, "PAGE_MESSAGES", 64)
    deliveries = await stream_info(js, names.deliveries)
    order = await beyond_quota(js, names, deliveries, TENANT, QUOTA, SettledPrefixes(js))
    assert order is not None
    assert 30 <= len(evicted_positions(order.below)) <= 51


async def test_a_count_begins_after_what_is_known_to_be_settled(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count reads some 100 messages, so that the seventh one comes to what waits."""
    monkeypatch.setattr(quotas, "COUNTED_BYTES_MAX", 0)
    monkeypatch.setattr(quotas, "PAGE_MESSAGES", 25)
    monkeypatch.setattr(quotas, "READ_BYTES_MAX", 100_000)
    deliveries, prefixes = await stream_info(js, names.deliveries), SettledPrefixes(js)
    orders = [await beyond_quota(js, names, deliveries, TENANT, QUOTA, prefixes) for _ in range(7)]
    assert orders[:5] == [None] * 5
    assert orders[6] is not None
    assert 0 < len(evicted_positions(orders[6].below)) <= 25
    assert prefixes.end(deliveries, TENANT) == SETTLED + 1


async def test_settled_prefixes_of_another_stream_or_connection_are_forgotten(
    js: JetStream, names: Names
) -> None:
    """The server may have lost the end of the stream, and given its positions to messages that wait."""
    deliveries, prefixes = await stream_info(js, names.deliveries), SettledPrefixes(js)
    prefixes.note(deliveries, TENANT, 300)
    prefixes.note(deliveries, TENANT, 200)
    assert prefixes.end(deliveries, TENANT) == 300
    assert prefixes.end(replace(deliveries, created="1999-12-31T00:00:00Z"), TENANT) == 1
    prefixes.note(deliveries, TENANT, 300)
    js.connection_changes += 1
    assert prefixes.end(deliveries, TENANT) == 1


async def test_a_receiver_that_is_not_looked_up_ends_the_settled_prefix(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of such a receiver may wait, so that later counts must see them again."""
    monkeypatch.setattr(quotas, "RECEIVERS_LOOKED_UP_MAX", 0)
    monkeypatch.setattr(quotas, "samples_of_parts", one_sample)
    deliveries, prefixes = await stream_info(js, names.deliveries), SettledPrefixes(js)
    assert await beyond_quota(js, names, deliveries, TENANT, QUOTA, prefixes) is None
    assert prefixes.end(deliveries, TENANT) == 1


async def one_sample(names: Names, settled: SettledPositions, parts: list[StreamPart]) -> list[Sample]:
    """Samples of one message that waits, for which no receiver is looked up."""
    return [Sample(1, TENANT, names.delivery(0, RECEIVER), 1e9, 0)]
