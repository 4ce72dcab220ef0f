"""Messages that may be purged by subject: those that no record of their shard needs any more."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.facts import Burial
from actors.machine.numbering import Frontier
from actors.machine.state import State
from streams.installation.topology import Names
from streams.journal import snapshots
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim
from streams.journal.envelope import encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.journal.snapshots import Snapshots
from streams.lost_tails.marks import Mark, Marks
from streams.nats.answers import Answer, Put, Stored, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage import settled
from streams.storage.eviction import SampledStream, samples_of
from streams.storage.settled_purge import purge_settled
from tests.contract.support.power_loss import Powerless, powerless
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
    checkpoint = Checkpoint(journal_position=claim.journal_position, floor=EVENTS, created=created)
    assert await Snapshots(js, names, claim).write(states, [], claim.journal_position, checkpoint)
    sampled = await samples_of(js, names, deliveries)
    assert {each.settled_to for each in sampled.samples} == {settled_to}


class TestInconsistentRecords:
    """A shard whose records are not of one time, or cannot be read: nothing in it counts as settled."""

    @pytest.fixture
    async def names(self, js: JetStream, prefix: str) -> Names:
        names = await install(js, prefix)
        for _ in range(EVENTS):
            await publish(js, names, RECEIVER)
        return names

    async def write(
        self, js: JetStream, names: Names, states: list[State], later: int = 0, **more: Any
    ) -> Claim:
        deliveries = await stream_info(js, names.deliveries)
        claim = await own(js, names, "a")
        created = {names.deliveries: deliveries.created}
        checkpoint = Checkpoint(journal_position=claim.journal_position, floor=EVENTS, created=created)
        checkpoint = replace(checkpoint, **more)
        assert await Snapshots(js, names, claim).write(states, [], claim.journal_position + later, checkpoint)
        return claim

    async def settled(self, js: JetStream, names: Names) -> set[int]:
        sampled = await samples_of(js, names, await stream_info(js, names.deliveries))
        return {each.settled_to for each in sampled.samples}

    async def test_a_record_of_unknown_receivers_is_not_newer_than_the_checkpoint(
        self, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The record of a write was stored, and the snapshot of a receiver that took its events was not."""
        checkpoint = Checkpoint(floor=EVENTS, needed=4)
        record = State(receiver=UNKNOWN_RECEIVERS, parked=True, frontier=Frontier(position=3))
        claim = await self.write(js, names, [record], needed=4)
        assert await self.settled(js, names) == {3}
        stored = Snapshots(js, names, claim)
        store, stored_batches = js.publish_batch, list[int]()

        async def once(puts: Sequence[Put], timeout_s: float = 5.0) -> Answer:
            stored_batches.append(len(puts))
            return await store(puts, timeout_s) if len(stored_batches) == 1 else Unanswered("gone")

        monkeypatch.setattr(js, "publish_batch", once)
        monkeypatch.setattr(snapshots, "BATCH_TIMEOUT_S", 0.1)
        ended = State(receiver=UNKNOWN_RECEIVERS, frontier=Frontier(position=3))
        others = [State(receiver=f"acme.r{number}") for number in range(snapshots.BATCH_MESSAGES_MAX)]
        waiting = State(receiver=RECEIVER, parked=True, opened=True, frontier=Frontier(position=3))
        with pytest.raises(Unavailable):
            await stored.write([ended, *others, waiting], [], claim.journal_position + 5, checkpoint)
        assert len(stored_batches) > 1
        assert await self.settled(js, names) == {0}

    async def test_a_deposed_leader_may_not_know_the_newest_record(
        self, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.write(js, names, [DONE])
        subject = names.actor_keys.actor(SHARD, UNKNOWN_RECEIVERS)
        assert isinstance(await js.publish(subject, b""), Stored)
        last_message = js.last_message

        async def unknown(stream: str, wanted: str) -> StoredMessage | None:
            return None if wanted == subject else await last_message(stream, wanted)

        monkeypatch.setattr(js, "last_message", unknown)
        monkeypatch.setattr(settled, "is_replicated", lambda _: True)
        assert await self.settled(js, names) == {0}

    async def test_a_snapshot_that_the_leader_does_not_know_may_exist(
        self, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A deposed leader answers at first; the list of the subjects has the receiver's."""
        await self.write(js, names, [replace(DONE, parked=True, frontier=Frontier(position=6))])
        subject, asked = names.actor_keys.actor(SHARD, RECEIVER), list[str]()
        last_message = js.last_message

        async def unknown_at_first(stream: str, wanted: str) -> StoredMessage | None:
            asked.append(wanted)
            is_first = wanted == subject and asked.count(subject) == 1
            return None if is_first else await last_message(stream, wanted)

        monkeypatch.setattr(js, "last_message", unknown_at_first)
        assert await self.settled(js, names) == {6}

    async def test_records_about_a_stream_that_was_recreated_settle_nothing(
        self, js: JetStream, names: Names
    ) -> None:
        await self.write(js, names, [DONE], created={names.deliveries: "1999-12-31T00:00:00Z"})
        assert await self.settled(js, names) == {0}

    async def test_records_about_a_lost_tail_settle_nothing(self, js: JetStream, names: Names) -> None:
        """The last message that the shard knew is another one now."""
        claim = await self.write(js, names, [DONE])
        lost = Marks(deliveries=Mark(position=EVENTS, stored_at=1.0))
        flush = encode_flush(
            node="a", epoch=claim.epoch, flush=1, floor=EVENTS, routing=NOTHING_ROUTED, at=1.0, unclean=None,
            marks=lost, facts=[],
        )  # fmt: skip
        assert isinstance(await js.publish(names.journal_of(SHARD), flush), Stored)
        assert await self.settled(js, names) == {0}

    @pytest.mark.parametrize("unreadable", ["_checkpoint", UNKNOWN_RECEIVERS, RECEIVER])
    async def test_an_unreadable_record_settles_nothing(
        self, js: JetStream, names: Names, unreadable: str
    ) -> None:
        await self.write(js, names, [DONE])
        assert await self.settled(js, names) == {LAST_SETTLED}
        assert isinstance(await js.publish(names.actor_keys.actor(SHARD, unreadable), b"\xff"), Stored)
        assert await self.settled(js, names) == {0}


class TestStreamReplacedBeforePurge:
    """A round of maintenance takes seconds: the stream that is purged may be another one."""

    @pytest.fixture
    async def powerless(self) -> AsyncIterator[Powerless]:
        async with powerless() as server:
            yield server

    async def sampled(self, js: JetStream) -> tuple[Names, SampledStream]:
        names = await install(js, "t")
        for _ in range(EVENTS):
            await publish(js, names, RECEIVER)
        deliveries = await stream_info(js, names.deliveries)
        claim = await own(js, names, "a")
        created = {names.deliveries: deliveries.created}
        checkpoint = Checkpoint(journal_position=claim.journal_position, floor=EVENTS, created=created)
        assert await Snapshots(js, names, claim).write([DONE], [], claim.journal_position, checkpoint)
        return names, await samples_of(js, names, deliveries)

    async def left(self, js: JetStream, names: Names) -> list[int]:
        page = await js.read(names.deliveries, names.delivery(SHARD, RECEIVER), 1)
        return [each.position for each in page.messages]

    async def test_settled_messages_are_purged_except_the_last(self, powerless: Powerless) -> None:
        names, sampled = await self.sampled(powerless.js)
        await purge_settled(powerless.js, names, sampled, 1e9)
        assert await self.left(powerless.js, names) == [EVENTS]

    async def test_nothing_is_purged_by_subject_if_enough_was_purged_by_sequence(
        self, powerless: Powerless
    ) -> None:
        names, sampled = await self.sampled(powerless.js)
        await purge_settled(powerless.js, names, sampled, 0.0)
        assert len(await self.left(powerless.js, names)) == EVENTS

    async def test_new_events_at_lost_positions_are_not_purged(self, powerless: Powerless) -> None:
        names, sampled = await self.sampled(powerless.js)
        powerless.lose_tail(names.deliveries, 5)
        for _ in range(3):
            await publish(powerless.js, names, RECEIVER)
        await purge_settled(powerless.js, names, sampled, 1e9)
        assert (await self.left(powerless.js, names))[-3:] == [6, 7, 8]

    async def test_the_marks_show_a_lost_tail_over_the_same_connection(self, powerless: Powerless) -> None:
        names, sampled = await self.sampled(powerless.js)
        message = await powerless.js.message(names.deliveries, EVENTS)
        assert message is not None
        lost = Marks(deliveries=Mark(position=EVENTS, stored_at=message.stored_at - 1.0))
        flush = encode_flush(
            node="a", epoch=1, flush=1, floor=EVENTS, routing=NOTHING_ROUTED, at=1.0, unclean=None,
            marks=lost, facts=[],
        )  # fmt: skip
        assert isinstance(await powerless.js.publish(names.journal_of(SHARD), flush), Stored)
        await purge_settled(powerless.js, names, sampled, 1e9)
        assert len(await self.left(powerless.js, names)) == EVENTS

    async def test_nothing_is_purged_over_another_connection_than_the_samples_came(
        self, powerless: Powerless
    ) -> None:
        """The server may have been restarted, and no mark may be known that tells of it."""
        names, sampled = await self.sampled(powerless.js)
        powerless.reconnect()
        await purge_settled(powerless.js, names, sampled, 1e9)
        assert len(await self.left(powerless.js, names)) == EVENTS

    async def test_a_stream_that_was_recreated_is_not_purged(self, powerless: Powerless) -> None:
        names, sampled = await self.sampled(powerless.js)
        await purge_settled(powerless.js, names, replace(sampled, created="1999-12-31T00:00:00Z"), 1e9)
        assert len(await self.left(powerless.js, names)) == EVENTS
