"""Queries of the ledger about one tenant: in pages, and with a bounded wait for what is not written yet."""

import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.numbering import Numbered
from angarium.ledger import queries
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries import audit
from angarium.operations.ledger_queries import journey as journeys
from angarium.operations.ledger_queries.journey import journey
from angarium.operations.ledger_queries.ledger_access import LEDGER_CODE, OpenLedger, open_ledger
from angarium.operations.ledger_queries.worst_receivers import find_worst
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.ledger.queries.ask import ask
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
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
OTHER = "other.billing"


async def test_a_tenant_sees_only_its_own_receivers(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), failed(7))
    for receiver in (OTHER, "acme2.billing"):
        await journal.flush(opens(receiver), failed(7, receiver=receiver), receiver=receiver)
    await journal.flush(
        opens("other.late"), delivered(8, NOW + 9, receiver="other.late"), receiver="other.late"
    )
    await catch_up(js, names, ledger)
    of_all = (None, ["acme.billing", "acme2.billing", OTHER], ["other.late"])
    for tenant, failing, late in (("acme", [RECEIVER], []), ("other", [OTHER], ["other.late"]), of_all):
        told = (await ask(settings, lambda ledger, who=tenant: journey(ledger, "e7", who))).deliveries
        worst = await ask(settings, lambda ledger, who=tenant: find_worst(ledger, 1e9, 10, who))
        receivers = [each["receiver"] for each in told]
        assert receivers == [each["receiver"] for each in worst.failing] == failing
        assert [each["receiver"] for each in worst.late] == late


async def test_a_long_journey_is_shown_in_pages(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    for name in ("acme.a", "acme.b", "acme.c"):
        first = delivered(1, receiver=name, events=(numbered(1),))
        again = delivered(2, receiver=name, events=(_again(2),))
        await journal.flush(opens(name), first, again, receiver=name)
    await catch_up(js, names, ledger)
    found: list[tuple[str, int]] = []
    more, after = True, ("", 0)
    while more:
        page = await ask(settings, lambda ledger, at=after: journey(ledger, "e1", "acme", after=at, limit=2))
        assert len(page.deliveries) == 2
        found += [(each["receiver"], each["sequence"]) for each in page.deliveries]
        more, after = page.more, found[-1]
    assert found == [(f"acme.{name}", sequence) for name in "abc" for sequence in (1, 2)]
    past = await ask(settings, lambda ledger: journey(ledger, "e1", "acme", after=("acme.c", 2), limit=2))
    assert (past.deliveries, past.more) == ([], False)


async def test_a_delivery_with_many_attempts_has_the_first_and_the_last_ones(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "SHOWN_ATTEMPTS_MAX", 2)
    attempts = {7: 7, 8: 4, 9: 3}
    await journal.flush(opens())
    for sequence, count in attempts.items():
        made = [failed(sequence, NOW + sequence * 10 + each, attempt=each) for each in range(1, count + 1)]
        await journal.flush(*made[:3])
        await journal.flush(*made[3:])
    await catch_up(js, names, ledger)

    async def told(sequence: int) -> tuple[list[int], int]:
        (found,) = (await ask(settings, lambda ledger: journey(ledger, f"e{sequence}"))).deliveries
        return [each["attempt"] for each in found["attempts"]], found["attempts_total"]

    assert await told(7) == ([1, 2, 6, 7], 7)
    assert await told(8) == ([1, 2, 3, 4], 4)
    assert await told(9) == ([1, 2, 3], 3)


async def test_a_page_of_a_journey_ends_before_it_has_too_many_attempts(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journeys, "PAGE_ATTEMPTS_MAX", 2)
    for name, count in (("acme.a", 3), ("acme.b", 1), ("acme.c", 1), ("acme.d", 1)):
        made = [failed(7, NOW + each, attempt=each, receiver=name) for each in range(1, count + 1)]
        await journal.flush(opens(name), *made, receiver=name)
    await catch_up(js, names, ledger)
    pages: list[list[str]] = []
    more, after = True, ("", 0)
    while more:
        page = await ask(settings, lambda ledger, at=after: journey(ledger, "e7", "acme", after=at, limit=9))
        pages.append([each["receiver"] for each in page.deliveries])
        more, after = page.more, (pages[-1][-1], 7)
    assert pages == [["acme.a"], ["acme.b", "acme.c"], ["acme.d"]]


def _again(sequence: int) -> Any:
    """The first event once more, under another number."""
    return Numbered(sequence=sequence, position=200, id="e1", stored_at=NOW, again="r1")


async def test_the_audit_in_json_has_instants_as_texts(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens(), f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2)))
    await journal.flush(*(delivered(sequence, NOW + sequence) for sequence in range(1, 4)))
    await catch_up(js, names, ledger)
    found = await ask(settings, lambda ledger: audit.audit(ledger, RECEIVER, 0, MS + 100_000))
    told = audit.document(found)
    assert [each.at for each in told.limits] == [None]
    assert {each.at for each in told.windows} == {told.chart[0].at}
    assert told.chart[0].at == "2027-01-15T08:00:00.988Z"
    assert (told.verdict, told.attempts, told.ledger) == (found.verdict, 3, found.ledger)


async def test_an_audit_of_too_much_says_until_when_it_can_be_done(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    """Attempts count, and so do changes of the rate, with each of which every window may be compared."""
    plain, end = "acme.plain", MS + 1_000_000
    await journal.flush(opens())
    await journal.flush(opens(plain), receiver=plain)
    for change in range(20):
        await journal.flush(f.RateSet(receiver=RECEIVER, limit=RateLimit(5.0, 2 + change)))
    for receiver in (RECEIVER, plain):
        made = [delivered(each, NOW + 100 + each, receiver=receiver) for each in range(1, 51)]
        await journal.flush(*made, receiver=receiver)
    await catch_up(js, names, ledger)

    async def asked(receiver: str, until: int, most: int) -> Any:
        return await open_ledger(settings, lambda ledger: audit.audit(ledger, receiver, 0, until, most))

    for receiver, most, count in ((plain, 40, "more than 40 attempts"), (RECEIVER, 60, "50 attempts and 20")):
        refused = await asked(receiver, end, most)
        assert isinstance(refused, NotDone)
        assert (refused.kind, count in refused.text) == ("refused", True)
        until = re.search(r"until (\S+),", refused.text)
        assert until is not None
        shorter = round(datetime.fromisoformat(until[1]).timestamp() * 1000)
        assert 0 < (await asked(receiver, shorter, most)).attempts < most


async def test_a_question_that_is_given_up_ends(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    await journal.flush(opens())
    await catch_up(js, names, ledger)

    async def endless(ledger: OpenLedger) -> Any:
        return await ledger.queries.rows(ENDLESS)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await open_ledger(settings, endless)
    assert (await ask(settings, lambda ledger: find_worst(ledger, 1e9, 1))).failing == []


async def test_a_ledger_that_is_not_there_fails_with_its_own_code(tmp_path: Path) -> None:
    missing = Settings(ledger=f"sqlite:///{tmp_path / 'none.db'}")
    failure = await open_ledger(missing, lambda ledger: find_worst(ledger, 1.0, 1))
    assert isinstance(failure, NotDone)
    assert failure.code == LEDGER_CODE
