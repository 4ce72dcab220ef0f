"""Recovery of a shard: snapshots and the journal's tail give the whole state; contradictions are refused."""

from collections.abc import AsyncIterator

import pytest

from actors.errors import NewerVersion, Unusable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.facts import Parked, Unparked
from streams.installation.topology import Names
from streams.journal import parked_receivers as parked
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import NotOwned
from streams.journal.envelope import encode_fact, encode_flush
from streams.journal.recovery import Recovery, recover
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.journal.snapshots import Snapshots
from streams.nats.answers import Put, Stored
from streams.nats.errors import NotOurs, StreamRecreated
from streams.nats.jetstream import JetStream
from tests.contract.journal.recording import Recording, delivered, recreate
from tests.contract.support.faults import FaultyJetStream
from tests.contract.support.shards import RECEIVER, SHARD, own, repeated
from tests.support.installation import publish

OTHER = "acme.other"


@pytest.fixture
async def shard(js: JetStream, names: Names) -> AsyncIterator[Recording]:
    shard = Recording(js, names, await own(js, names, "a"))
    yield shard
    await shard.stop()


async def take_over(js: JetStream, names: Names) -> Recovery | NotOwned:
    return await recover(js, names, await own(js, names, "b"), "b")


async def taken_over(js: JetStream, names: Names) -> Recovery:
    recovery = await take_over(js, names)
    assert isinstance(recovery, Recovery)
    return recovery


async def events(js: JetStream, names: Names, count: int) -> None:
    for _ in range(count):
        await publish(js, names, RECEIVER)


class TestRecover:
    async def test_a_new_shard_is_recovered_as_empty(self, js: JetStream, names: Names) -> None:
        recovery = await taken_over(js, names)
        assert (recovery.states, recovery.parked, recovery.floor) == ({}, {}, 0)
        assert list(recovery.created) == list(names.streams)

    async def test_a_shard_is_recovered_from_the_journal_alone(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        await events(js, names, 3)
        await shard.record(delivered(1, 1), repeated(2), delivered(3, 2), repeated(9, OTHER))
        recovery = await taken_over(js, names)
        assert recovery.states == shard.states

    async def test_a_shard_is_recovered_from_snapshots_and_the_tail(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """Recovery loads only the actors that the tail names; for all others, their snapshots are current."""
        await events(js, names, 3)
        await shard.record(delivered(1, 1), repeated(2), repeated(3, OTHER))
        await shard.snapshot()
        await shard.record(delivered(3, 2))
        recovery = await taken_over(js, names)
        assert recovery.states == {RECEIVER: shard.states[RECEIVER]}
        assert await shard.snapshots.load(OTHER) == shard.states[OTHER]

    async def test_a_snapshot_that_knows_a_part_of_the_tail_is_not_applied_twice(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """A passivated actor is written before the next checkpoint."""
        at = await shard.record(repeated(1))
        await shard.record(repeated(2))
        await shard.snapshot(Checkpoint(journal_position=at))
        await shard.record(repeated(3))
        recovery = await taken_over(js, names)
        assert recovery.states == shard.states
        assert recovery.states[RECEIVER].counters.duplicates == 3

    async def test_parked_actors_come_back_by_the_list_and_the_tail(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """The list names the parked actors; for actors in the tail, the tail decides."""
        await shard.record(*(Parked(receiver=each, at=1.0) for each in ("acme.quiet", RECEIVER, OTHER)))
        await shard.snapshot()
        await shard.record(Unparked(receiver=OTHER, at=2.0), Parked(receiver="acme.late", at=2.0))
        await shard.record(Unparked(receiver=RECEIVER, at=2.0), Parked(receiver=RECEIVER, at=3.0))
        recovery = await taken_over(js, names)
        assert recovery.parked == {"acme.quiet": 0.0}
        assert {each.receiver for each in recovery.states.values() if each.parked} == {RECEIVER, "acme.late"}

    async def test_parked_actors_that_a_checkpoint_of_version_1_names_come_back(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        position = await shard.record(Unparked(receiver=OTHER, at=2.0))
        named: dict[str, float | None] = {"acme.quiet": 12.5, OTHER: None}
        checkpoint = Checkpoint(v=1, journal_position=position - 1, parked=named)
        assert await shard.snapshots.write([], [], position, checkpoint)
        recovery = await taken_over(js, names)
        assert recovery.parked == {"acme.quiet": 12.5}
        assert recovery.parked_list.receivers() == named

    async def test_parked_actors_of_a_write_that_was_never_finished_come_back(
        self, js: JetStream, names: Names, shard: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An actor moves to another part, and only that is stored: the tail says that the actor is parked."""
        await shard.record(Parked(receiver=OTHER, at=1.0), Parked(receiver=RECEIVER, at=1.0))
        monkeypatch.setattr(parked, "PART_BYTES", 1)
        await shard.snapshot()
        await shard.record(Unparked(receiver=OTHER, at=2.0), Parked(receiver="acme.new", at=2.0))
        shard.listed.update(shard.states.values())
        put = Put(names.actor_keys.parked_receivers(SHARD, 0), shard.listed.encode(0, 99))
        assert isinstance(await js.publish(put.subject, put.data), Stored)
        recovery = await taken_over(js, names)
        assert recovery.parked == {RECEIVER: 0.0}
        assert recovery.states.keys() == {OTHER, "acme.new"}

    async def test_a_part_that_an_old_leader_shows_is_asked_for_again(
        self, names: Names, faulty: FaultyJetStream
    ) -> None:
        shard = Recording(faulty, names, await own(faulty, names, "a"))
        await shard.record(Parked(receiver=RECEIVER, at=1.0))
        await shard.snapshot()
        old = await faulty.last_message(names.actors, names.actor_keys.parked_receivers(SHARD, 0))
        await shard.record(Parked(receiver=OTHER, at=1.0))
        await shard.snapshot()
        await shard.stop()
        faulty.answers[names.actor_keys.parked_receivers(SHARD, 0)] += [old, None]
        recovery = await taken_over(faulty, names)
        assert recovery.parked == {RECEIVER: 0.0, OTHER: 0.0}
        assert not faulty.answers[names.actor_keys.parked_receivers(SHARD, 0)]

    async def test_every_receiver_counts_as_parked_if_a_part_is_missing(
        self, js: JetStream, names: Names, shard: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every receiver with a snapshot counts as parked, and so does the record of unknown receivers.

        A receiver that is not parked leaves memory again.
        """
        monkeypatch.setattr(parked, "PART_TIMEOUT_S", 0.1)
        await shard.record(Parked(receiver=RECEIVER, at=1.0), repeated(3, OTHER))
        await shard.snapshot()
        await js.publish(names.actor_keys.parked_receivers(SHARD, 0), b"", {"KV-Operation": "DEL"})
        recovery = await taken_over(js, names)
        assert (
            recovery.parked
            == recovery.parked_list.receivers()
            == {UNKNOWN_RECEIVERS: None, RECEIVER: None, OTHER: None}
        )

    async def test_a_tail_of_many_pages_is_read_whole(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        before = shard.claim.journal_position
        for number in range(300):
            data = encode_flush(
                node="a", epoch=shard.claim.epoch, flush=number + 1, floor=0,
                routing=NOTHING_ROUTED, at=0.0, unclean=None, facts=[encode_fact(repeated(number + 1))],
            )  # fmt: skip
            assert await js.publish(names.journal_of(SHARD), data) == Stored(before + number + 1)
        recovery = await taken_over(js, names)
        assert recovery.states[RECEIVER].counters.duplicates == 300


class TestReadTail:
    async def test_an_answer_of_a_lagging_replica_is_read_again(
        self, js: JetStream, names: Names, shard: Recording, faulty: FaultyJetStream
    ) -> None:
        stored = [await shard.record(repeated(place)) for place in (1, 2, 3)]
        claimed = await own(js, names, "b")
        faulty.shown[names.journal_of(SHARD)].extend([0, stored[0], stored[0], stored[2]])
        recovery = await recover(faulty, names, claimed, "b")
        assert isinstance(recovery, Recovery)
        assert recovery.states == shard.states

    async def test_a_tail_that_continues_behind_our_claim_is_another_owners(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        claimed = await own(js, names, "b")
        await own(js, names, "c")
        lost = await recover(js, names, claimed, "b")
        assert isinstance(lost, NotOwned)
        assert f"after our claim at {claimed.journal_position}" in lost.why

    async def test_a_tail_without_our_claim_is_not_owned(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        claimed = await own(js, names, "b")
        await js.purge(names.journal, claimed.journal_position + 1)
        assert await recover(js, names, claimed, "b") == NotOwned("our claim is not in the journal any more")

    async def test_a_tail_of_a_newer_version_is_refused(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        data = b'{"v":1,"node":"a","epoch":1,"flush":1,"floor":0,"at":0,"facts":[{"fact":"melted"}]}'
        await js.publish(names.journal_of(SHARD), data)
        with pytest.raises(NewerVersion, match="'melted'"):
            await take_over(js, names)

    async def test_a_tail_with_a_message_that_is_not_ours_is_refused(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        answer = await js.publish(names.journal_of(SHARD), b"hello")
        assert isinstance(answer, Stored)
        with pytest.raises(NotOurs, match=f"message {answer.position} of {names.journal}"):
            await take_over(js, names)


class TestRecordsBeyondTheClaim:
    async def test_a_checkpoint_beyond_our_claim_is_another_owners(self, js: JetStream, names: Names) -> None:
        claimed = await own(js, names, "b")
        rival = await own(js, names, "c")
        checkpoint = Checkpoint(journal_position=rival.journal_position)
        assert await Snapshots(js, names, rival).write([], [], rival.journal_position, checkpoint)
        lost = await recover(js, names, claimed, "b")
        assert isinstance(lost, NotOwned)
        assert f"its checkpoint at {rival.journal_position} is beyond" in lost.why

    async def test_a_snapshot_beyond_our_claim_is_another_owners(
        self, js: JetStream, names: Names, shard: Recording, faulty: FaultyJetStream
    ) -> None:
        """The replica that shows the tail does not show that the journal continues."""
        await shard.record(repeated(1))
        claimed = await own(js, names, "b")
        rival = await own(js, names, "c")
        checkpoint = Checkpoint(journal_position=shard.claim.journal_position)
        states = list(shard.states.values())
        assert await Snapshots(js, names, rival).write(states, [], rival.journal_position, checkpoint)
        faulty.shown[names.journal_of(SHARD)].append(claimed.journal_position)
        lost = await recover(faulty, names, claimed, "b")
        assert isinstance(lost, NotOwned)
        assert f"the snapshot of {RECEIVER} at {rival.journal_position} is beyond" in lost.why

    async def test_a_checkpoint_beyond_our_claim_while_the_shard_is_ours_means_an_older_stream(
        self, js: JetStream, names: Names
    ) -> None:
        claimed = await own(js, names, "b")
        await Snapshots(js, names, claimed).write([], [], 900, Checkpoint(journal_position=900))
        with pytest.raises(
            StreamRecreated,
            match=rf"{names.journal} was restored to an older state .* 900, but the journal ends",
        ):
            await recover(js, names, claimed, "b")


class TestRecreatedStreams:
    async def checkpoint(self, js: JetStream, names: Names, shard: Recording) -> None:
        created = (await taken_over(js, names)).created
        snapshots = Snapshots(js, names, await own(js, names, "c"))
        await snapshots.write(
            [], [], 1, Checkpoint(journal_position=shard.claim.journal_position, routed=0, created=created)
        )

    @pytest.mark.parametrize("which", ["events", "deliveries", "receivers"])
    async def test_a_recreated_stream_refuses_the_shard(
        self, js: JetStream, names: Names, shard: Recording, which: str
    ) -> None:
        await self.checkpoint(js, names, shard)
        stream: str = getattr(names, which)
        before = await js.stream_info(stream)
        await recreate(js, names, stream)
        after = await js.stream_info(stream)
        assert before is not None
        assert after is not None
        with pytest.raises(StreamRecreated, match=f"^{stream} was recreated") as raised:
            await take_over(js, names)
        assert before.created in str(raised.value)
        assert after.created in str(raised.value)

    async def test_a_recreated_journal_refuses_the_shard(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """Sequences start again in the new journal: the checkpoint is ahead, but no other owner wrote it."""
        await self.checkpoint(js, names, shard)
        await recreate(js, names, names.journal)
        with pytest.raises(StreamRecreated, match=f"^{names.journal} was recreated"):
            await take_over(js, names)

    async def test_a_recreated_bucket_has_no_checkpoint(
        self, js: JetStream, names: Names, shard: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streams.journal.recovery.CLOCK_SKEW_S", 0.0)
        epoch = shard.claim.epoch
        await recreate(js, names, names.actors)
        for _ in range(epoch):
            await js.publish(names.actor_keys.actor(SHARD, OTHER), b"")
        with pytest.raises(StreamRecreated, match=f"^{names.actors} was recreated"):
            await take_over(js, names)

    @pytest.mark.parametrize("snapshotted", [False, True])
    async def test_a_checkpoint_older_than_what_was_purged_refuses_the_shard(
        self, js: JetStream, names: Names, shard: Recording, snapshotted: bool
    ) -> None:
        """Nothing can restore the missing flushes, and no node may continue as if they had never existed."""
        if snapshotted:
            await shard.snapshot()
        known = shard.claim.journal_position if snapshotted else 0
        await shard.record(repeated(1))
        last = await shard.record(repeated(2))
        await js.purge(names.journal, last)
        with pytest.raises(StreamRecreated, match=f"known up to {known}, .* at {last} follows {last - 1}"):
            await take_over(js, names)

    async def test_a_tail_purged_after_our_claim_ended_belongs_to_another_owner(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """The next owner has snapshotted and purged the flushes that we would read."""
        last = await shard.record(repeated(1))
        claimed = await own(js, names, "b")
        await js.publish(names.actor_keys.owner(SHARD), b"")
        await js.purge(names.journal, last)
        assert isinstance(await recover(js, names, claimed, "b"), NotOwned)

    async def test_a_shard_whose_journal_has_aged_out_is_recovered_from_its_checkpoint(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """The events settled since the checkpoint are then delivered again."""
        await shard.record(repeated(1))
        await shard.snapshot()
        last = await shard.record(repeated(2))
        await js.purge(names.journal, last + 1)
        assert (await taken_over(js, names)).states == {}

    async def test_deliveries_that_end_before_a_frontier_refuse_the_shard(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        await events(js, names, 2)
        await shard.record(delivered(3, 1))
        with pytest.raises(
            StreamRecreated, match=rf"{names.deliveries} .* ends at 2, but {RECEIVER} .* at 3"
        ):
            await take_over(js, names)

    async def test_deliveries_that_end_before_the_floor_refuse_the_shard(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        data = encode_flush(
            node="a",
            epoch=shard.claim.epoch,
            flush=1,
            floor=8,
            routing=NOTHING_ROUTED,
            at=0.0,
            unclean=None,
            facts=[],
        )
        await js.publish(names.journal_of(SHARD), data)
        with pytest.raises(StreamRecreated, match=rf"{names.deliveries} .* ends at 0, but .* up to 8"):
            await take_over(js, names)

    async def test_a_forged_source_refuses_nothing(
        self, js: JetStream, names: Names, shard: Recording
    ) -> None:
        """A producer can name an event that was never stored, and harms only its own receiver."""
        await events(js, names, 1)
        await shard.record(delivered(1, 1, source=6))
        recovery = await taken_over(js, names)
        assert recovery.states[RECEIVER].frontier.source == 6


async def test_a_journal_with_a_fact_that_breaks_a_rule_is_refused(
    js: JetStream, names: Names, shard: Recording
) -> None:
    await events(js, names, 6)
    await shard.record(delivered(5, 1), delivered(6, 1))
    with pytest.raises(Unusable, match=r"acme\.billing: its fact `delivered` breaks an invariant"):
        await take_over(js, names)
