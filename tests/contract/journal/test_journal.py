"""The journal of a shard: what it groups, what it repeats, and when it has to stop."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from actors.errors import Unavailable
from actors.machine.facts import Repeated
from streams.installation.topology import Names
from streams.journal.claim import Claim, Owner
from streams.journal.envelope import Flush, decode_flush, encode_flush
from streams.journal.journal import FLUSH_AT_FACTS, FLUSH_BEAT_S, GATHER_FACTS_S, SMALL_FLUSH_FACTS, Journal
from streams.nats.answers import StoredMessage
from streams.nats.headers import EXPECTED, MESSAGE_ID
from streams.nats.jetstream import JetStream
from streams.routing_progress import NOTHING_ROUTED
from tests.contract.support.faults import (
    Fault,
    FaultyJetStream,
    ack_lost,
    after,
    refused,
    request_lost,
    stored_twice,
)
from tests.contract.support.shards import SHARD, Clocks, Listening, blank, own, repeated
from tests.support.waiting import until

DAY_S = 86_400.0
STORE_FULL = 10077


Keep = Callable[..., Awaitable[tuple[Journal, Listening]]]


@pytest.fixture
async def keep(faulty: FaultyJetStream, names: Names) -> AsyncIterator[Keep]:
    """A started journal of node a over the faulty JetStream, and who listens to it."""
    journals: list[Journal] = []

    async def start(
        listening: Listening | None = None, claim: Claim | None = None, retention_s: float = DAY_S
    ) -> tuple[Journal, Listening]:
        listening = listening or Listening()
        claim = claim or await own(faulty, names, "a")
        journal = Journal(faulty, names, claim, "a", listening, time=Clocks(), retention_s=retention_s)
        journal.start()
        journals.append(journal)
        return journal, listening

    yield start
    for journal in journals:
        await journal.stop()


def add(journal: Journal, count: int, *, urgent: bool = False) -> None:
    for _ in range(count):
        journal.add(repeated(journal.index + 1), blank(), urgent)


async def flushes(js: JetStream, names: Names) -> list[Flush]:
    """All flushes, that of the claim left out."""
    page = await js.read(names.journal, names.journal_of(SHARD), 1)
    return [flush for message in page.messages if (flush := decode_flush(message.data, "the journal")).flush]


async def last_of(js: JetStream, names: Names) -> StoredMessage:
    message = await js.last_message(names.journal, names.journal_of(SHARD))
    assert message is not None
    return message


def is_beat(at: float) -> bool:
    return math.isclose(at, round(at / FLUSH_BEAT_S) * FLUSH_BEAT_S, abs_tol=1e-6, rel_tol=0)


def positions(flush: Flush) -> list[int]:
    return [fact.position for fact in flush.facts if isinstance(fact, Repeated)]


class TestGrouping:
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
        assert listening.sequences == [journal.sequence] == [(await last_of(js, names)).sequence]

    async def test_enough_facts_wait_for_nothing(self, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        add(journal, 1, urgent=True)
        await listening.has(1)
        before = asyncio.get_running_loop().time()
        add(journal, FLUSH_AT_FACTS)
        assert journal._due_at() <= before + 0.1

    async def test_an_urgent_fact_takes_those_before_it_along(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        add(journal, 3)
        add(journal, 1, urgent=True)
        assert journal._due_at() <= asyncio.get_running_loop().time()
        await listening.has(4)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2, 3, 4]]

    async def test_the_first_after_a_silence_waits_for_the_next_beat_and_others_longer(
        self, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        loop = asyncio.get_running_loop()
        await until(lambda: loop.time() - journal._cut_at > GATHER_FACTS_S)
        add(journal, 1)
        due_at = journal._due_at()
        assert due_at <= journal._waiting_since + FLUSH_BEAT_S
        assert is_beat(due_at)
        await listening.has(1)
        assert loop.time() >= due_at
        add(journal, 1)
        due_at, latest = journal._due_at(), journal._waiting_since + GATHER_FACTS_S
        assert latest - FLUSH_BEAT_S <= due_at <= latest
        assert is_beat(due_at)
        add(journal, SMALL_FLUSH_FACTS - 1)
        assert journal._due_at() == latest

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
        assert journal.statistics.flushes == 5
        assert journal.statistics.facts == 5

    async def test_each_append_expects_the_one_before(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        add(journal, 1, urgent=True)
        await listening.has(1)
        first = journal.sequence
        add(journal, 1, urgent=True)
        await listening.has(2)
        headers = [headers for _, headers in faulty.published[names.journal_of(SHARD)]]
        assert headers[2][EXPECTED] == str(first)
        ids = [each[MESSAGE_ID] for each in headers]
        assert len(dict.fromkeys(ids)) == 3

    async def test_a_quiet_shard_gives_signs_of_life(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep(retention_s=0.4)
        await until(lambda: len(listening.sequences) >= 2)
        assert [flush.facts for flush in (await flushes(js, names))[:2]] == [(), ()]
        assert listening.entries == []
        assert journal.sequence >= listening.sequences[1]


class TestTheFloor:
    async def test_is_asked_for_the_facts_of_the_flush_only(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep(Listening(released=lambda index: 100 * index))
        add(journal, 2, urgent=True)
        await listening.has(2)
        assert [flush.floor for flush in await flushes(js, names)] == [200]
        assert journal.floor == 200

    async def test_never_falls(self, js: JetStream, names: Names, keep: Keep) -> None:
        floors = iter([50, 20, 70])
        journal, listening = await keep(Listening(released=lambda _: next(floors)))
        for count in (1, 2, 3):
            add(journal, 1, urgent=True)
            await listening.has(count)
        assert [flush.floor for flush in await flushes(js, names)] == [50, 50, 70]

    async def test_is_the_claims_at_first(self, names: Names, keep: Keep, faulty: FaultyJetStream) -> None:
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

    async def test_newer_facts_wait(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [request_lost, request_lost]
        add(journal, 1, urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
        add(journal, 1, urgent=True)
        await listening.has(2)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1], [2]]

    async def test_a_full_journal_is_said(
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


class TestTheFence:
    async def fenced(self, journal: Journal, listening: Listening) -> None:
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert journal.stalled
        add(journal, 1, urgent=True)
        assert not await journal.drain(5.0)
        assert (journal.confirmed_index, listening.entries, len(listening.fences)) == (0, [], 1)

    async def test_another_claim(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        await own(js, names, "b")
        await self.fenced(journal, listening)
        assert await flushes(js, names) == []

    async def test_another_claim_while_the_ack_was_lost(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        """The flush is stored, and the new owner knows it: it settles nothing that this one is not told."""

        async def overtake() -> None:
            await own(js, names, "b")

        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [ack_lost, after(overtake)]
        await self.fenced(journal, listening)

    async def test_an_older_flush_of_our_own(self, js: JetStream, names: Names, keep: Keep) -> None:
        """A second process with our name and epoch, or a journal restored: not what we wrote last."""
        journal, listening = await keep()
        claimed = journal._claim
        alien = encode_flush(
            node="a", epoch=claimed.epoch, flush=0, floor=0, routing=NOTHING_ROUTED, at=0.0,
            unclean=None, facts=[],
        )  # fmt: skip
        await js.publish(names.journal_of(SHARD), alien)
        await self.fenced(journal, listening)

    async def test_never_rebases(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        await own(js, names, "b")
        await self.fenced(journal, listening)
        expectations = [headers[EXPECTED] for _, headers in faulty.published[names.journal_of(SHARD)][1:]]
        assert len(dict.fromkeys(expectations)) == 1


class TestAnEmptyJournal:
    """A journal that aged out while its owner could not append for days."""

    async def test_begins_anew_while_the_owner_is_the_same(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        await js.purge(names.journal, journal.sequence + 1)
        add(journal, 2, urgent=True)
        await listening.has(2)
        assert listening.fences == []
        add(journal, 1, urgent=True)
        await listening.has(3)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3]]

    async def test_stops_the_shard_when_somebody_else_put_the_owner(
        self, js: JetStream, names: Names, keep: Keep
    ) -> None:
        journal, listening = await keep()
        await js.purge(names.journal, journal.sequence + 1)
        await js.publish(names.owner(SHARD), msgspec.json.encode(Owner(node="b", at=0.0)))
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert await flushes(js, names) == []


class TestReclaiming:
    """A lease that lapsed while no node took the shard: the journal goes on from memory."""

    async def lapse(self, journal: Journal, js: JetStream, names: Names, *, rival: bool = False) -> bool:
        await journal.suspend()
        if rival:
            await own(js, names, "b")
        return journal.reclaim(await own(js, names, "a", resumes=journal._claim.epoch))

    async def test_with_nothing_under_way(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        add(journal, 2, urgent=True)
        await listening.has(2)
        assert await self.lapse(journal, js, names)
        add(journal, 1, urgent=True)
        await listening.has(3)
        found = await flushes(js, names)
        assert [positions(flush) for flush in found] == [[1, 2], [3]]
        assert found[0].epoch < found[1].epoch
        assert [flush.flush for flush in found] == [1, 1]

    async def test_before_anything_was_recorded(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        assert await self.lapse(journal, js, names)
        add(journal, 1, urgent=True)
        await listening.has(1)

    async def test_facts_that_were_not_stored_are_sent_again_first(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
        add(journal, 2, urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
        add(journal, 2)
        assert await self.lapse(journal, js, names)
        faulty.faults.clear()
        await listening.has(4)
        [flush] = await flushes(js, names)
        assert positions(flush) == [1, 2, 3, 4]
        assert listening.indices == [1, 2, 3, 4]

    async def test_a_flush_that_was_stored_without_an_answer_is_confirmed(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [ack_lost] + [request_lost] * 100
        add(journal, 2, urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 3)
        stored = (await last_of(js, names)).sequence
        assert listening.entries == []
        assert await self.lapse(journal, js, names)
        assert listening.indices == [1, 2]
        assert listening.sequences == [stored]
        faulty.faults.clear()
        add(journal, 1, urgent=True)
        await listening.has(3)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3]]

    async def test_a_flush_that_arrives_late_is_refused(
        self, js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
        add(journal, 1, urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
        late, headers = faulty.published[names.journal_of(SHARD)][-1]
        assert await self.lapse(journal, js, names)
        await js.publish(names.journal_of(SHARD), late, headers)
        faulty.faults.clear()
        await listening.has(1)
        assert [positions(flush) for flush in await flushes(js, names)] == [[1]]

    async def test_not_when_somebody_else_owned(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, _ = await keep()
        assert not await self.lapse(journal, js, names, rival=True)
        assert journal.stalled

    async def test_not_after_the_fence(self, js: JetStream, names: Names, keep: Keep) -> None:
        journal, listening = await keep()
        await own(js, names, "b")
        add(journal, 1, urgent=True)
        await until(lambda: bool(listening.fences))
        assert not await self.lapse(journal, js, names)


class TestBeingTold:
    async def test_stalled_while_an_append_is_unconfirmed(
        self, names: Names, keep: Keep, faulty: FaultyJetStream
    ) -> None:
        journal, listening = await keep()
        assert not journal.stalled
        hold = asyncio.Event()
        faulty.faults[names.journal_of(SHARD)].append(after(hold.wait))
        add(journal, 1, urgent=True)
        await until(lambda: journal.stalled)
        hold.set()
        await listening.has(1)
        assert not journal.stalled

    async def test_facts_may_be_added_before_it_starts(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        listening = Listening()
        claimed = await own(js, names, "a")
        journal = Journal(js, names, claimed, "a", listening, time=Clocks(), retention_s=DAY_S)
        add(journal, 2)
        assert journal.stalled
        journal.start()
        await listening.has(2)
        await journal.stop()

    async def test_drained(self, names: Names, keep: Keep) -> None:
        journal, _ = await keep()
        assert await journal.drain(5.0)
        add(journal, 3)
        assert await journal.drain(5.0)
        assert journal.confirmed_index == 3

    async def test_not_drained_in_time(self, names: Names, keep: Keep, faulty: FaultyJetStream) -> None:
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
        assert journal.stalled
        assert [record.message for record in caplog.records] == ["journal.broken"]
