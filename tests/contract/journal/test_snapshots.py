"""Snapshots and the checkpoint: fenced against other owners and our own late batches, written together."""

import msgspec
import pytest

from actors.errors import NewerVersion, Unavailable
from actors.machine.bucket import Unclean
from actors.machine.state import Counters, State
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.claim import Owner
from streams.journal.snapshots import BATCH_MESSAGES_MAX, Snapshot, Snapshots
from streams.nats.answers import Answer, Put, Refused, Unanswered
from streams.nats.errors import NotOurs
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED, EXPECTED_SUBJECT, WRONG_LAST_SEQUENCE
from tests.contract.support.faults import FaultyJetStream
from tests.contract.support.servers import Server
from tests.contract.support.shards import RECEIVER, SHARD, own

TOO_MANY_BATCHES = 10210
CUT_OFF = 10176


def state(receiver: str = RECEIVER, delivered: int = 0) -> State:
    return State(receiver=receiver, counters=Counters(delivered=delivered))


def states(count: int, delivered: int = 0) -> list[State]:
    return [state(f"acme.r{number}", delivered) for number in range(count)]


async def test_a_written_snapshot_is_loaded(js: JetStream, names: Names) -> None:
    snapshots = Snapshots(js, names, await own(js, names, "a"))
    assert await snapshots.load(RECEIVER) is None
    checkpoint = Checkpoint(
        journal_position=7, floor=3, needed=2, parked={RECEIVER: 12.5, "acme.b": None},
        unclean=Unclean(5, 9, 1.5), created={"S": "2027-01-15T08:00:00Z"},
    )  # fmt: skip
    assert await snapshots.write([state(delivered=4)], [], 7, checkpoint)
    assert await snapshots.load(RECEIVER) == state(delivered=4)
    assert await snapshots.read(RECEIVER) == Snapshot(as_of=7, state=state(delivered=4))
    assert await read_checkpoint(js, names, SHARD) == checkpoint


async def test_a_forgotten_snapshot_is_gone(js: JetStream, names: Names) -> None:
    snapshots = Snapshots(js, names, await own(js, names, "a"))
    await snapshots.write(states(2), [], 7, Checkpoint(journal_position=7))
    assert await snapshots.write([], ["acme.r0"], 8, Checkpoint(journal_position=8))
    assert await snapshots.load("acme.r0") is None
    assert await snapshots.load("acme.r1") == state("acme.r1")


async def test_the_receivers_with_snapshots_are_listed_for_one_shard(js: JetStream, names: Names) -> None:
    snapshots = Snapshots(js, names, await own(js, names, "a"))
    await snapshots.write(states(3), [], 7, Checkpoint(journal_position=7))
    assert sorted(await snapshots.receivers()) == ["acme.r0", "acme.r1", "acme.r2"]


async def test_a_checkpoint_is_stored_without_snapshots(js: JetStream, names: Names) -> None:
    snapshots = Snapshots(js, names, await own(js, names, "a"))
    assert await snapshots.write([], [], 7, Checkpoint(journal_position=7))
    assert await read_checkpoint(js, names, SHARD) == Checkpoint(journal_position=7)


async def test_snapshots_beyond_one_batch_are_all_stored(js: JetStream, names: Names) -> None:
    snapshots = Snapshots(js, names, await own(js, names, "a"))
    many = states(2 * BATCH_MESSAGES_MAX + 3)
    assert await snapshots.write(many, [], 7, Checkpoint(journal_position=7))
    for each in (many[0], many[BATCH_MESSAGES_MAX - 2], many[BATCH_MESSAGES_MAX - 1], many[-1]):
        assert await snapshots.load(each.receiver) == each
    assert await read_checkpoint(js, names, SHARD) == Checkpoint(journal_position=7)


class TestFence:
    async def test_no_former_owner_writes_after_another_claim(self, js: JetStream, names: Names) -> None:
        old = Snapshots(js, names, await own(js, names, "a"))
        await old.write([state(delivered=1)], [], 7, Checkpoint(journal_position=7))
        await own(js, names, "b")
        assert not await old.write([state(delivered=2)], [], 8, Checkpoint(journal_position=8))
        assert await old.load(RECEIVER) == state(delivered=1)
        assert await read_checkpoint(js, names, SHARD) == Checkpoint(journal_position=7)

    async def test_an_owner_that_is_only_put_fences_too(self, js: JetStream, names: Names) -> None:
        """The new claim is not in the journal yet, but nothing may change what it will read."""
        old = Snapshots(js, names, await own(js, names, "a"))
        await js.publish(names.actor_keys.owner(SHARD), msgspec.json.encode(Owner(node="b", at=0.0)))
        assert not await old.write([state()], [], 7, Checkpoint(journal_position=7))

    async def test_a_checkpoint_alone_is_fenced_too(self, js: JetStream, names: Names) -> None:
        old = Snapshots(js, names, await own(js, names, "a"))
        await own(js, names, "b")
        assert not await old.write([], [], 7, Checkpoint(journal_position=7))
        assert await read_checkpoint(js, names, SHARD) is None

    async def test_the_fence_is_on_the_first_message_of_each_batch(
        self, names: Names, faulty: FaultyJetStream
    ) -> None:
        claimed = await own(faulty, names, "a")
        batches = remember_batches(faulty)
        await Snapshots(faulty, names, claimed).write(
            states(BATCH_MESSAGES_MAX), [], 7, Checkpoint(journal_position=7)
        )
        assert len(batches) == 2
        for batch in batches:
            headers = batch[0].headers
            assert headers == {EXPECTED: str(claimed.epoch), EXPECTED_SUBJECT: names.actor_keys.owner(SHARD)}

    async def test_a_batch_that_a_claim_comes_into_stores_nothing(
        self, server: Server, js: JetStream, names: Names
    ) -> None:
        """The expectation is judged when the batch is committed, not when it is begun."""
        claimed = await own(js, names, "a")
        first = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", EXPECTED: str(claimed.epoch)}
        first[EXPECTED_SUBJECT] = names.actor_keys.owner(SHARD)
        await js.wire.publish(names.actor_keys.actor(SHARD, RECEIVER), b"old", headers=first)
        await own(js, names, "b")
        last = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
        answer = await js.publish(names.actor_keys.checkpoint(SHARD), b"old", last)
        assert isinstance(answer, Refused)
        assert answer.code == WRONG_LAST_SEQUENCE
        assert await js.last_message(names.actors, names.actor_keys.checkpoint(SHARD)) is None


class TestLateBatches:
    """A batch was repeated since its answer was lost, and the first one arrives after all."""

    async def test_a_late_batch_is_not_stored_twice_or_out_of_order(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        snapshots = Snapshots(faulty, names, await own(faulty, names, "a"))
        batches = remember_batches(faulty)
        await snapshots.write(states(BATCH_MESSAGES_MAX, delivered=1), [], 7, Checkpoint(journal_position=7))
        await snapshots.write(states(3, delivered=2), [], 9, Checkpoint(journal_position=9))
        assert len(batches) == 3
        for late in batches:
            answer = await js.publish_batch(late)
            assert isinstance(answer, Refused)
            assert answer.code == WRONG_LAST_SEQUENCE
        assert await snapshots.load("acme.r0") == state("acme.r0", delivered=2)

    async def test_a_checkpoint_alone_does_not_fall_back(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        """The older checkpoint would still be true, but the journal may be purged up to the newer one."""
        snapshots = Snapshots(faulty, names, await own(faulty, names, "a"))
        batches = remember_batches(faulty)
        await snapshots.write([], [], 5, Checkpoint(journal_position=5))
        await snapshots.write([], [], 6, Checkpoint(journal_position=6))
        await snapshots.write([state(delivered=1)], [], 7, Checkpoint(journal_position=7))
        assert len(batches) == 3
        for late in batches:
            assert isinstance(await js.publish_batch(late), Refused)
        assert await read_checkpoint(js, names, SHARD) == Checkpoint(journal_position=7)
        assert await snapshots.write([state(delivered=2)], [], 9, Checkpoint(journal_position=9))
        assert await snapshots.load(RECEIVER) == state(delivered=2)
        assert await read_checkpoint(js, names, SHARD) == Checkpoint(journal_position=9)

    async def test_only_the_last_batch_of_a_write_carries_its_checkpoint(
        self, names: Names, faulty: FaultyJetStream
    ) -> None:
        """Earlier batches may come before some of the state that the checkpoint names."""
        first = await own(faulty, names, "a")
        await Snapshots(faulty, names, first).write([], [], 5, Checkpoint(journal_position=5, floor=3))
        snapshots = Snapshots(faulty, names, await own(faulty, names, "b"))
        batches = remember_batches(faulty)
        await snapshots.write(states(2 * BATCH_MESSAGES_MAX), [], 7, Checkpoint(journal_position=7))
        await snapshots.write(states(BATCH_MESSAGES_MAX), [], 9, Checkpoint(journal_position=9))
        said = [msgspec.json.decode(batch[-1].data, type=Checkpoint) for batch in batches]
        assert said[:3] == [Checkpoint(journal_position=5, floor=3)] * 2 + [Checkpoint(journal_position=7)]
        assert [each.journal_position for each in said] == [5, 5, 7, 7, 9]


class TestRefusedBatches:
    @pytest.mark.parametrize("answer", [
        Refused(TOO_MANY_BATCHES, "too many batches"), Refused(CUT_OFF, "incomplete"),
        Refused(10164, "in flight"), Unanswered("lost"),
    ])  # fmt: skip
    async def test_a_trouble_that_passes_is_waited_for(
        self, names: Names, faulty: FaultyJetStream, answer: Answer
    ) -> None:
        snapshots = Snapshots(faulty, names, await own(faulty, names, "a"))
        batches = remember_batches(faulty, [answer, answer])
        assert await snapshots.write([state()], [], 7, Checkpoint(journal_position=7))
        assert len(batches) == 3
        assert await snapshots.load(RECEIVER) == state()

    async def test_a_batch_whose_answer_was_lost_is_stored_once(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        snapshots = Snapshots(faulty, names, await own(faulty, names, "a"))
        publish_batch, answers = faulty.publish_batch, [Unanswered("lost")]

        async def lose(puts: list[Put], timeout_s: float = 5.0) -> Answer:
            answer = await publish_batch(puts, timeout_s)
            return answers.pop() if answers else answer

        faulty.publish_batch = lose  # type: ignore[method-assign, assignment]
        assert await snapshots.write([state(delivered=1)], [], 7, Checkpoint(journal_position=7))
        assert await snapshots.write([state(delivered=2)], [], 9, Checkpoint(journal_position=9))
        assert await snapshots.load(RECEIVER) == state(delivered=2)

    async def test_a_trouble_that_does_not_pass_is_reported(
        self, names: Names, faulty: FaultyJetStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streams.journal.snapshots.BATCH_TIMEOUT_S", 0.1)
        snapshots = Snapshots(faulty, names, await own(faulty, names, "a"))
        remember_batches(faulty, [Unanswered("lost")] * 100)
        with pytest.raises(Unavailable, match="lost"):
            await snapshots.write([state()], [], 7, Checkpoint(journal_position=7))


TOO_DEEP = b'{"v": 1, "as_of": ' + b"[" * 5000 + b"]" * 5000 + b"}"


class TestVersions:
    async def test_a_newer_snapshot_is_refused(self, js: JetStream, names: Names) -> None:
        snapshots = Snapshots(js, names, await own(js, names, "a"))
        await js.publish(names.actor_keys.actor(SHARD, RECEIVER), b'{"v": 3, "as_of": "x"}')
        with pytest.raises(NewerVersion, match=r"acme\.billing has version 3"):
            await snapshots.load(RECEIVER)

    async def test_a_newer_checkpoint_is_refused(self, js: JetStream, names: Names) -> None:
        await js.publish(names.actor_keys.checkpoint(SHARD), b'{"v": 5}')
        with pytest.raises(NewerVersion, match="version 5"):
            await read_checkpoint(js, names, SHARD)

    @pytest.mark.parametrize("data", [b"mine!", b'{"v": 1, "as_of": "\xff"}', TOO_DEEP])
    async def test_data_that_is_not_ours_is_reported(self, js: JetStream, names: Names, data: bytes) -> None:
        snapshots = Snapshots(js, names, await own(js, names, "a"))
        await js.publish(names.actor_keys.actor(SHARD, RECEIVER), data)
        with pytest.raises(NotOurs, match=r"acme\.billing was not written by Angarium"):
            await snapshots.load(RECEIVER)


def remember_batches(js: FaultyJetStream, answers: list[Answer] | None = None) -> list[list[Put]]:
    """The batches that are published from now on; the first ones get these answers and are not stored."""
    batches: list[list[Put]] = []
    scripted = list(answers or [])

    async def publish_batch(puts: list[Put], timeout_s: float = 5.0) -> Answer:
        batches.append(list(puts))
        return scripted.pop(0) if scripted else await JetStream.publish_batch(js, puts, timeout_s)

    js.publish_batch = publish_batch  # type: ignore[method-assign, assignment]
    return batches
