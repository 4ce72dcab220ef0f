"""Samples of a stream with gaps: they stand for what is stored."""

from collections import Counter

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.reading.sampling import StreamPart, sample_stream
from tests.support.installation import install, publish, shard

PARTS_MAX = 64
CREATED = "2026-11-27T08:00:00.123456789Z"
"""When the stream was made, which decides where it is cut: here always in the same places."""


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    return await install(js, prefix)


async def sampled(js: JetStream, names: Names) -> list[StreamPart]:
    info = await stream_info(js, names.deliveries)
    return await sample_stream(js, replace(info, created=CREATED), PARTS_MAX)


def counted(parts: list[StreamPart]) -> Counter[str]:
    found = Counter[str]()
    for each in parts:
        found[each.message.subject.rpartition(".")[2]] += each.count
    return found


async def test_an_empty_stream_has_no_samples(js: JetStream, names: Names) -> None:
    assert await sampled(js, names) == []


async def test_a_small_stream_is_sampled_whole(js: JetStream, names: Names) -> None:
    for _ in range(20):
        await publish(js, names, "acme.billing")
    await js.delete(names.deliveries, 7)
    parts = await sampled(js, names)
    assert [each.message.position for each in parts] == [*range(1, 7), *range(8, 21)]
    assert {each.count for each in parts} == {1}


async def test_samples_stand_for_all_messages_in_fair_shares_over_gaps(js: JetStream, names: Names) -> None:
    """Two receivers alternate, and a third one has a third of the stream's end only, after a long gap."""
    for number in range(400):
        await publish(js, names, ("acme.even", "acme.odd")[number % 2])
    for _ in range(1500):
        await publish(js, names, "acme.gone")
    for _ in range(200):
        await publish(js, names, "acme.late")
    await js.purge_subject(names.deliveries, names.delivery(shard("acme.gone"), "acme.gone"))
    parts = await sampled(js, names)
    found = counted(parts)
    assert len(parts) == PARTS_MAX
    assert found.total() == 600
    assert all(150 <= found[each] <= 250 for each in ("even", "odd", "late")), found


async def test_a_node_that_sees_a_longer_stream_looks_at_nearly_the_same_messages(
    js: JetStream, names: Names
) -> None:
    for _ in range(300):
        await publish(js, names, "acme.billing")
    before = {each.message.position for each in await sampled(js, names)}
    await publish(js, names, "acme.billing")
    after = {each.message.position for each in await sampled(js, names)}
    assert len(before & after) > PARTS_MAX - 8


async def test_the_sizes_of_the_parts_add_up_to_the_stream(js: JetStream, names: Names) -> None:
    for number in range(120):
        await publish(
            js, names, f"acme.r{number % 3}", b"x" * (50 * number), {"Angarium-Type": "order.created"}
        )
    size = sum(each.size for each in await sampled(js, names))
    assert size == pytest.approx((await stream_info(js, names.deliveries)).bytes, rel=0.1)


async def test_a_tenant_is_sampled_alone(js: JetStream, names: Names) -> None:
    for number in range(60):
        await publish(js, names, ("acme.few", "umbra.many", "umbra.others")[min(number % 10, 2)])
    stream = await stream_info(js, names.deliveries)
    parts = await sample_stream(js, stream, PARTS_MAX, names.deliveries_to_all_of("acme"))
    assert [each.message.subject.rpartition(".")[2] for each in parts] == ["few"] * 6


async def test_the_cuts_depend_on_when_the_stream_was_made(js: JetStream, names: Names) -> None:
    """A producer that knew the cuts could have small messages there, and let others seem to hold the most."""
    for _ in range(300):
        await publish(js, names, "acme.billing")
    info = await stream_info(js, names.deliveries)
    cuts = [
        {each.message.position for each in await sample_stream(js, replace(info, created=created), PARTS_MAX)}
        for created in (CREATED, CREATED, CREATED.replace("789Z", "788Z"))
    ]
    assert cuts[0] == cuts[1] != cuts[2]
