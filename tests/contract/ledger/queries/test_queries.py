"""Queries of the ledger, from a journal whose facts are known."""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.configuration.parsing import parse
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.evolve import evolve
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.status import inspect
from actors.times_as_text import instant_text
from angarium.cli.ledger_queries.event import duplicate_text
from angarium.ledger import schema
from angarium.ledger.ledger_answers import AttemptFilter
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.attempts import find_attempts
from angarium.operations.ledger_queries.audit import audit
from angarium.operations.ledger_queries.journey import journey
from angarium.operations.ledger_queries.ledger_access import open_ledger
from angarium.operations.ledger_queries.minutes import find_minutes
from angarium.operations.ledger_queries.state_at import MEMORY_MEMBERS, state_at
from angarium.operations.ledger_queries.worst_receivers import find_worst
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.nats.jetstream import JetStream
from tests.contract.ledger.queries.ask import ask
from tests.support.installation import shard
from tests.support.ledgers import (
    NOW,
    RECEIVER,
    JournalWriter,
    Kept,
    catch_up,
    delivered,
    failed,
    numbered,
    opens,
)

MS = round(NOW * 1000)
ROOT = Path(__file__).parents[4]
CONFIGURATION = b'{"url": "https://example.com/", "rate": {"limit": 5, "burst": 2}}'


async def refused(settings: Settings, query: Any) -> NotDone:
    answer = await open_ledger(settings, query)
    assert isinstance(answer, NotDone), answer
    return answer


async def test_attempts_are_listed_by_what_came_back_and_when(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 3)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    statuses = [200, 204, 500, 503, 404, 200, 201, 503, 200, 410]
    await journal.flush(opens())
    for sequence, status in enumerate(statuses, 1):
        outcome = delivered if status < 300 else failed
        await journal.flush(outcome(sequence, NOW + sequence, status=status))
    await catch_up(js, names, ledger)
    assert (await ledger.rows("SELECT count(*) FROM blocks"))[0][0] > 2

    async def listed(**wanted: Any) -> list[int]:
        found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter(**wanted)))
        assert all(each["event_id"] == f"e{each['sequence']}" for each in found.attempts)
        return [each["sequence"] for each in found.attempts]

    assert await listed() == list(range(10, 0, -1))
    assert await listed(limit=3) == [10, 9, 8]
    assert await listed(failed=True) == [10, 8, 5, 4, 3]
    assert await listed(status=(503, 503)) == [8, 4]
    assert await listed(status=(500, 599), failed=True) == [8, 4, 3]
    assert await listed(status=(200, 299)) == [9, 7, 6, 2, 1]
    assert await listed(status=(200, 200)) == [9, 6, 1]
    assert await listed(status=(201, 204)) == [7, 2]
    assert await listed(status=(204, 204)) == [2]
    assert await listed(since=MS + 3000, until=MS + 6000) == [6, 5, 4]
    assert (
        await refused(settings, lambda ledger: find_attempts(ledger, "acme.nobody", AttemptFilter()))
    ).kind == "not_found"


async def test_attempts_are_listed_by_the_type_of_their_event(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    for sequence, kind in enumerate(["order.created", "order.paid", "order.created", ""], 1):
        outcome = failed if sequence == 3 else delivered
        await journal.flush(outcome(sequence, NOW + sequence, events=(numbered(sequence, type=kind),)))
    await catch_up(js, names, ledger)

    async def listed(**wanted: Any) -> list[tuple[int, str | None]]:
        found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter(**wanted)))
        return [(each["sequence"], each["type"]) for each in found.attempts]

    assert await listed(type="order.created") == [(3, "order.created"), (1, "order.created")]
    pattern = AttemptFilter(type="order.*")
    wrong = await refused(settings, lambda ledger: find_attempts(ledger, RECEIVER, pattern))
    assert (wrong.kind, wrong.text[:20]) == ("invalid", "event type 'order.*'")
    assert await listed(type="order.created", failed=True) == [(3, "order.created")]
    assert await listed(type="order") == []
    assert (await listed())[0] == (4, None)


async def test_the_answers_to_failed_attempts_are_kept(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    events = (numbered(7, type="order.paid"),)
    await journal.flush(
        opens(), failed(7, answer="no such order", events=events), delivered(7, NOW + 5, events=events)
    )
    await catch_up(js, names, ledger)
    (found,) = (await ask(settings, lambda ledger: journey(ledger, "e7"))).deliveries
    assert found["type"] == "order.paid"
    assert [each["answer"] for each in found["attempts"]] == ["no such order", None]


async def test_an_event_is_followed_over_all_receivers(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), failed(7), delivered(7, NOW + 5, attempt=2))
    await journal.flush(opens("acme.other"), receiver="acme.other")
    dead = f.DeadLettered(receiver="acme.other", events=(numbered(7),), at=NOW + 3, reason="expired")
    await journal.flush(dead, receiver="acme.other")
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: journey(ledger, "e7"))
    told = [
        (each["receiver"], each["state"], each["reason"], len(each["attempts"])) for each in found.deliveries
    ]
    assert told == [("acme.billing", "delivered", None, 2), ("acme.other", "dead", "expired", 0)]
    unknown = await refused(settings, lambda ledger: journey(ledger, "e8"))
    assert unknown.kind == "not_found"
    assert "angarium dead list" in unknown.sentence
    assert (await refused(settings, lambda ledger: journey(ledger, "e7", "other"))).kind == "not_found"


async def test_a_message_with_a_known_id_is_listed_as_dropped(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), delivered(7, NOW))
    await journal.flush(
        f.EventDropped(receiver=RECEIVER, position=109, id="e7"),
        f.EventDropped(receiver=RECEIVER, position=110, id="e6"),
        f.EventDropped(receiver=RECEIVER, position=111, id="e7", reason=f.ERASED),
    )
    dropped_at = journal.at
    # Beyond the dedup window the same id is another event.
    await journal.flush(delivered(300, NOW + 60, events=(replace(numbered(300), id="e7"),)))
    await journal.flush(f.EventDropped(receiver=RECEIVER, position=401, id="e7"))
    await catch_up(js, names, ledger)
    first, second = (await ask(settings, lambda ledger: journey(ledger, "e7"))).deliveries
    assert first["repeats"] == [{"at": instant_text(dropped_at), "position": 109}]
    assert [each["position"] for each in second["repeats"]] == [401]
    assert duplicate_text(first, first["repeats"][0]) == (
        "message 109 of the deliveries has the same id: dropped as a duplicate of #7"
    )


@pytest.mark.parametrize(("more", "verdict"), [(0, "kept"), (5, "exceeded")])
async def test_the_audit_holds_attempts_against_the_limit_in_force(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    more: int,
    verdict: str,
) -> None:
    await journal.flush(opens())
    await journal.flush(f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)))
    at = [NOW + 10 + each / 5 for each in range(50)] + [NOW + 15] * more
    await journal.flush(*(delivered(sequence, each) for sequence, each in enumerate(at, 1)))
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: audit(ledger, RECEIVER, 0, MS + 100_000))
    assert (found.verdict, found.attempts) == (verdict, len(at))
    assert [each.length_s for each in found.windows] == [0.4, 1.0]
    assert [(each.at, each.per_second) for each in found.limits] == [(0, 5.0)]
    assert sum(bar.attempts for bar in found.chart) == len(at)


async def test_the_worst_are_found(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), failed(1, NOW + 1))
    await journal.flush(delivered(1, NOW + 9, receiver="acme.late"), receiver="acme.late")
    await journal.flush(delivered(1, NOW + 2, receiver="acme.soon"), receiver="acme.soon")
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: find_worst(ledger, 1e9, 10))
    assert [(each["receiver"], each["failures"]) for each in found.failing] == [(RECEIVER, 1)]
    assert [(each["receiver"], each["latest_s"]) for each in found.late] == [
        ("acme.late", 9.0),
        ("acme.soon", 2.0),
    ]


async def test_attempts_are_counted_by_minute(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), failed(1, NOW + 1), delivered(1, NOW + 10, attempt=2))
    await journal.flush(delivered(2, NOW + 130, latency_ms=30.0), delivered(3, NOW + 131, latency_ms=10.0))
    dead = f.DeadLettered(receiver=RECEIVER, events=(numbered(4),), at=NOW + 200, reason="expired")
    await journal.flush(dead)
    for at, ping in ((NOW + 132, delivered), (NOW + 133, failed), (NOW + 300, delivered)):
        await journal.flush(ping(0, at, events=(), kind="ping", latency_ms=900.0))  # Pings do not count.
    await catch_up(js, names, ledger)
    found = (await ask(settings, lambda ledger: find_minutes(ledger, RECEIVER, MS, MS + 360_000))).minutes
    assert [(each.at[11:16], each.attempts, each.delivered, each.failed, each.dead) for each in found] == [
        ("08:00", 2, 1, 1, 0), ("08:02", 2, 2, 0, 0), ("08:03", 0, 0, 0, 1)
    ]  # fmt: skip
    assert (found[1].latency_ms, found[1].latency_ms_max) == (20.0, 30.0)
    assert (found[1].late_s, found[1].late_s_max) == (130.5, 131.0)
    assert (found[2].latency_ms, found[2].late_s) == (None, None)
    assert [each.posts for each in found] == [2, 2, 0]
    later = await ask(settings, lambda ledger: find_minutes(ledger, RECEIVER, MS + 120_000, MS + 180_000))
    assert [each.attempts for each in later.minutes] == [2]


async def test_a_batch_is_an_attempt_of_each_of_its_events_and_one_post(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    batch = (numbered(1), numbered(2), numbered(3))
    await journal.flush(opens(), failed(1, NOW + 1, events=batch))
    await journal.flush(delivered(1, NOW + 2, attempt=2, events=batch[:2]), delivered(4, NOW + 3))
    await catch_up(js, names, ledger)
    (minute,) = (await ask(settings, lambda ledger: find_minutes(ledger, RECEIVER, 0, 2 * MS))).minutes
    assert (minute.attempts, minute.delivered, minute.failed, minute.posts) == (6, 3, 3, 3)


async def test_lateness_counts_from_the_publication_of_an_event(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    """The first event waited 7 s for its fan-out and was delivered 0.5 s after its copy was stored."""
    waited, direct = numbered(1, published_at=NOW - 7), numbered(2)
    await journal.flush(
        opens(), delivered(1, NOW + 0.5, events=(waited,)), delivered(2, NOW + 1, events=(direct,))
    )
    await catch_up(js, names, ledger)
    (minute,) = (await ask(settings, lambda ledger: find_minutes(ledger, RECEIVER, 0, 2 * MS))).minutes
    assert (minute.late_s, minute.late_s_max) == (4.25, 7.5)
    for event, published_at in (("e1", "2027-01-15T07:59:53.000Z"), ("e2", "2027-01-15T08:00:00.000Z")):
        found = await ask(settings, lambda ledger, event=event: journey(ledger, event))
        (delivery,) = found.deliveries
        assert delivery["published_at"] == published_at
        assert delivery["stored_at"] == "2027-01-15T08:00:00.000Z"


@pytest.mark.parametrize("world", [("memory", "sqlite")])
async def test_the_tables_of_an_older_version_are_upgraded(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), delivered(1, events=(numbered(1, type="a"),)))
    await catch_up(js, names, ledger)
    for statement in (
        "DROP INDEX attempts_type", "ALTER TABLE receivers DROP COLUMN last_position",
        "ALTER TABLE gaps DROP COLUMN share", "ALTER TABLE configurations DROP COLUMN changed_by",
        "ALTER TABLE configurations DROP COLUMN replaced",
        "ALTER TABLE deliveries DROP COLUMN published_at", "DROP INDEX deliveries_unended",
        "CREATE INDEX deliveries_open ON deliveries (receiver, sequence) WHERE ended_at IS NULL",
        "ALTER TABLE minutes DROP COLUMN posts", "DROP TABLE paces", "PRAGMA user_version = 1",
    ):  # fmt: skip
        await ledger.execute(statement)
    failure = await refused(settings, lambda ledger: find_worst(ledger, 1.0, 1))
    assert "has version 1, this Angarium knows 8" in failure.text
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter(type="a")))
    assert len(found.attempts) == 1
    assert await ledger.rows("SELECT attempts, posts FROM minutes") == [(1, 1)]
    assert await ledger.rows("SELECT * FROM paces") == []


@pytest.mark.parametrize("world", [("memory", "postgresql")])
async def test_the_tables_of_an_older_version_of_a_database_are_upgraded(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens(), failed(1))
    await catch_up(js, names, ledger)
    before = await ledger.contents()
    for statement in (
        "ALTER TABLE configurations DROP COLUMN changed_by",
        "ALTER TABLE configurations DROP COLUMN replaced",
        "ALTER TABLE deliveries DROP COLUMN published_at", "DROP INDEX deliveries_unended",
        "CREATE INDEX deliveries_open ON deliveries (receiver, sequence) WHERE ended_at IS NULL",
        "ALTER TABLE minutes DROP COLUMN posts", "DROP TABLE paces", "UPDATE ledger SET version = 1",
    ):  # fmt: skip
        await ledger.execute(statement)
    await catch_up(js, names, ledger)
    assert await ledger.contents() == before | {"ledger": [(7, *before["ledger"][0][1:])]}
    indexes = await ledger.rows("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")
    assert ("deliveries_unended",) in indexes
    assert ("deliveries_open",) not in indexes


async def test_a_past_state_equals_what_inspect_showed(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state is checked after each fact, with base states before and after it."""
    monkeypatch.setattr("angarium.ledger.fold.BASE_EVERY_FACTS", 4)
    monkeypatch.setattr(schema, "BLOCK_FACTS", 5)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 2)
    await StoredConfigurations(js, names).put(RECEIVER, CONFIGURATION)
    bucket = Bucket(1.5, NOW, 1)
    first: list[f.Fact] = [opens(), f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2), bucket=bucket)]
    await journal.flush(*first)
    facts: list[f.Fact] = []
    for sequence in range(1, 9):
        facts.append(failed(sequence, NOW + 10 * sequence, bucket=bucket))
        facts.append(delivered(sequence, NOW + 10 * sequence + 5, attempt=2, bucket=bucket))
    facts.append(f.Paused(receiver=RECEIVER, at=NOW + 96))
    said, state = dict[int, Mapping[str, Any]](), State(receiver=RECEIVER)
    policy = parse(CONFIGURATION, strict=True)[0]
    for fact in first:
        state = evolve(state, fact)
    for fact in facts:
        await journal.flush(fact)
        state = evolve(state, fact)
        at = getattr(fact, "at", NOW) + 1.0
        said[round(at * 1000)] = inspect(
            state, policy, View(), at, shard=shard(RECEIVER), node="", queued=0, backlog=0, head=None,
            last_answer=None, problems=[],
        )  # fmt: skip
    await catch_up(js, names, ledger)
    # Configurations have the server's time, which is not that of these facts.
    await ledger.execute("UPDATE configurations SET at = 0")
    assert (await ledger.rows("SELECT count(*) FROM states"))[0][0] > 2
    for at_ms, before in said.items():
        told = await ask(settings, partial(state_at, receiver=RECEIVER, at=at_ms))
        for name in before.keys() - {*MEMORY_MEMBERS, "head"}:
            assert msgspec.json.encode(told[name]) == msgspec.json.encode(before[name]), (at_ms, name)
    told = await ask(settings, lambda ledger: state_at(ledger, RECEIVER, MS - 1000))
    assert told["next_sequence"] == 1


async def test_a_state_before_the_receiver_existed_is_unknown(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    failure = await refused(settings, lambda ledger: state_at(ledger, RECEIVER, MS - 1000))
    assert (failure.kind, failure.text[:37]) == ("not_found", "there was no receiver acme.billing at")


async def test_a_state_before_the_ledger_begins_names_its_beginning(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    gone = await journal.flush(delivered(1))
    await js.purge(names.journal, gone + 1)
    await journal.flush(delivered(2, NOW + 50))
    await catch_up(js, names, ledger)
    failure = await refused(settings, lambda ledger: state_at(ledger, RECEIVER, 1000))
    assert "is not known before" in failure.text
    found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter()))
    assert "nothing is known from the beginning to" in found.ledger.notes[0]


async def test_a_delivery_under_way_when_facts_were_lost_has_an_unknown_end(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), failed(1))
    await catch_up(js, names, ledger)
    assert (await ask(settings, lambda ledger: journey(ledger, "e1"))).deliveries[0]["state"] == "open"
    gone = await journal.flush(delivered(1, NOW + 5, attempt=2))
    await js.purge(names.journal, gone + 1)
    await journal.flush(delivered(2, NOW + 50))
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: journey(ledger, "e1"))
    assert [each["state"] for each in found.deliveries] == ["unknown"]
    assert found.ledger.notes


async def test_a_period_from_before_what_is_kept_is_noted(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter()))
    assert (found.ledger.kept_since, found.ledger.dropped_note(0)) == (None, [])
    await ledger.execute("UPDATE pruned SET at = 1000000")
    known = (await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter()))).ledger
    assert known.kept_since == "1970-01-01T00:16:40.000Z"
    assert known.dropped_note(1_000_000) == []
    assert known.dropped_note(999_999) == [
        "attempts before 1970-01-01T00:16:40.000Z are no longer kept, so this is not the whole period"
    ]


async def test_a_ledger_without_a_writer_says_how_far_behind_it_is(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    await ledger.execute("UPDATE positions SET seen_at = 0, stored_at = 1000")
    found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter()))
    assert found.ledger.behind_s > 1e9
    assert (
        "behind, at 1970-01-01T00:16:40.000Z: angarium ledger is catching up, or does not run"
        in found.ledger.notes[0]
    )
    await ledger.execute("UPDATE positions SET stored_at = ?", time.time() - 3)  # Facts come all the time.
    found = await ask(settings, lambda ledger: find_attempts(ledger, RECEIVER, AttemptFilter()))
    assert (found.ledger.behind_s, found.ledger.notes) == (0.0, [])
    missing = await refused(
        Settings(ledger="sqlite:///no/such.db"), lambda ledger: find_worst(ledger, 1.0, 1)
    )
    assert "there is no ledger no/such.db: start one with angarium ledger" in missing.text


def test_without_its_driver_a_command_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['aiosqlite'] = None; sys.argv = ['angarium', 'top', '--within', '1h']; "
        "from angarium.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "angarium: a ledger needs aiosqlite: install the extra ledger (see README)\n"


@pytest.mark.parametrize("world", [("memory", "sqlite"), ("memory", "postgresql")], ids="-".join)
async def test_the_queries_of_the_page_run(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, world: tuple[str, str]
) -> None:
    page = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text()
    _, for_postgresql, for_both = re.split(
        "The same query for PostgreSQL:|An event's deliveries, in both:", page
    )
    queries = [for_both] if world[1] == "sqlite" else [for_postgresql, for_both]
    await journal.flush(opens(), delivered(1, events=(numbered(1),)))
    await catch_up(js, names, ledger)
    for text in queries:
        query = text.split("```sql\n")[1].split("```")[0].rstrip().rstrip(";")
        found = await ledger.rows(query.replace("order-17-created", "e1").replace("1 hour", "9000 days"))
        assert len(found) == 1
