"""The plans of the queries of a ledger: none reads a whole table."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from angarium.ledger import queries
from angarium.ledger.ledger_answers import AttemptFilter
from angarium.ledger.queries import LedgerQueries
from angarium.ledger.query_texts.attempts import ATTEMPTS, filtered
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.support.ledgers import (
    JournalWriter,
    Kept,
    catch_up,
    delivered,
    opens,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize("world", [("memory", "postgresql")])
async def test_no_question_reads_a_whole_table_of_a_database(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, settings: Settings
) -> None:
    """Though a new partition has no statistics."""
    await journal.flush(opens(), *(delivered(sequence) for sequence in range(1, 60)))
    await catch_up(js, names, ledger)
    for query in every_query(lambda index: ""):
        filled = re.sub(r"\?\d*", "'1'", query)
        steps = await ledger.rows(f"EXPLAIN {filled}")
        plan = [step for (step,) in steps]
        assert not [
            step for step in plan if re.search(r"Seq Scan on (attempts|deliveries|facts|minutes)", step)
        ], plan


@pytest.mark.parametrize("world", [("memory", "sqlite")])
async def test_no_question_reads_a_whole_table(ledger: Kept) -> None:
    """Each query reads the list of blocks, which is short, and then a block by its key."""
    async with ledger.store():
        pass
    found = every_query(lambda index: f"INDEXED BY {index}")
    assert len(found) > 18
    for query in found:
        steps = await ledger.rows(f"EXPLAIN QUERY PLAN {query}", *[0] * _values(query))
        plan = [detail for *_, detail in steps]
        assert not [step for step in plan if re.match(r"SCAN ([adfm]|attempts|deliveries|facts)\b", step)], (
            plan
        )


@pytest.mark.parametrize("world", [("memory", "sqlite")])
async def test_the_minutes_of_a_receiver_do_not_read_those_of_all_others(ledger: Kept) -> None:
    """The key of a minute begins with the minute: an hour of it has the rows of all receivers."""
    async with ledger.store():
        pass
    asked = AskedQueries()
    await LedgerQueries(asked).minutes(1, 0, HOUR_MS)
    steps = await ledger.rows(f"EXPLAIN QUERY PLAN {asked.query}", *asked.values)
    assert "SEARCH m USING PRIMARY KEY (minute=? AND receiver=?)" in [detail for *_, detail in steps]


class AskedQueries:
    """A reader that notes what it is asked."""

    shares = 1
    query = ""
    values: tuple[Any, ...] = ()

    async def rows(self, query: str, *values: Any) -> list[Any]:
        self.query, self.values = query, values
        return []

    def by(self, index: str) -> str:
        return f"INDEXED BY {index}"


def every_query(by: Callable[[str], str]) -> list[str]:
    """All that is asked, with every filter; `by`: the words that name an index."""
    found = [
        text
        for name, text in vars(queries).items()
        if name.isupper() and str(text).strip().startswith("SELECT")
    ]
    found.remove(ATTEMPTS)
    found.remove(queries.JOURNEY)
    found.remove(queries.COPIES)
    found.remove(queries.TOTALS_OF)
    found.append(queries.TOTALS_OF.format(minutes="?, ?"))
    found += [each.format(index=by("deliveries_event")) for each in (queries.JOURNEY, queries.COPIES)]
    index, only, _ = filtered(AttemptFilter(error="refused"))
    found.append(ATTEMPTS.format(index=by(index), only=only))
    for status in (None, (503, 503), (500, 599), (204, 204), (200, 200), (200, 299)):
        for failed_only in (False, True):
            index, only, _ = filtered(AttemptFilter(failed=failed_only, status=status, type="a"))
            found.append(ATTEMPTS.format(index=by(index) if index else "", only=only))
    return found


def _values(query: str) -> int:
    """The number of its placeholders."""
    return max(map(int, re.findall(r"\?(\d)", query)), default=query.count("?"))
