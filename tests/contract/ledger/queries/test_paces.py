"""The learnt pace of a receiver in the ledger: its limit over time, and its history."""

from collections.abc import Iterable
from functools import partial

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.pace.pace import HeaderLimit, LoweredRate, Pace, ProbedRate
from angarium.cli.ledger_queries.audit import lines
from angarium.ledger import schema
from angarium.operations.ledger_queries.audit import AuditDocument, audit, document
from angarium.operations.ledger_queries.history import HistoryEntry, history_page, read_history
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.ledger.queries.ask import ask
from tests.support.ledgers import NOW, RECEIVER, JournalWriter, Kept, catch_up, delivered, opens

MS = round(NOW * 1000)
LENGTH_S = 160
"""The chart has 16 parts, so each is 10 s long."""
learnt = partial(f.PaceSet, receiver=RECEIVER)


async def write_attempts(
    journal: JournalWriter, *facts: f.Fact, per_second: int = 5, limit: RateLimit | None = None
) -> None:
    """An attempt every so often, and the facts, each at its time."""
    await journal.flush(opens(), f.RateSet(receiver=RECEIVER, limit=limit))
    at = [NOW + each / per_second for each in range(LENGTH_S * per_second)] + [NOW + LENGTH_S - 0.001]
    await journal.flush(*(delivered(sequence, each, latency_ms=0.0) for sequence, each in enumerate(at, 1)))
    await journal.flush(*facts)


async def audited(settings: Settings) -> AuditDocument:
    found = await ask(settings, lambda ledger: audit(ledger, RECEIVER, MS, MS + LENGTH_S * 1000))
    assert len(found.chart) == 16
    return document(found)


def learnt_of(found: AuditDocument) -> list[tuple[float, float, str] | None]:
    """The learnt rate of each part; None if none held."""
    return [
        None if each.learnt_min is None else (each.learnt_min, each.learnt_max or 0.0, each.limited_by or "")
        for each in found.chart
    ]


async def test_the_audit_shows_a_lowered_rate_as_it_grows_back_until_a_resume_forgets_it(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    """A rate of 10 is halved after 20 s, and grows by one each 10 s."""
    await StoredConfigurations(js, names).put(
        RECEIVER, b'{"url": "https://example.com/", "rate": {"limit": 10, "burst": 20}}'
    )
    await write_attempts(
        journal,
        learnt(
            at=NOW + 20, pace=Pace(lowered=LoweredRate(5.0, 10.0, NOW + 20)), per_second=5.0,
            limited_by="after_429",
        ),
        f.Resumed(receiver=RECEIVER, at=NOW + 50),
        limit=RateLimit(10.0, 20),
    )  # fmt: skip
    await catch_up(js, names, ledger)
    found = await audited(settings)
    assert found.verdict == "kept"
    assert learnt_of(found) == [
        None, None, (5.0, 5.875, "after_429"), (6.0, 6.875, "after_429"), (7.0, 7.875, "after_429"),
        *[None] * 11,
    ]  # fmt: skip
    text = await ask(settings, lambda ledger: audit(ledger, RECEIVER, MS, MS + LENGTH_S * 1000))
    bars = [line.partition("  2027")[2] for line in lines(text)[-16:]]
    assert bars[2].endswith("a second; 5 a second on average, learnt rate 5 to 5.88 (after_429)")
    assert bars[5].endswith("a second")


async def test_a_pace_from_before_the_period_counts_and_a_pause_is_a_rate_of_0(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await StoredConfigurations(js, names).put(RECEIVER, b'{"url": "https://example.com/"}')
    told = HeaderLimit(3.0, NOW + 15)
    await write_attempts(
        journal,
        learnt(at=NOW - 30, pace=Pace(told=told), per_second=3.0, limited_by="headers"),
        learnt(at=NOW + 30, pace=Pace(told=HeaderLimit(0.0, NOW + 40)), per_second=0.0, limited_by="headers"),
    )
    await catch_up(js, names, ledger)
    found = learnt_of(await audited(settings))
    assert found[:5] == [(3.0, 3.0, "headers"), (3.0, 3.0, "headers"), None, (0.0, 0.0, "headers"), None]


async def test_smart_has_a_rate_before_anything_was_learnt(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await StoredConfigurations(js, names).put(
        RECEIVER, b'{"url": "https://example.com/", "adaptive": {"smart": true}}'
    )
    await write_attempts(
        journal,
        learnt(at=NOW + 20, pace=Pace(probed=ProbedRate(proven=5.0)), per_second=10.0, limited_by="smart"),
    )
    await catch_up(js, names, ledger)
    assert learnt_of(await audited(settings)) == [(5.0, 5.0, "smart")] * 2 + [(10.0, 10.0, "smart")] * 14


async def test_without_a_known_configuration_a_learnt_rate_is_as_it_was_recorded(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    pace = Pace(lowered=LoweredRate(5.0, 10.0, NOW + 20))
    await write_attempts(journal, learnt(at=NOW + 20, pace=pace, per_second=5.0, limited_by="after_429"))
    await catch_up(js, names, ledger)
    assert learnt_of(await audited(settings)) == [None] * 2 + [(5.0, 5.0, "after_429")] * 14


def of_smart(*told: tuple[float, float]) -> Iterable[f.PaceSet]:
    """A fact for each rate, so many seconds after the first."""
    pace = Pace(probed=ProbedRate(ceiling=20.0))
    return (
        learnt(at=NOW + seconds, pace=pace, per_second=rate, limited_by="smart") for seconds, rate in told
    )


async def test_the_history_has_a_pace_that_differs_much_or_begins_an_hour(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(
        opens(),
        learnt(at=NOW + 1, pace=Pace(), per_second=10.0, limited_by="smart"),
        *of_smart((2, 18.0), (3, 18.5), (30, 16.0), (40, 17.0), (3601, 16.5), (3602, 16.0)),
        learnt(at=NOW + 3700, pace=Pace(), per_second=16.0, limited_by="headers"),
        learnt(at=NOW + 3701, pace=Pace(), per_second=0.0, limited_by="headers"),
        learnt(at=NOW + 3702, pace=Pace(), in_flight=8, in_flight_by="concurrency"),
        learnt(at=NOW + 3703, pace=Pace(), in_flight=7, in_flight_by="concurrency"),
        learnt(at=NOW + 3704, pace=Pace(), in_flight=3, in_flight_by="concurrency"),
        learnt(at=NOW + 3705, pace=Pace()),
    )
    await catch_up(js, names, ledger)
    told = await ask(settings, lambda ledger: read_history(ledger, RECEIVER, 0, schema.END_OF_TIME))
    smart = "(lowered after a refusal; it rises while answers are good)"
    assert [each.what for each in told.entries if each.kind == "pace_set"] == [
        "learnt rate of 10 a second (it has had no trouble so far, and grows)",
        f"learnt rate of 18 a second {smart}",
        f"learnt rate of 16.5 a second {smart}",
        "learnt rate of 16 a second (its headers say that little is left)",
        "paced to nothing for a while: its headers say that nothing is left",
        "8 attempts at a time, by concurrency",
        "3 attempts at a time, by concurrency",
        "no learnt rate holds it back any more",
    ]
    assert told.entries[1].detail == {
        "effective_limit": 10.0, "limited_by": "smart", "concurrency": None, "concurrency_limited_by": None,
    }  # fmt: skip
    for limit in (1, 2, 5):
        assert await paged(settings, limit) == told.entries


async def paged(settings: Settings, limit: int) -> list[HistoryEntry]:
    entries, start = list[HistoryEntry](), None
    while True:
        query = partial(
            history_page, receiver=RECEIVER, since=0, until=schema.END_OF_TIME, start=start, limit=limit
        )
        page = await ask(settings, query)
        entries += page.entries
        if (start := page.next) is None:
            return entries
