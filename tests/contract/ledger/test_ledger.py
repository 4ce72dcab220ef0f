"""Each fact is in the ledger once, despite any crash; gaps are recorded, a foreign journal is refused."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.evolve import evolve
from actors.machine.pace.pace import LoweredRate, Pace
from actors.machine.state import State
from angarium.ledger import schema
from angarium.ledger import writer as writing
from angarium.ledger.batch import BaseRow
from angarium.ledger.postgres.store import PostgresStore
from angarium.ledger.sqlite.store import SqliteStore, sqlite_store
from angarium.ledger.sqlite.writer_lock import writer_lock
from angarium.ledger.store import LedgerError
from angarium.ledger.writer import Writer
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from tests.support.installation import shard
from tests.support.ledgers import (
    KEEP_S,
    NOW,
    RECEIVER,
    JournalWriter,
    Kept,
    Killed,
    catch_up,
    delivered,
    failed,
    numbered,
    opens,
    writer,
)

MS = round(NOW * 1000)
PACE = Pace(lowered=LoweredRate(2.5, 5.0, NOW + 91))


async def tell(journal: JournalWriter) -> None:
    """A story in which everything happens that has a row."""
    await journal.flush(f.Claimed(epoch=1, at=NOW, clean=True, position=0))
    await journal.flush(opens(), f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)))
    await journal.flush(opens("acme.other"), receiver="acme.other")
    await journal.flush(delivered(1), failed(2, NOW + 2))
    await journal.flush(failed(2, NOW + 4, attempt=2, status=None, error="timeout: no answer within 15 s"))
    await journal.flush(f.Throttled(
        receiver=RECEIVER, events=(numbered(2),), at=NOW + 80, attempt=3, status=429, until=NOW + 90
    ))  # fmt: skip
    await journal.flush(delivered(2, NOW + 90, attempt=4), f.Paused(receiver=RECEIVER, at=NOW + 91))
    await journal.flush(
        f.PaceSet(receiver=RECEIVER, at=NOW + 91, pace=PACE, per_second=2.5, limited_by="after_429")
    )
    await journal.flush(f.Resumed(receiver=RECEIVER, at=NOW + 92), f.Pinged(receiver=RECEIVER, at=NOW + 92))
    await journal.flush(delivered(0, NOW + 93, events=(), kind="ping"))
    await journal.flush(
        failed(3, NOW + 94, status=400, rejected=True),
        f.DeadLettered(receiver=RECEIVER, events=(numbered(3),), at=NOW + 95, reason="rejected", attempts=1),
        f.Buried(receiver=RECEIVER, positions=(103,)),
    )
    await journal.flush(f.EventsNumbered(receiver=RECEIVER, events=(numbered(4), numbered(5))))
    await journal.flush(
        delivered(4, NOW + 96),
        f.DeadLettered(receiver=RECEIVER, events=(numbered(6),), at=NOW + 96, reason="region"),
        f.Forgot(receiver=RECEIVER, at=NOW + 97, position=105, next_sequence=9, discarded=3),
    )
    await journal.flush(f.EventsNumbered(receiver=RECEIVER, events=(numbered(9),)))
    await journal.flush(delivered(1, receiver="acme.other"), receiver="acme.other")


async def test_every_attempt_and_every_delivery_has_a_row(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await tell(journal)
    await catch_up(js, names, ledger)
    mine = "receiver = (SELECT id FROM receivers WHERE name = 'acme.billing')"
    attempts = await ledger.rows(
        f"SELECT sequence, attempt, at, verdict, status, error FROM attempts WHERE {mine} ORDER BY at"
    )
    at = [MS + round(each * 1000) - 12 for each in (1, 2, 4, 80, 90, 93, 94, 96)]
    v = schema
    assert attempts == [
        (1, 1, at[0], v.DELIVERED, 200, None),
        (2, 1, at[1], v.FAILED, 500, None),
        (2, 2, at[2], v.FAILED, None, "timeout: no answer within 15 s"),
        (2, 3, at[3] + 12, v.THROTTLED, 429, None),
        (2, 4, at[4], v.DELIVERED, 200, None),
        (0, 1, at[5], v.DELIVERED, 200, None),
        (3, 1, at[6], v.REJECTED, 400, None),
        (4, 1, at[7], v.DELIVERED, 200, None),
    ]
    deliveries = await ledger.rows(
        f"SELECT sequence, event, ending, reason, attempts FROM deliveries WHERE {mine} ORDER BY sequence",
    )
    assert deliveries == [
        (1, "e1", v.SETTLED, None, 1),
        (2, "e2", v.SETTLED, None, 4),
        (3, "e3", v.DEAD, "rejected", 1),
        (4, "e4", v.SETTLED, None, 1),
        (5, "e5", v.DISCARDED, None, 0),
        (6, "e6", v.DISCARDED, "region", 0),
        (9, "e9", None, None, 0),
    ]
    changes = [kind for (kind,) in await ledger.rows(f"SELECT kind FROM changes WHERE {mine} ORDER BY at")]
    assert sorted(changes) == ["forgot", "opened", "paused", "rate_set", "recovered", "resumed"]
    ((at, pace, *limits),) = await ledger.rows(
        f"SELECT at, pace, per_second, in_flight, limited_by, in_flight_by FROM paces WHERE {mine}"
    )
    assert (at, msgspec.json.decode(pace, type=Pace)) == (MS + 91_000, PACE)
    assert limits == [2.5, None, "after_429", ""]
    totals = await ledger.rows(f"SELECT sum(attempts), sum(delivered), sum(dead) FROM minutes WHERE {mine}")
    assert totals == [(7, 3, 1)]
    claims = await ledger.rows("SELECT shard, node, epoch, clean FROM claims")
    assert claims == [(shard(RECEIVER), "one", 1, 1)]


SQLITE, POSTGRES = ("memory", "sqlite"), ("memory", "postgresql")


@pytest.mark.parametrize(
    ("world", "every"),
    [
        pytest.param(SQLITE, 7, id="sqlite, some"),
        pytest.param(SQLITE, 1, id="sqlite", marks=pytest.mark.soak),
        pytest.param(POSTGRES, 14, id="postgresql, some"),
        pytest.param(POSTGRES, 1, id="postgresql", marks=pytest.mark.soak),
    ],
)
async def test_a_crash_between_any_two_statements_repeats_nothing_and_loses_nothing(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    every: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 4)
    await tell(journal)
    await StoredConfigurations(js, names).put(RECEIVER, b'{"url": "https://example.com/"}')
    await catch_up(js, names, ledger)
    expected, deaths = await ledger.contents(), 0
    for after in range(0, 1000, every):
        await ledger.empty()
        try:
            async with ledger.dying(after) as store:
                await writer(js, names, store).catch_up()
        except Killed:
            deaths += 1
            await ledger.lapse()
            await catch_up(js, names, ledger)
        else:
            break
        assert await ledger.contents() == expected, after
    assert deaths > 30 / every


async def test_a_recreated_journal_is_refused(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    before = await ledger.contents()
    async with ledger.store() as store:
        read_to = (await store.renew_shares(names.journal))[0].read_to
        await ledger.execute("UPDATE positions SET created = 'another' WHERE stream = ?", names.journal)
        with pytest.raises(LedgerError, match=r"was recreated.*choose another one with --to"):
            await writer(js, names, store).catch_up()
        await ledger.execute("UPDATE positions SET created = ?", read_to.created)
        await ledger.execute("UPDATE positions SET position = 7 WHERE stream = ?", names.journal)
        with pytest.raises(LedgerError, match=r"ends at 1.*choose another one with --to"):
            await writer(js, names, store).catch_up()
    assert await ledger.contents() == before


async def test_nothing_is_stored_that_was_read_of_a_journal_recreated_after_the_comparison(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    """The connection was lost between the comparison and the read, and came back with another journal."""
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    info = await js.stream_info(names.journal)
    assert info is not None
    async with ledger.store() as store:
        following = writer(js, names, store)
        await following.renew()
        feed = journal_reader.JournalReader(js, names)
        read = feed.read

        async def read_of_another(after: int) -> list[StoredMessage] | journal_reader.Gap:
            await js.request(f"$JS.API.STREAM.DELETE.{names.journal}", b"")
            await js.stream_create(info.config)
            await journal.flush(opens())
            await journal.flush(delivered(7))
            js.connection_changed(True)
            return await read(after)

        feed.read = read_of_another  # type: ignore[method-assign,assignment]
        assert await following.store_next(feed)
        with pytest.raises(LedgerError, match="was recreated"):
            await following.store_next(feed)
        feed.stop()
    assert await ledger.rows("SELECT sequence FROM deliveries") == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"v": 99}', r"message 3 of .* has version 99.*upgrade this node"),
        (
            b'{"v": 2, "node": "n", "epoch": 1, "flush": 1, "floor": 0, "at": 1, '
            b'"facts": [{"fact": "melted"}]}',
            "melted",
        ),
        (b"what?", "not written by Angarium"),
    ],
)
async def test_the_writer_stops_at_an_unreadable_flush_after_storing_all_before_it(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, data: bytes, why: str
) -> None:
    await journal.flush(opens())
    await journal.flush(delivered(1))
    at = await journal.put(data)
    await journal.flush(delivered(2))
    for _ in range(2):
        with pytest.raises(LedgerError, match=why) as raised:
            await catch_up(js, names, ledger)
        assert "the ledger has all before it" in str(raised.value)
    assert await ledger.rows("SELECT sequence FROM deliveries") == [(1,)]
    assert await ledger.rows("SELECT DISTINCT position FROM positions WHERE stream = ?", names.journal) == [
        (at - 1,)
    ]


@pytest.mark.parametrize("world", [SQLITE])
async def test_two_writers_of_one_file_are_one_too_many(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens())
    async with ledger.store() as one, ledger.store() as other:
        first, second = writer(js, names, one), writer(js, names, other)
        await second.renew()
        await first.catch_up()
        reader = journal_reader.JournalReader(js, names)
        with pytest.raises(LedgerError, match="another process writes"):
            await second.store_next(reader)
        reader.stop()
    assert await ledger.rows("SELECT count(*) FROM facts") == [(1,)]


async def test_a_second_writer_of_a_file_is_refused_and_does_not_stop_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with sqlite_store(path):
        with writer_lock(path):
            with pytest.raises(LedgerError, match="another process writes"), writer_lock(path):
                pass
            with pytest.raises(LedgerError, match="another process writes"), writer_lock(path):
                pass
        with writer_lock(path):
            pass


async def test_a_base_state_folds_what_the_actor_would(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.ledger.fold.BASE_EVERY_FACTS", 3)
    await tell(journal)
    await catch_up(js, names, ledger)
    bases = await ledger.rows(
        "SELECT state FROM states JOIN receivers ON id = receiver WHERE name = ? ORDER BY position", RECEIVER
    )
    assert bases
    state = State(receiver=RECEIVER)
    facts = await ledger.rows(
        "SELECT facts FROM facts JOIN receivers ON id = receiver WHERE name = ? ORDER BY position",
        RECEIVER,
    )
    for (text,) in facts:
        for fact in msgspec.json.decode(text, type=list[f.Fact]):
            state = evolve(state, fact)
    assert msgspec.json.decode(bases[-1][0], type=State) == state


async def test_base_states_of_a_batch_are_stored_together(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction for each would cost more than the facts."""
    monkeypatch.setattr("angarium.ledger.fold.BASE_EVERY_FACTS", 1)
    stored: list[int] = []
    for store in (SqliteStore, PostgresStore):

        async def counted(
            self: Any, bases: Sequence[BaseRow], add: Callable[..., Any] = store.add_bases
        ) -> None:
            stored.append(len(bases))
            await add(self, bases)

        monkeypatch.setattr(store, "add_bases", counted)
    receivers = [RECEIVER, "acme.other", "acme.third"]
    for each in receivers:
        await journal.flush(opens(each), receiver=each)
    await catch_up(js, names, ledger)
    assert stored == [3]
    since = (
        "SELECT name, facts_since, bytes_since, base_bytes > 0, last_position FROM receivers ORDER BY name"
    )
    assert [(row[0], row[1], row[2], bool(row[3])) for row in await ledger.rows(since)] == [
        (each, 0, 0, True) for each in sorted(receivers)
    ]


async def test_a_clock_that_was_set_back_does_not_hide_that_the_ledger_is_behind(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    """A time in the future would hide that the ledger is behind."""
    now = NOW + 3600
    async with ledger.store() as store:
        resting = Writer(js, names, store, keep_s=KEEP_S, wall=lambda: now)
        await resting.catch_up()
        now -= 3000
        await journal.flush(opens())
        await resting.catch_up()
    query = "SELECT DISTINCT seen_at FROM positions WHERE stream = ?"
    assert await ledger.rows(query, names.journal) == [(MS + 600_000,)]


async def test_old_rows_are_dropped_and_the_state_stays_known(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(schema, "CLOCKS_APART_MS", 0)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    for sequence in range(1, 6):
        await journal.flush(*([opens()] if sequence == 1 else []), delivered(sequence, NOW + sequence))
    await journal.flush(delivered(6, NOW + 3500), delivered(7, NOW + 3500))
    journal.at = NOW + 3600
    await journal.flush(delivered(8, NOW + 3600))
    async with ledger.store() as store:
        periods, block = count(1), store.block_for
        monkeypatch.setattr(store, "block_for", lambda at: block(next(periods) * round(KEEP_S * 1000)))
        pruning = writer(js, names, store, keep_s=600)
        await pruning.catch_up()
        async with asyncio.timeout(60):  # What is dropped on another connection takes its time.
            while await ledger.rows("SELECT sequence FROM deliveries ORDER BY sequence") != [
                (6,),
                (7,),
                (8,),
            ]:
                await pruning.prune()
        while pruning.is_dropping:
            await pruning.prune()
            await asyncio.sleep(0.001)
        await pruning.prune()
    assert await ledger.rows("SELECT sequence FROM deliveries ORDER BY sequence") == [(6,), (7,), (8,)]
    assert await ledger.rows("SELECT sequence FROM attempts ORDER BY sequence") == [(6,), (7,), (8,)]
    bases = await ledger.rows("SELECT state FROM states ORDER BY position")
    assert msgspec.json.decode(bases[-1][0], type=State).settled_sequence == 5


async def test_nothing_secret_is_stored(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    raw = (
        b'{"url": "https://example.com/T0PSECRET", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], '
        b'"headers": {"x-key": "K3YVALUE"}, "order": "relaxed"}'
    )
    await StoredConfigurations(js, names).put(RECEIVER, raw)
    await journal.flush(
        opens(), failed(1, status=None, error="connect: https://u:passw0rd@example.com/ failed")
    )
    await catch_up(js, names, ledger)
    stored = await ledger.dump()
    for secret in (b"T0PSECRET", b"MfKQ9r8", b"K3YVALUE"):
        assert secret not in stored
    assert b"relaxed" in stored
    assert await ledger.rows("SELECT error FROM attempts") == [("connect: https://…@example.com/ failed",)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GATHER_FLUSHES_S", 0.01)
