"""Events that are recorded as routed: what a purge by subject may take, and what counts against a quota."""

import pytest
from msgspec import Struct

from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.envelope import encode_flush
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.marks import Mark, Marks
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage.quotas import unrouted_beyond_quota
from streams.storage.settled_purge import purge_settled
from streams.storage.unrouted import RoutedPositions, samples_of_events
from tests.support.installation import SHARDS

TENANT = "acme"
PARTITION = partition_of(TENANT, SHARDS)
OTHER = next(name for name in map("t{}".format, range(1000)) if partition_of(name, SHARDS) == PARTITION)
EVENTS = 10


class Recorded(Struct, kw_only=True):
    """The record of the partition: how far it is routed, and the mark of its last event."""

    js: JetStream
    names: Names

    async def is_routed(self, routed: int, mark_at: float | None = None, **parked: int) -> None:
        last = await self.js.message(self.names.events, EVENTS)
        assert last is not None
        mark = Mark(position=EVENTS, stored_at=last.stored_at if mark_at is None else mark_at)
        data = encode_flush(
            node="a", epoch=1, flush=1, floor=0,
            routing=RoutingProgress(routed=routed, parked_tenants=parked),
            at=0.0, unclean=None, marks=Marks(events=mark), facts=[],
        )  # fmt: skip
        assert isinstance(await self.js.publish(self.names.journal_of(PARTITION), data), Stored)

    async def up_to(self, tenant: str) -> int:
        return await RoutedPositions(self.js, self.names).up_to(PARTITION, tenant)


@pytest.fixture
async def recorded(js: JetStream, names: Names) -> Recorded:
    """Events of two tenants of one partition, in turn."""
    for number in range(EVENTS):
        subject = names.publish_event((TENANT, OTHER)[number % 2], "order.created")
        assert isinstance(await js.publish(subject, b"x" * 1000), Stored)
    return Recorded(js=js, names=names)


async def left(js: JetStream, names: Names, tenant: str) -> list[int]:
    page = await js.read(names.events, names.event(PARTITION, tenant, ">"), 1)
    return [each.position for each in page.messages]


async def test_a_tenant_is_routed_up_to_its_own_position(recorded: Recorded) -> None:
    assert await recorded.up_to(TENANT) == 0
    await recorded.is_routed(8, acme=4)
    assert [await recorded.up_to(tenant) for tenant in (TENANT, OTHER)] == [3, 8]


async def test_the_message_of_the_mark_counts_as_unrouted(recorded: Recorded) -> None:
    """By its time, a lost tail is noticed."""
    await recorded.is_routed(EVENTS)
    assert await recorded.up_to(OTHER) == EVENTS - 1


async def test_nothing_counts_as_routed_in_a_stream_that_lost_its_tail(recorded: Recorded) -> None:
    await recorded.is_routed(EVENTS, mark_at=1.0)
    assert await recorded.up_to(OTHER) == 0


async def test_events_that_follow_one_of_a_parked_tenant_are_purged_by_subject(
    js: JetStream, names: Names, recorded: Recorded
) -> None:
    await recorded.is_routed(EVENTS, acme=3)
    sampled = await samples_of_events(js, names, await stream_info(js, names.events))
    await purge_settled(js, names, sampled, 1e9)
    assert await left(js, names, TENANT) == [3, 5, 7, 9]
    assert await left(js, names, OTHER) == [EVENTS]


async def test_a_stray_is_not_a_sample(js: JetStream, names: Names, recorded: Recorded) -> None:
    """A stray is in no partition, and no router gives it up; others must not be evicted for it."""
    assert isinstance(await js.publish(names.publish_event(TENANT, "order.*"), b"x" * 1000), Stored)
    sampled = await samples_of_events(js, names, await stream_info(js, names.events))
    assert sampled.stray_tenants == {TENANT}
    assert sampled.stray_bytes >= 1000
    assert max(each.position for each in sampled.samples) == EVENTS
    assert {each.subject for each in sampled.samples} == {
        names.event(PARTITION, tenant, ">") for tenant in (TENANT, OTHER)
    }


async def test_routed_events_do_not_count_against_a_quota(
    js: JetStream, names: Names, recorded: Recorded
) -> None:
    info = await stream_info(js, names.events)
    each = info.bytes // EVENTS

    async def below(kept: int) -> int:
        """The position below which events are evicted if the quota has room for that many."""
        order = await unrouted_beyond_quota(js, names, info, PARTITION, TENANT, kept * each + each // 2)
        return order.below if order else 0

    assert [await below(kept) for kept in (5, 3, 1)] == [0, 4, 8]
    await recorded.is_routed(EVENTS, acme=4)
    assert [await below(kept) for kept in (4, 3, 1)] == [0, 0, 8]
