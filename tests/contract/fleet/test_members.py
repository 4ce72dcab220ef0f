"""Membership: which nodes are seen, which count as dead, and what a node does that was away itself.

Time for silence and leases is turned by hand; the members' own rounds are made short.
"""

import asyncio
import math
from collections.abc import Sequence

import msgspec
import pytest

from streams.clock import SystemTime
from streams.fleet.members import READ_PAUSE_MIN_S, Member, Members
from streams.fleet.process_runs import ProcessRuns
from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from tests.contract.fleet.bucket_reads import DEAD_S, TTL_S, BucketReads, Join, show
from tests.contract.support.faults import FaultyJetStream, after, request_lost
from tests.contract.support.servers import Server
from tests.contract.support.shards import Clocks
from tests.support.waiting import until

READS_PER_ROUND_MAX = 4
"""Reads between two heartbeats of a node that is as slow; one that does not wait makes about twenty."""


@pytest.fixture
def slow_rounds(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that take twenty times the shortest pause between two reads."""
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / (20 * READ_PAUSE_MIN_S))


class TestHeartbeats:
    async def test_a_node_shows_itself_again_and_again(
        self, js: JetStream, names: Names, clocks: Clocks, join: Join
    ) -> None:
        members = await join(js, "a")
        assert members.lease.is_valid()
        first = await js.last_message(names.nodes, names.node("a"))
        assert first is not None
        assert first.headers["Nats-TTL"] == f"{math.ceil(TTL_S)}s"
        member = msgspec.json.decode(first.data, type=Member)
        assert (member.node, member.version, member.started_at) == ("a", "1.2.3", clocks.now)
        await until(lambda: members.heartbeat >= 3)

    async def test_a_start_waits_for_nats(self, names: Names, faulty: FaultyJetStream, join: Join) -> None:
        faulty.faults[names.node("a")] += [request_lost, request_lost]
        assert (await join(faulty, "a")).lease.is_valid()

    async def test_each_sees_the_others_come_and_go(self, js: JetStream, server: Server, join: Join) -> None:
        changes: list[tuple[str, ...]] = []
        a = await join(js, "a")
        a.on_change(lambda: changes.append(a.live))
        assert a.live == ("a",)
        b = await join(js, "b")
        assert b.live == ("a", "b")
        await until(lambda: a.live == ("a", "b"))
        assert sorted(a.wanted_shards(64) + b.wanted_shards(64)) == list(range(64))
        await b.leave()
        await until(lambda: a.live == ("a",))
        assert changes == [("a", "b"), ("a",)]
        assert a.wanted_shards(64) == list(range(64))

    async def test_a_dead_node_is_noticed_as_soon_as_possible(
        self, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Regular reads are a minute apart here, so this one is extra."""
        monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", 1.0 / 60)
        await show(js, names, "b")
        a = Members(js, names, "a", SystemTime(), ttl_s=1.0, version="1.2.3")
        await a.start()
        assert a.live == ("a", "b")
        await until(lambda: a.live == ("a",))
        await a.leave()

    async def test_a_node_that_is_overdue_during_a_read_is_read_again_soon(
        self, counted: BucketReads, names: Names, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Regular reads are a minute apart. The time at which this read began is too early to judge."""
        monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / 60)
        await show(counted, names, "b")
        a = Members(counted, names, "a", clocks, ttl_s=TTL_S, version="1.2.3")
        await a.start()
        last_of = counted.last_of

        async def takes_long(stream: str, subjects: Sequence[str]) -> Page:
            page = await last_of(stream, subjects)
            clocks.turn(DEAD_S - a_moment_before)
            return page

        a_moment_before = 0.01
        clocks.turn(a_moment_before)
        monkeypatch.setattr(counted, "last_of", takes_long)
        reads = counted.reads
        a.connection_changed(False)
        await show(counted, names, "c")
        await until(lambda: counted.reads > reads)
        monkeypatch.setattr(counted, "last_of", last_of)
        await until(lambda: "b" not in a.live)
        await a.leave()

    async def test_an_unreadable_bucket_is_not_read_more_often(
        self, js: JetStream, counted: BucketReads, names: Names, clocks: Clocks, join: Join, slow_rounds: None
    ) -> None:
        """Although a node counts as dead by now if it showed no life; it cannot be known."""
        await show(js, names, "b")
        other = await join(js, "c")
        await join(counted, "a")
        clocks.turn(DEAD_S)
        counted.blind = True
        await until(lambda: counted.asked_blind > 0)
        asked, heartbeat = counted.asked_blind, other.heartbeat
        await until(lambda: other.heartbeat >= heartbeat + 3)
        assert counted.asked_blind - asked <= 3 * READS_PER_ROUND_MAX
        counted.blind = False

    async def test_others_are_not_looked_at_more_often_while_our_own_heartbeats_are_not_stored(
        self, js: JetStream, counted: BucketReads, names: Names, clocks: Clocks, join: Join, slow_rounds: None
    ) -> None:
        """Although a node counts as dead by now if it showed no life: a read proves nothing."""
        await show(js, names, "b")
        other = await join(js, "c")
        await join(counted, "a")
        clocks.turn(DEAD_S)
        counted.faults[names.node("a")] += [request_lost] * 1000
        reads, heartbeat = counted.reads, other.heartbeat
        await until(lambda: counted.reads > reads and other.heartbeat >= heartbeat + 3)
        assert counted.reads - reads <= 3 * READS_PER_ROUND_MAX
        counted.faults[names.node("a")].clear()

    @pytest.mark.parametrize("value", [b"hello", b'{"v": 9}', b'{"node": "\xff"}', b'{"x":' + b"[" * 5000])
    async def test_a_message_that_no_node_wrote_stops_no_node(
        self, js: JetStream, names: Names, join: Join, value: bytes
    ) -> None:
        a = await join(js, "a")
        await js.publish(names.node("strange"), value)
        await join(js, "b")
        await until(lambda: {"a", "b"} <= set(a.live))

    async def test_others_are_seen_again_when_the_bucket_is_there_again(
        self, js: JetStream, names: Names, join: Join, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG", "streams.fleet.members")
        a = await join(js, "a")
        info = await js.stream_info(names.nodes)
        assert info is not None
        await js.request(f"$JS.API.STREAM.DELETE.{names.nodes}", b"")
        await until(lambda: {"heartbeat.unstored", "members.unseen"} <= set(caplog.messages))
        await js.stream_create(info.config)
        await join(js, "b")
        await until(lambda: a.live == ("a", "b"))


class TestSilentNodes:
    async def test_a_node_is_silent_only_after_the_ttl_and_the_margin(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        await show(counted, names, "b")
        members = await join(counted, "a")
        clocks.turn(DEAD_S - 0.01)
        await counted.another_read()
        assert not members.is_node_silent("b")
        assert members.live == ("a", "b")
        clocks.turn(0.01)
        await until(lambda: members.live == ("a",))
        assert members.is_node_silent("b")

    async def test_a_node_is_not_silent_while_its_heartbeat_changes(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        await show(counted, names, "b")
        members = await join(counted, "a")
        for heartbeat in range(2, 5):
            clocks.turn(DEAD_S - 0.01)
            await show(counted, names, "b", heartbeat)
            await counted.another_read()
            assert not members.is_node_silent("b")

    async def test_a_node_is_not_silent_before_its_own_longer_ttl(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A node's lease lasts as long as its own heartbeat says, even if ours is shorter."""
        await show(counted, names, "b", ttl_s=3 * TTL_S)
        members = await join(counted, "a")
        clocks.turn(DEAD_S + 2 * TTL_S - 0.01)
        await counted.another_read()
        assert not members.is_node_silent("b")
        clocks.turn(0.01)
        await until(lambda: members.is_node_silent("b"))
        said = [record.message for record in caplog.records]
        assert said.count("members.ttl_differs") == 1

    async def test_silence_begins_when_the_last_heartbeat_came(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        await show(counted, names, "b", 1, run="first")
        members = await join(counted, "a")
        counted.blind = True
        heard = asyncio.Event()
        members.on_others(heard.set)
        await show(counted, names, "b", 2, run="first")
        await heard.wait()
        clocks.turn(DEAD_S - 0.01)
        counted.blind = False
        await counted.another_read()
        assert not members.is_node_silent("b")
        clocks.turn(0.01)
        await until(lambda: members.is_node_silent("b"))

    async def test_an_expired_key_makes_no_node_silent(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """The servers' clocks, and their restarts, prove nothing."""
        await show(counted, names, "b")
        members = await join(counted, "a")
        info = await counted.stream_info(names.nodes)
        assert info is not None
        await counted.purge(names.nodes, info.last + 1)
        await counted.another_read()
        clocks.turn(DEAD_S - 0.01)
        await counted.another_read()
        assert not members.is_node_silent("b")
        assert members.live == ("a", "b")

    async def test_a_node_is_not_silent_if_a_heartbeat_may_have_come_and_gone_unseen(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """We slept for a TTL or more: a missing key does not show when it was last renewed."""
        await show(counted, names, "b")
        members = await join(counted, "a")
        counted.blind = True
        clocks.turn(10 * DEAD_S)
        info = await counted.stream_info(names.nodes)
        assert info is not None
        await counted.purge(names.nodes, info.last + 1)
        counted.blind = False
        await counted.another_read()
        assert not members.is_node_silent("b")

    async def test_a_node_is_not_silent_before_it_was_looked_at_again(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """We were blind, so its heartbeat may have advanced."""
        await show(counted, names, "b")
        members = await join(counted, "a")
        counted.blind = True
        clocks.turn(10 * DEAD_S)
        assert not members.is_node_silent("b")
        await show(counted, names, "b", 2)
        counted.blind = False
        await counted.another_read()
        assert not members.is_node_silent("b")

    async def test_the_time_of_silence_restarts_at_a_reconnect(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """NATS was away for all nodes: the first one that reconnects must not take everything."""
        await show(counted, names, "b")
        members = await join(counted, "a")
        clocks.turn(DEAD_S - 0.01)
        members.connection_changed(False)
        members.connection_changed(True)
        clocks.turn(DEAD_S - 0.01)
        await counted.another_read()
        assert not members.is_node_silent("b")
        clocks.turn(0.01)
        await until(lambda: members.is_node_silent("b"))

    async def test_an_unknown_node_gets_a_whole_ttl(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """The new node may have joined and claimed after our last read."""
        members = await join(counted, "a")
        clocks.turn(10 * DEAD_S)
        assert not members.is_node_silent("new")
        await counted.another_read()
        for _ in range(2):
            clocks.turn(DEAD_S / 2 - 0.01)
            await counted.another_read()
            assert not members.is_node_silent("new")
        clocks.turn(0.02)
        for _ in range(5):  # On a busy machine a heartbeat of ours may be late, which gives it more time.
            await counted.another_read()
            if members.is_node_silent("new"):
                break
            clocks.turn(DEAD_S / 4)
        assert members.is_node_silent("new")
        assert members.live == ("a",)


class TestMayClaim:
    async def test_a_free_shard_may_be_claimed(self, js: JetStream, join: Join) -> None:
        members = await join(js, "a")
        assert members.may_claim(None)
        assert members.may_claim(Owner(node="b", at=0.0, released=7))

    async def test_a_shard_may_be_claimed_if_its_holder_is_dead(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        await show(counted, names, "b")
        members = await join(counted, "a")
        held = Owner(node="b", at=clocks.now)
        assert not members.may_claim(held)
        clocks.turn(DEAD_S)
        await until(lambda: members.may_claim(held))

    async def test_a_shard_may_not_be_claimed_if_its_claims_heartbeat_was_not_seen_yet(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """The holder was silent, came back and claimed, all after our last read."""
        await show(counted, names, "b", 1, run="first")
        members = await join(counted, "a")
        held = Owner(node="b", at=clocks.now, run="first", heartbeat=1)
        clocks.turn(DEAD_S)
        await until(lambda: members.may_claim(held))
        again = Owner(node="b", at=clocks.now, run="first", heartbeat=2)
        assert not members.may_claim(again)
        for _ in range(2):
            clocks.turn(DEAD_S / 2 - 0.01)
            await counted.another_read()
            assert not members.may_claim(again)
        clocks.turn(0.02)
        await until(lambda: members.may_claim(again))

    async def test_no_shard_is_claimed_after_a_read_without_our_own_heartbeat(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """The replica that answers may also lack the holder's heartbeat."""
        await show(counted, names, "b")
        members = await join(counted, "a")
        info = await counted.stream_info(names.nodes)
        assert info is not None
        counted.knows_up_to = info.last
        clocks.turn(DEAD_S)
        await until(lambda: members.stored > 3)
        assert not members.may_claim(Owner(node="b", at=clocks.now))
        counted.knows_up_to = None
        await until(lambda: members.may_claim(Owner(node="b", at=clocks.now)))

    async def test_our_own_shard_may_be_claimed(self, js: JetStream, clocks: Clocks, join: Join) -> None:
        members = await join(js, "a")
        assert members.may_claim(Owner(node="a", at=clocks.now, run=members.run))

    async def test_a_shard_of_a_process_that_has_ended_may_be_claimed_at_once(
        self, js: JetStream, clocks: Clocks, join: Join
    ) -> None:
        members = await join(js, "a", runs=ProcessRuns("new", ended=("first", "second")))
        assert members.run == "new"
        for run in ("first", "second"):
            assert members.may_claim(Owner(node="a", at=clocks.now, run=run, heartbeat=1))
        for node, run in (("a", "another"), ("b", "first"), ("a", "")):
            assert not members.may_claim(Owner(node=node, at=clocks.now, run=run, heartbeat=1))

    @pytest.mark.parametrize("ahead_s", [-1.0, 100.0], ids=["before", "by-a-clock-ahead"])
    async def test_a_shard_of_another_process_of_our_name_may_be_claimed_only_later(
        self, clocks: Clocks, counted: BucketReads, join: Join, ahead_s: float
    ) -> None:
        """The other process may be asleep with a valid lease; its wall clock proves nothing."""
        members = await join(counted, "a")
        held = Owner(node="a", at=clocks.now + ahead_s, run="another")
        assert not members.may_claim(held)
        for _ in range(2):
            clocks.turn(DEAD_S / 2 - 0.01)
            await counted.another_read()
            assert not members.may_claim(held)
        clocks.turn(0.02)
        await until(lambda: members.may_claim(held))

    async def test_a_shard_of_a_living_process_of_our_name_may_never_be_claimed(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Two were started under one name. Our own heartbeats hide its from our reads."""
        members = await join(counted, "a")
        held = Owner(node="a", at=clocks.now, run="twin")
        assert not members.may_claim(held)
        for heartbeat in range(4):
            clocks.turn(DEAD_S / 2 - 0.01)
            await show(counted, names, "a", heartbeat, run="twin")
            await until(lambda: members.signs.note_claim(held, clocks.since_boot).since == clocks.since_boot)
            await counted.another_read()
            assert not members.may_claim(held)
        (taken,) = [record for record in caplog.records if record.message == "members.name_taken"]
        assert "the other waits until that one ends: give each node a name" in taken.__dict__["remedy"]

    async def test_a_shard_of_a_process_that_is_gone_may_be_claimed_though_its_name_lives_on(
        self, names: Names, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        """The node was started again, and does not want the shard any more: no other node would get it."""
        await show(counted, names, "b", 1, run="first")
        members = await join(counted, "a")
        held = Owner(node="b", at=clocks.now, run="first")
        assert not members.may_claim(held)
        for heartbeat in range(2):
            clocks.turn(DEAD_S / 2 - 0.01)
            await show(counted, names, "b", heartbeat, run="second")
            await counted.another_read()
            assert not members.may_claim(held)
        clocks.turn(0.02)
        await until(lambda: members.may_claim(held))
        assert not members.may_claim(Owner(node="b", at=clocks.now, run="second"))

    async def test_a_shard_that_a_version_without_runs_claimed_under_our_name_may_be_claimed(
        self, clocks: Clocks, counted: BucketReads, join: Join
    ) -> None:
        members = await join(counted, "a")
        held = Owner(node="a", at=clocks.now + 100.0)
        assert not members.may_claim(held)
        clocks.turn(DEAD_S)
        assert members.may_claim(held)


class TestLease:
    async def test_the_lease_lapses_and_everything_is_stopped_before_the_next_renewal(
        self, names: Names, clocks: Clocks, faulty: FaultyJetStream, join: Join
    ) -> None:
        members = await join(faulty, "a")
        renewals = faulty.published[names.node("a")]
        before = members.lease
        told: list[tuple[int, bool]] = []
        members.on_lapse(lambda: told.append((len(renewals), members.lease.is_valid())))
        asleep = len(renewals)
        clocks.turn(TTL_S)
        await until(lambda: bool(told) and members.lease.is_valid())
        assert told == [(asleep, False)], "told once, with nothing renewed since, and nothing in force"
        assert members.lease is not before
        assert not before.is_valid()

    async def test_a_listener_learns_of_a_new_lease_at_once(
        self, clocks: Clocks, faulty: FaultyJetStream, join: Join
    ) -> None:
        members = await join(faulty, "a")
        before, told = members.lease, list[bool]()
        members.on_lease(lambda: told.append(members.lease is not before and members.lease.is_valid()))
        clocks.turn(TTL_S)
        await until(lambda: bool(told))
        assert told == [True], "once, when it is in force, and not for each renewal"

    async def test_the_lease_is_not_prolonged_by_an_acknowledgement_that_slept(
        self, names: Names, clocks: Clocks, faulty: FaultyJetStream, join: Join
    ) -> None:
        """The process is stopped while a renewal is under way, and wakes up to find it stored."""

        async def sleep() -> None:
            clocks.turn(TTL_S)

        members = await join(faulty, "a")
        before = members.lease
        lapses: list[bool] = []
        members.on_lapse(lambda: lapses.append(True))
        faulty.faults[names.node("a")].append(after(sleep))
        await until(lambda: bool(lapses))
        assert not before.is_valid()

    async def test_the_lease_holds_while_two_renewals_fail(
        self, names: Names, clocks: Clocks, faulty: FaultyJetStream, join: Join
    ) -> None:
        members = await join(faulty, "a")
        lease = members.lease
        faulty.faults[names.node("a")] += [request_lost, request_lost]
        await until(lambda: not faulty.faults[names.node("a")])
        beats = members.heartbeat
        await until(lambda: members.heartbeat > beats)
        assert members.lease is lease
        assert lease.is_valid()


async def test_an_old_process_that_lives_next_to_a_new_one_of_its_name_keeps_its_shards(
    js: JetStream, names: Names, counted: BucketReads, clocks: Clocks, join: Join
) -> None:
    await show(js, names, "a", heartbeat=1, ttl_s=TTL_S, run="old")
    b = await join(counted, "b")
    owner = Owner(node="a", at=0.0, run="old", heartbeat=1)
    for number in range(2, 10):
        clocks.turn(1.0)
        await show(js, names, "a", heartbeat=number, ttl_s=TTL_S, run="old")
        await show(js, names, "a", heartbeat=number, ttl_s=TTL_S, run="new")
        await counted.another_read()
    assert not b.may_claim(owner)
