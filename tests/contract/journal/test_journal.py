"""The journal of a shard: what it groups, what it retries, and when it must stop."""

import asyncio

import msgspec
import pytest

from actors.errors import Unavailable
from actors.machine.facts import AttemptFailed, Delivered
from actors.machine.numbering import Numbered
from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.journal.envelope import encode_flush
from streams.journal.journal import Journal
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED, MESSAGE_ID
from tests.contract.journal.flushes import DAY_S, Keep, add, flushes, last_of, positions
from tests.contract.support.faults import (
    Fault,
    FaultyJetStream,
    ack_lost,
    after,
    refused,
    request_lost,
    stored_twice,
)
from tests.contract.support.shards import RECEIVER, SHARD, Clocks, Listening, blank, own, repeated
from tests.support.waiting import until

STORE_FULL = 10077


class TestFlushes:
    async def test_facts_that_are_added_together_are_flushed_together(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        add(journal, 10)
        assert (journal.index, journal.confirmed_index) == (10, 0)
        await listening.has(10)
        [flush] = await flushes(js, names)
        assert positions(flush) == list(range(1, 11))
        assert (flush.node, flush.flush) == ("a", 1)
        assert listening.indices == list(range(1, 11))
        assert [entry.state for entry in listening.entries] == [blank()] * 10
        assert journal.confirmed_index == 10
        assert listening.positions == [journal.position] == [(await last_of(js, names)).position]

    async def test_an_urgent_fact_takes_those_before_it_along(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        add(journal, 3)
        add(journal, 1, urgent=True)
        await listening.has(4)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2, 3, 4]]

    async def test_facts_that_are_needed_soon_do_not_wait_for_others(
        self, js: JetStream, names: Names, keep: Keep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streams.journal.journal.GATHER_FACTS_S", 600.0)
        journal, listening = await keep()
        add(journal, 1, urgent=True)
        await listening.has(1)
        add(journal, 12)
        journal.flush()
        await listening.has(13)

    async def test_facts_that_name_256_events_do_not_wait_for_others(
        self, js: JetStream, names: Names, keep: Keep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streams.journal.journal.GATHER_FACTS_S", 600.0)
        journal, listening = await keep()
        add(journal, 1, urgent=True)
        await listening.has(1)
        for first in (1, 129):
            events = tuple(
                Numbered(sequence=i, position=i, id=f"e{i}", stored_at=1.5) for i in range(first, first + 128)
            )
            journal.add(Delivered(receiver=RECEIVER, events=events, at=2.5, attempt=1), blank())
        await listening.has(3)
        assert [len(flush.facts) for flush in await flushes(js, names)] == [1, 2]

    async def test_only_a_flush_with_failed_batches_needs_a_newer_node(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        events = tuple(Numbered(sequence=i, position=i, id=f"e{i}", stored_at=1.5) for i in (1, 2))
        alone = AttemptFailed(receiver=RECEIVER, events=events[:1], at=2.5, attempt=1)
        together = AttemptFailed(receiver=RECEIVER, events=events, at=2.5, attempt=1)
        half = AttemptFailed(receiver=RECEIVER, events=events[:1], at=2.5, attempt=1, halved=True)
        for fact in (alone, together, half):
            journal.add(fact, blank(), urgent=True)
            await listening.has(journal.index)
        assert [flush.v for flush in await flushes(js, names)] == [4, 5, 5]

    async def test_one_append_is_under_way_at_a_time(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        hold, held = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            held.set()
            await hold.wait()

        faulty.faults[names.journal_of(SHARD)].append(after(wait))
        add(journal, 2, urgent=True)
        await held.wait()
        add(journal, 3, urgent=True)
        assert len(faulty.published[names.journal_of(SHARD)]) == 2, "the claim and one flush"
        hold.set()
        await listening.has(5)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3, 4, 5]]

    async def test_a_flush_is_cut_at_a_quarter_of_the_largest_message(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        room = js.wire.max_payload // 4
        for _ in range(5):
            journal.add(repeated(journal.index + 1, "acme." + "x" * (room // 2)), blank())
        await listening.has(5)
        found = await flushes(js, names)
        assert [positions(flush) for flush in found] == [[1], [2], [3], [4], [5]]
        assert journal.totals.flushes == 5
        assert journal.totals.facts == 5

    async def test_each_append_expects_the_one_before(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        add(journal, 1, urgent=True)
        await listening.has(1)
        first = journal.position
        add(journal, 1, urgent=True)
        await listening.has(2)
        headers = [headers for _, headers in faulty.published[names.journal_of(SHARD)]]
        assert headers[2][EXPECTED] == str(first)
        ids = [each[MESSAGE_ID] for each in headers]
        assert len(dict.fromkeys(ids)) == 3

    async def test_a_quiet_shard_gives_signs_of_life(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep(retention_s=0.4)
        await until(lambda: len(listening.positions) >= 2)
        assert [flush.facts for flush in (await flushes(js, names))[:2]] == [(), ()]
        assert listening.entries == []
        assert journal.position >= listening.positions[1]


class TestFloor:
    async def test_the_floor_is_asked_for_the_facts_of_the_flush_only(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep(Listening(released=lambda index: 100 * index))
        add(journal, 2, urgent=True)
        await listening.has(2)
        assert [flush.floor for flush in await flushes(js, names)] == [200]
        assert journal.floor == 200

    async def test_the_floor_never_falls(self, js: JetStream, names: Names, keep: Keep) -> None:
        floors = iter([50, 20, 70])
        journal, listening = await keep(Listening(released=lambda _: next(floors)))
        for count in (1, 2, 3):
            add(journal, 1, urgent=True)
            await listening.has(count)
        assert [flush.floor for flush in await flushes(js, names)] == [50, 50, 70]

    async def test_the_floor_is_the_claims_at_first(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        before = Journal(
            faulty, names, await own(faulty, names, "a"), "a", listening := Listening(lambda _: 33),
            time=Clocks(), retention_s=DAY_S,
        )  # fmt: skip
        before.start()
        before.add(repeated(1), blank(), urgent=True)
        await listening.has(1)
        await before.stop()
        journal, _ = await keep(Listening(), await own(faulty, names, "a"))
        assert journal.floor == 33


class TestLostAnswers:
    """Repeated until it is decided, the same bytes, and stored once."""

    @pytest.mark.parametrize(
        "faults",
        [
            [request_lost],
            [ack_lost],
            [request_lost, ack_lost],
            [stored_twice],
            [refused(10164), refused(10158)],
            [refused(STORE_FULL), refused(STORE_FULL)],
            [ack_lost, refused(10164), refused(10158)],
        ],
        ids=["request", "ack", "both", "twice", "in-flight", "full", "ack-then-in-flight"],
    )
    async def test_the_flush_is_stored_once_and_confirmed(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream, faults: list[Fault]
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += faults
        add(journal, 2, urgent=True)
        await listening.has(2)
        add(journal, 1, urgent=True)
        await listening.has(3)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3]]
        assert listening.fences == []
        repeats = faulty.published[names.journal_of(SHARD)][1:-1]
        assert repeats == [repeats[0]] * len(repeats), "the same bytes and headers each time"

    async def test_newer_facts_wait_for_a_lost_answer(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [request_lost, request_lost]
        add(journal, 1, urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
        add(journal, 1, urgent=True)
        await listening.has(2)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1], [2]]

    async def test_a_full_journal_is_reported(
        self, names: Names, keep: Keep, faulty: FaultyJetStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [refused(STORE_FULL)] * 3
        add(journal, 1, urgent=True)
        await listening.has(1)
        assert [record.message for record in caplog.records] == ["append.refused"]

    async def test_a_leader_that_cannot_be_asked_is_asked_again(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        async def fail() -> None:
            raise Unavailable("no leader")

        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)].append(ack_lost)
        faulty.before_last[names.journal_of(SHARD)] += [fail, fail]
        add(journal, 1, urgent=True)
        await listening.has(1)
        assert listening.fences == []


class TestFence:
    async def fenced(self, journal: Journal, listening: Listening) -> None:
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert journal.is_stalled
        add(journal, 1, urgent=True)
        assert not await journal.drain(5.0)
        assert (journal.confirmed_index, listening.entries, len(listening.fences)) == (0, [], 1)

    async def test_another_claim_fences_the_journal(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        await own(js, names, "b")
        await self.fenced(journal, listening)
        assert await flushes(js, names) == []

    async def test_another_claim_fences_a_journal_whose_ack_was_lost(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        """The flush is stored, and the new owner knows it; this journal must confirm nothing more."""

        async def overtake() -> None:
            await own(js, names, "b")

        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [ack_lost, after(overtake)]
        await self.fenced(journal, listening)

    async def test_an_older_flush_of_our_own_fences_the_journal(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        """The last flush is not ours: another process has our name and epoch, or the journal was restored."""
        journal, listening = await keep()
        claimed = journal.claim
        alien = encode_flush(
            node="a", epoch=claimed.epoch, flush=0, floor=0, routing=NOTHING_ROUTED, at=0.0,
            unclean=None, facts=[],
        )  # fmt: skip
        await js.publish(names.journal_of(SHARD), alien)
        await self.fenced(journal, listening)

    async def test_a_fenced_flush_is_never_sent_with_another_expectation(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        await own(js, names, "b")
        await self.fenced(journal, listening)
        expectations = [headers[EXPECTED] for _, headers in faulty.published[names.journal_of(SHARD)][1:]]
        assert len(dict.fromkeys(expectations)) == 1


class TestEmptyJournal:
    """A journal that aged out while its owner could not append for days."""

    async def test_an_empty_journal_begins_again_while_the_owner_is_the_same(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        await js.purge(names.journal, journal.position + 1)
        add(journal, 2, urgent=True)
        await listening.has(2)
        assert listening.fences == []
        add(journal, 1, urgent=True)
        await listening.has(3)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3]]

    async def test_an_empty_journal_stops_the_shard_if_another_node_put_the_owner(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        await js.purge(names.journal, journal.position + 1)
        await js.publish(names.actor_keys.owner(SHARD), msgspec.json.encode(Owner(node="b", at=0.0)))
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert await flushes(js, names) == []


class TestStalledAndDrained:
    async def test_a_journal_is_stalled_while_an_append_is_unconfirmed(
        self, names: Names, keep: Keep, faulty: FaultyJetStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streams.journal.journal.STALLED_AFTER_S", 0.2)
        journal, listening = await keep()
        assert not journal.is_stalled
        hold = asyncio.Event()
        faulty.faults[names.journal_of(SHARD)].append(after(hold.wait))
        add(journal, 1, urgent=True)
        await until(lambda: journal.is_stalled)
        hold.set()
        await listening.has(1)
        assert not journal.is_stalled

    async def test_facts_may_be_added_before_it_starts(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        listening = Listening()
        claimed = await own(js, names, "a")
        journal = Journal(js, names, claimed, "a", listening, time=Clocks(), retention_s=DAY_S)
        add(journal, 2)
        assert journal.is_stalled
        journal.start()
        await listening.has(2)
        await journal.stop()

    async def test_a_journal_is_drained_once_all_is_confirmed(self, names: Names, keep: Keep) -> None:
        journal, _ = await keep()
        assert await journal.drain(5.0)
        add(journal, 3)
        assert await journal.drain(5.0)
        assert journal.confirmed_index == 3

    async def test_a_journal_that_is_not_answered_is_not_drained_in_time(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, _ = await keep()
        faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
        add(journal, 1)
        assert not await journal.drain(0.1)

    async def test_a_listener_that_breaks_stops_the_shard(
        self, names: Names, keep: Keep, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_: int) -> int:
            raise RuntimeError("broken")

        journal, listening = await keep(Listening(released=broken))
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert journal.is_stalled
        assert [record.message for record in caplog.records] == ["journal.broken"]
