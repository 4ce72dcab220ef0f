"""What a read of the backlog tells, with and without an event that was known to be there and is gone."""

import pytest

from actors.ports import Batch
from actors.runtime.backlog_read import Found, sift
from tests.unit.machine import event


def found(positions: list[int], read_to: int, gone: tuple[int, int] | None = None) -> Found:
    return Found([event(position) for position in positions], read_to, gone)


@pytest.mark.parametrize(
    ("batch", "complete", "known", "expected"),
    [
        # Nothing is missing: a part, all, all and more than was to be reached, nothing at all.
        ([5, 7], False, 3, found([5, 7], 7)),
        ([5, 7], True, 7, found([5, 7], 9)),
        ([5, 12], True, 5, found([5, 12], 12)),
        ([], True, 0, found([], 9)),
        ([], False, 0, found([], 3)),
        # What was read before is not new.
        ([2, 3, 5], True, 5, found([5], 9)),
        # Not there yet: a replica that lags, or a page that ends before it.
        ([5], False, 7, found([5], 5)),
        ([], False, 7, found([], 3)),
        # Gone: the leader has no more, or one behind it came.
        ([], True, 7, found([], 3, (4, 7))),
        ([5], True, 7, found([5], 5, (6, 7))),
        ([5, 8], False, 7, found([5], 5, (6, 7))),
        ([8], True, 7, found([], 3, (4, 7))),
    ],
)
def test_what_is_new_and_what_is_gone(batch: list[int], complete: bool, known: int, expected: Found) -> None:
    given = Batch(events=[event(position) for position in batch], complete=complete)
    assert sift(given, reach=9, read_to=3, known=known) == expected
