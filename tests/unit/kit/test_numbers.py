"""Numbers tell repeats and gaps, in both orders, despite crashes."""

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from angarium_receiver import Arrival, InProgress, MemoryNumbers, Numbers, SqliteNumbers, handled_numbers
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(params=["memory", "sqlite"])
def known(request: pytest.FixtureRequest) -> Iterator[Numbers]:
    if request.param == "memory":
        yield MemoryNumbers()
        return
    connection = sqlite3.connect(":memory:")
    yield SqliteNumbers(connection)
    connection.close()


def handle(known: Numbers, *numbers: int) -> Arrival:
    with known.handling(numbers) as arrival:
        return arrival


def test_repeats_and_gaps_are_told(known: Numbers) -> None:
    assert handle(known, 5) == Arrival((5,), 0)
    assert handle(known, 6) == Arrival((6,), 0)
    assert handle(known, 6) == Arrival((), 0)
    assert handle(known, 9) == Arrival((9,), 2)
    assert known.look([13]) == known.look([13]) == Arrival((13,), 3)


def test_an_event_may_come_long_after_greater_numbers_and_is_known_afterwards(known: Numbers) -> None:
    handle(known, 4)
    handle(known, *range(6, 10_001))
    handle(known, 10_002)
    assert handle(known, 5) == Arrival((5,), 0)
    assert handle(known, 5).is_repeat
    assert handle(known, 3, 6) == Arrival((3,), 0)
    assert handle(known, 9_999, 10_001, 10_003) == Arrival((10_001, 10_003), 0)


def test_work_that_fails_is_not_handled(known: Numbers) -> None:
    handle(known, 1)
    with pytest.raises(KeyError), known.handling([2]):
        raise KeyError
    assert handle(known, 2) == Arrival((2,), 0)


def test_work_and_number_are_in_one_transaction(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    shop = sqlite3.connect(file)
    shop.execute("CREATE TABLE orders (number INTEGER UNIQUE)")
    known = SqliteNumbers(shop, "acme.shop")
    with known.handling([1]):
        shop.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError), known.handling([2]):
        shop.executemany("INSERT INTO orders VALUES (?)", [(2,), (1,)])
    reader = sqlite3.connect(file)
    assert reader.execute("SELECT number FROM orders").fetchall() == [(1,)]
    again = SqliteNumbers(reader, "acme.shop")
    assert again.look([1]).is_repeat
    assert not again.look([2]).is_repeat
    reader.close()
    shop.close()


def test_a_second_request_of_one_number_waits_or_is_refused(tmp_path: Path) -> None:
    known = MemoryNumbers()
    with known.handling([1, 2]):
        with pytest.raises(InProgress), known.handling([2, 3]):
            pass
        assert handle(known, 4) == Arrival((4,), 0)
    assert handle(known, 2, 3) == Arrival((3,), 0)

    file = tmp_path / "orders.db"
    one, other = (sqlite3.connect(file, timeout=0) for _ in range(2))
    mine, theirs = SqliteNumbers(one), SqliteNumbers(other)
    with mine.handling([1]), pytest.raises(sqlite3.OperationalError, match="locked"), theirs.handling([1]):
        pass
    assert theirs.look([1]).is_repeat
    one.close()
    other.close()


def test_receivers_in_one_database_do_not_meet() -> None:
    connection = sqlite3.connect(":memory:")
    one, other = SqliteNumbers(connection, "a"), SqliteNumbers(connection, "b")
    handle(one, 7)
    assert handle(other, 3) == Arrival((3,), 0)
    assert handle(one, 8) == Arrival((8,), 0)
    connection.close()


def test_memory_is_bounded_and_forgets_the_lowest_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handled_numbers, "RANGES_MAX", 3)
    known = MemoryNumbers()
    for number in (1, 3, 5, 7, 9):
        handle(known, number)
    assert [known.look([number]).is_repeat for number in range(1, 10)] == [True] * 5 + [
        False,
        True,
        False,
        True,
    ]


@given(st.lists(st.sets(st.integers(1, 20), min_size=1, max_size=4).map(sorted)))
def test_memory_and_sqlite_agree_with_a_set(batches: list[list[int]]) -> None:
    connection = sqlite3.connect(":memory:")
    kinds = (MemoryNumbers(), SqliteNumbers(connection))
    handled = set[int]()
    for batch in batches:
        missing = max(batch[0] - max(handled) - 1, 0) if handled else 0
        expected = Arrival(tuple(number for number in batch if number not in handled), missing)
        assert [handle(each, *batch) for each in kinds] == [expected, expected]
        handled |= set(batch)
    ranges = connection.execute("SELECT first, last FROM angarium_numbers ORDER BY first").fetchall()
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))
    connection.close()
