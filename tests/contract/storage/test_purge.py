"""Purging the journal: what any shard may still need stays, from any node and however late."""

from collections.abc import AsyncIterator

import pytest

from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import release
from streams.journal.envelope import encode_flush
from streams.journal.journal import Journal
from streams.journal.recovery import Recovery, recover
from streams.journal.routing_progress import RoutingProgress
from streams.journal.snapshots import Snapshots
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage import purge
from streams.storage.purge import (
    ANY_POSITION,
    NeededFrom,
    deliveries_needed_from,
    is_short,
    purge_deliveries,
    purge_events,
    purge_journal,
    surplus,
    surplus_end,
)
from tests.contract.support.shards import Clocks, Listening, blank, own, repeated
from tests.support.installation import SHARDS, install, publish
from tests.support.installation import shard as shard_of
from tests.support.waiting import until


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setattr(purge, "JOURNAL_SHARE", 0.0)
    return await install(js, prefix)


class Shard:
    """An ownership that records, and writes checkpoints when it is told to."""

    def __init__(self, js: JetStream, names: Names, number: int) -> None:
        self.js, self.names, self.number = js, names, number
        self.listening = Listening()

    async def begin(self) -> None:
        self.claim = await own(self.js, self.names, "a", shard=self.number)
        recovery = await recover(self.js, self.names, self.claim, "a")
        assert isinstance(recovery, Recovery)
        self.created = recovery.created
        self.journal = Journal(
            self.js, self.names, self.claim, "a", self.listening, time=Clocks(), retention_s=3600.0
        )
        self.journal.start()

    async def record(self, count: int = 1) -> int:
        for _ in range(count):
            self.journal.add(repeated(1), blank(), urgent=True)
            await self.listening.has(self.journal.index)
        return self.journal.position

    async def flush_soon(self) -> None:
        """A flush with nothing in it."""
        flushes = len(self.listening.positions)
        self.journal.flush_soon()
        await until(lambda: len(self.listening.positions) > flushes)
        assert not self.listening.entries

    async def checkpoint(self, needed: int = 1, holder: str = "") -> int:
        sequence = self.journal.position
        checkpoint = Checkpoint(journal_position=sequence, needed=needed, holder=holder, created=self.created)
        assert await Snapshots(self.js, self.names, self.claim).write([], [], sequence, checkpoint)
        return sequence


@pytest.fixture
async def shards(js: JetStream, names: Names) -> AsyncIterator[list[Shard]]:
    shards = [Shard(js, names, number) for number in range(SHARDS)]
    for shard in shards:
        await shard.begin()
    yield shards
    for shard in shards:
        await shard.journal.stop()


async def first_left(js: JetStream, names: Names) -> int:
    return (await stream_info(js, names.journal)).first


class TestPurgeJournal:
    async def test_the_journal_keeps_what_follows_each_checkpoint(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        for shard in shards:
            await shard.record()
            await shard.checkpoint()
        behind = [await shard.record(2) for shard in shards]
        assert await purge_journal(js, names, SHARDS) == NeededFrom(
            shards[0].claim.journal_position + SHARDS + 1, 0
        )
        for shard in shards[1:]:
            await shard.checkpoint()
        held = shards[0].claim.journal_position + SHARDS + 1
        assert await first_left(js, names) == held
        await shards[0].checkpoint()
        assert await purge_journal(js, names, SHARDS) == NeededFrom(behind[0], 0)
        assert await first_left(js, names) == behind[0]

    async def test_the_journal_keeps_the_last_message_of_each_shard(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        """A later claim finds the release, and an owner whose lease lapsed finds no other claim."""
        for shard in shards:
            await shard.checkpoint()
        last = await shards[3].record(5)
        await shards[3].checkpoint()
        assert await purge_journal(js, names, SHARDS) == NeededFrom(shards[0].claim.journal_position, 0)
        assert await first_left(js, names) == shards[0].claim.journal_position
        for shard in shards[:3]:
            await shard.flush_soon()
            await shard.checkpoint()
        assert await purge_journal(js, names, SHARDS) == NeededFrom(last, 3)
        assert await first_left(js, names) == last

        await shards[3].journal.suspend()
        resumed = await own(js, names, "a", shard=3, resumes=shards[3].claim.epoch)
        assert resumed.clean
        assert shards[3].journal.reclaim(resumed)
        await shards[2].journal.stop()
        assert await release(js, names, shards[2].claim, "a")
        assert (await own(js, names, "b", shard=2)).clean

    async def test_the_journal_stays_whole_while_a_shard_has_no_checkpoint(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        for shard in shards[1:]:
            await shard.record(2)
            await shard.checkpoint()
        assert await purge_journal(js, names, SHARDS) == NeededFrom(0, 0)
        assert await first_left(js, names) == 1

    async def test_the_journal_stays_whole_if_a_checkpoint_names_another_journal(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        for shard in shards:
            await shard.record(2)
            await shard.checkpoint()
        shards[1].created = shards[1].created | {names.journal: "1999-12-31T00:00:00Z"}
        await shards[1].checkpoint()
        assert await purge_journal(js, names, SHARDS) == NeededFrom(0, 1)
        assert await first_left(js, names) == 1

    async def test_the_journal_is_kept_as_long_as_there_is_room(
        self, js: JetStream, names: Names, shards: list[Shard], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(purge, "JOURNAL_SHARE", 0.5)
        for shard in shards:
            await shard.record(2)
            await shard.checkpoint()
        assert await purge_journal(js, names, SHARDS) is None
        assert await first_left(js, names) == 1

    async def test_a_claimer_reads_everything_that_it_needs_while_others_purge(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        """Between its claim and the end of its reading no other node can move its checkpoint."""
        for shard in shards:
            await shard.record()
            await shard.checkpoint()
        await shards[1].record(3)
        claimed = await own(js, names, "b", shard=1)
        for shard in (shards[0], shards[2], shards[3]):
            await shard.record(9)
            await shard.checkpoint()
        await purge_journal(js, names, SHARDS)
        recovery = await recover(js, names, claimed, "b")
        assert isinstance(recovery, Recovery)
        assert recovery.states["acme.billing"].counters.duplicates == 3

    async def test_a_purge_of_the_journal_that_comes_late_takes_no_more(
        self, js: JetStream, names: Names, shards: list[Shard]
    ) -> None:
        for shard in shards:
            await shard.checkpoint()
        early = await purge_journal(js, names, SHARDS)
        assert early is not None
        for shard in shards:
            await shard.record()
            await shard.checkpoint()
        later = await purge_journal(js, names, SHARDS)
        assert later is not None
        assert later.position > early.position
        assert await js.purge(names.journal, early.position) == 0
        assert await first_left(js, names) == later.position


EVER = 4e9
"""An instant that nothing was stored since: nothing is kept for its age."""


class TestPurgeDeliveries:
    """Two receivers of each shard have an event each. Which shard needs what, the checkpoints say."""

    @pytest.fixture
    async def positions(self, js: JetStream, names: Names, shards: list[Shard]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {number: [] for number in range(SHARDS)}
        number = 0
        while any(len(each) < 2 for each in found.values()):
            receiver, number = f"acme.r{number}", number + 1
            if len(found[shard_of(receiver)]) < 2:
                found[shard_of(receiver)].append(await publish(js, names, receiver))
        return found

    async def purge(
        self,
        js: JetStream,
        names: Names,
        since: float = EVER,
        certain_end: int = 0,
    ) -> int:
        info = await stream_info(js, names.deliveries)
        await purge_deliveries(js, names, SHARDS, info, since, certain_end)
        return (await stream_info(js, names.deliveries)).first

    async def test_the_deliveries_keep_what_a_shard_needs(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]]
    ) -> None:
        for shard in shards:
            await shard.checkpoint(positions[shard.number][-1], f"acme.of{shard.number}")
        needed_from = await deliveries_needed_from(js, names, SHARDS, await stream_info(js, names.deliveries))
        assert needed_from.position == min(each[-1] for each in positions.values())
        assert needed_from.receiver == f"acme.of{needed_from.shard}"
        assert await self.purge(js, names) == needed_from.position

    @pytest.mark.parametrize("receiver", ["acme.*", "acme.>", "*.billing"])
    async def test_deliveries_that_belong_to_no_shard_are_not_purged(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]], receiver: str
    ) -> None:
        """No checkpoint names them, and the dead letter of one may not be stored yet."""
        stray, last = await publish(js, names, receiver), await publish(js, names, "acme.r0")
        for shard in shards:
            await shard.checkpoint(last)
        assert await self.purge(js, names, certain_end=last) == stray
        assert await js.delete(names.deliveries, stray)
        assert await self.purge(js, names, certain_end=last) == last

    async def test_a_stray_that_comes_after_the_leader_listed_them_is_not_purged(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """The list may also be that of a deposed leader: it is complete only up to the end that it knows."""
        listed = await js.subjects_and_info(names.deliveries, names.stray_deliveries)
        stray, last = await publish(js, names, "acme.*"), await publish(js, names, "acme.r0")
        for shard in shards:
            await shard.checkpoint(last)

        async def early_list(*_: str) -> tuple[list[str], StreamInfo]:
            return listed

        monkeypatch.setattr(js, "subjects_and_info", early_list)
        assert await self.purge(js, names, certain_end=last) == stray

    async def test_messages_for_others_in_between_are_not_needed(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]]
    ) -> None:
        """A quiet shard needs its first message above the floor, even after many messages of others."""
        for shard in shards:
            await shard.checkpoint(positions[shard.number][0] + 1)
        assert await self.purge(js, names) == min(each[1] for each in positions.values())

    async def test_if_no_event_waits_all_deliveries_up_to_an_earlier_end_are_purged(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]]
    ) -> None:
        for shard in shards:
            await shard.checkpoint(positions[shard.number][-1] + 1)
        first = min(each[-1] for each in positions.values()) + 1
        assert await self.purge(js, names) == first
        assert await self.purge(js, names, certain_end=first + 1) == first + 2

    async def test_the_deliveries_stay_whole_while_a_shard_has_no_checkpoint(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]]
    ) -> None:
        for shard in shards[1:]:
            await shard.checkpoint(100)
        assert await self.purge(js, names, certain_end=100) == 1

    async def test_the_deliveries_are_kept_for_replays_while_there_is_room(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]]
    ) -> None:
        for shard in shards:
            await shard.checkpoint(100)
        assert await self.purge(js, names, since=0.0, certain_end=100) == 1
        third = await js.message(names.deliveries, 3)
        assert third is not None
        assert await self.purge(js, names, since=third.stored_at, certain_end=100) == 3

    async def test_the_window_for_replays_shrinks_if_room_is_short(
        self, js: JetStream, names: Names, shards: list[Shard], positions: dict[int, list[int]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        for shard in shards:
            await shard.checkpoint(100)
        info = await stream_info(js, names.deliveries)
        monkeypatch.setattr(purge, "WINDOW_SHARE", info.bytes / info.max_bytes / 2)
        assert await self.purge(js, names, since=0.0, certain_end=100) == 1 + info.last // 2


class TestPurgeEvents:
    async def test_the_events_keep_what_is_not_routed(self, js: JetStream, names: Names) -> None:
        tenants = ["a", "b", "c", "d"]
        for tenant in tenants * 2:
            await js.publish(names.publish_event(tenant, "x"), b"{}")

        async def purge(certain_end: int, kept_from: int = ANY_POSITION) -> int:
            events = await stream_info(js, names.events)
            await purge_events(js, names, SHARDS, events, EVER, certain_end, kept_from)
            return (await stream_info(js, names.events)).first

        assert await purge(100) == 1
        for tenant in tenants:
            await self.route(js, names, partition_of(tenant, SHARDS))
        await self.route(js, names, partition_of("c", SHARDS), parked={"c": 3})
        assert await purge(100) == 3
        await self.route(js, names, partition_of("c", SHARDS))
        assert await purge(0, kept_from=5) == 5
        assert await purge(0) == 6
        assert await purge(8) == 9

    async def route(
        self, js: JetStream, names: Names, partition: int, parked: dict[str, int] | None = None
    ) -> None:
        """Record that everything there is of the partition is routed."""
        last = await js.last_message(names.events, names.events_of(partition))
        data = encode_flush(
            node="a", epoch=1, flush=1, floor=0,
            routing=RoutingProgress(routed=last.position if last else 0, parked_tenants=parked or {}),
            at=0.0, unclean=None, facts=[],
        )  # fmt: skip
        await js.publish(names.journal_of(partition), data)


async def test_a_surplus_ends_where_about_enough_lies_behind_it(js: JetStream, names: Names) -> None:
    for _ in range(10):
        await js.publish(names.publish_to("acme.billing"), b"x" * 1000)
    info = await stream_info(js, names.deliveries)
    assert surplus_end(info, info.bytes) == 0
    assert surplus_end(info, 0.0) == 11
    assert surplus_end(info, info.bytes / 2) == 6
    unlimited = await js.stream_update(info.config | {"max_bytes": -1})
    assert surplus_end(unlimited, 0.0) == 0


async def test_eviction_begins_where_a_message_might_not_fit(js: JetStream, names: Names) -> None:
    """Eviction begins only after everything unneeded is purged."""
    for _ in range(10):
        await js.publish(names.publish_to("acme.billing"), b"x" * 1000)
    info = await stream_info(js, names.deliveries)
    for max_bytes, short, over in (
        (400 * info.bytes, False, 0.0), (2 * info.bytes, True, 0.0), (info.bytes * 3 // 2 + 1, True, 0.0),
        (info.bytes * 6 // 5, True, 0.6), (-1, False, 0.0),
    ):  # fmt: skip
        room = await js.stream_update(info.config | {"max_bytes": max_bytes})
        assert (is_short(room), round(surplus(room) / info.bytes, 2)) == (short, over)
