"""A ledger equals a plain fold of the journal; of the past it tells the truth, or that it is unknown."""

from random import Random
from typing import Any

import pytest

from angarium.ledger import fold, schema
from angarium.ledger import writer as writing
from angarium.ledger.batch import milliseconds
from angarium.ledger.ledger_answers import Unknown
from angarium.ledger.open import open_for_queries
from angarium.ledger.postgres import leases
from angarium.ledger.postgres import store as postgres_store
from angarium.ledger.queries import LedgerQueries
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.nats.jetstream import JetStream
from tests.contract.ledger.model.expected import Expected, differences, found_in
from tests.contract.ledger.model.fault_injection import KEEP_S, FaultInjector
from tests.contract.ledger.model.history_generator import FLUSH_EVERY_S, RECEIVERS, HistoryGenerator
from tests.sim.server.timing import LoopTiming
from tests.support import ledgers
from tests.support.installation import shard
from tests.support.ledgers import JournalWriter, Kept, catch_up

STEPS = 150
ASKED_TIMES = 15
SQLITE, POSTGRES = ("memory", "sqlite"), ("memory", "postgresql")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, journal: JournalWriter) -> None:
    """Small blocks, reads and base states; and a server with the clock of the history.

    Writers keep their connections when they lose their shares, so that the fence alone refuses them.
    """
    monkeypatch.setattr(leases, "ENDED_CONNECTIONS", "SELECT ?::text")
    monkeypatch.setattr(LoopTiming, "wall_ns", lambda self: round(journal.at * 1e9))
    monkeypatch.setattr(schema, "BLOCK_FACTS", 6)
    monkeypatch.setattr(fold, "BASE_EVERY_FACTS", 7)
    monkeypatch.setattr(fold, "BASE_EVERY_MS", 1 << 60)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 4)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    monkeypatch.setattr(writing, "ERASURES_EVERY_S", 0.0)
    monkeypatch.setattr(schema, "CLOCKS_APART_MS", 10_000)
    monkeypatch.setattr(postgres_store, "PERIOD_MIN_MS", round(4 * FLUSH_EVERY_S * 1000))
    monkeypatch.setattr(ledgers, "KEEP_S", KEEP_S)


SEEDS: list[tuple[tuple[str, str], int, Any]] = [
    *((SQLITE, seed, ()) for seed in (0, 1, 43)),
    *((POSTGRES, seed, ()) for seed in (112, 113)),
    *((SQLITE, seed, pytest.mark.soak) for seed in range(100, 200)),
    *((POSTGRES, seed, pytest.mark.soak) for seed in range(120, 140)),
]


@pytest.mark.parametrize(
    ("world", "seed"),
    [pytest.param(world, seed, id=f"{world[1]}-{seed}", marks=marks) for world, seed, marks in SEEDS],
)
async def test_the_ledger_of_a_random_journal_is_its_plain_fold(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, world: tuple[str, str], seed: int
) -> None:
    chance = Random(seed)
    async with ledger.store():
        history = HistoryGenerator(chance, journal)
    faults = FaultInjector(chance, js, names, ledger, history, writers=2 if world == POSTGRES else 1)
    for _ in range(STEPS):
        await faults.step()
    await faults.stop()
    await history.flush()  # What is missing at the end is known by what follows.
    await ledger.lapse()
    await catch_up(js, names, ledger)
    expected, kept_since = (
        Expected(history, faults.missed, faults.redacted),
        milliseconds(history.now - KEEP_S),
    )
    assert differences(expected, await found_in(ledger), kept_since) == []
    async with open_for_queries(ledger.location) as queries:
        for name in RECEIVERS:
            await _ask_of_the_past(queries, name, history, chance, kept_since)
            if not faults.missed[shard(name)]:
                await _ask_of_now(queries, name, history)


async def _ask_of_the_past(
    queries: LedgerQueries, name: str, history: HistoryGenerator, chance: Random, kept_since: int
) -> None:
    """A state of the past is what it was, or unknown; the last one is known."""
    receiver, now = await queries.receiver(name), milliseconds(history.now)
    if receiver is None:
        assert not history.state(name).opened
        return
    times = [each.at - chance.choice([0, 500, 1500, 4500]) for each in history.flushes]
    for at in [*chance.sample(times, min(len(times), ASKED_TIMES)), now]:
        moment = await queries.moment(receiver, name, at)
        if isinstance(moment, Unknown):
            assert at < now
        else:
            assert moment.state == history.state(name, at), (name, at)


async def _ask_of_now(queries: LedgerQueries, name: str, history: HistoryGenerator) -> None:
    """The row of a receiver says what its facts do."""
    receiver, state = await queries.receiver(name), history.state(name)
    if receiver is None:
        return
    row = await queries.standing(receiver)
    since = None if state.failing_since is None else milliseconds(state.failing_since)
    assert (row.failing_since, row.failures) == (since, state.consecutive_failures)
    assert (bool(row.paused), row.disabled) == (state.paused, state.disabled or None)
