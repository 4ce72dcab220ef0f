"""The checks of ownership, on made-up journals and arrivals."""

import pytest

from tests.support.fleet.ownership import Flush, zombies_posted, zombies_wrote
from tests.support.fleet.records import Arrival


def journal(*written: tuple[str, int, int], shard: int = 3) -> list[Flush]:
    """Node, epoch, and number of each flush, at 0 s, 1 s, 2 s and so on."""
    return [
        Flush(shard=shard, node=node, epoch=epoch, flush=flush, at=at)
        for at, (node, epoch, flush) in enumerate(written)
    ]


RIGHT = journal(("a", 5, 0), ("a", 5, 1), ("b", 9, 0), ("b", 9, 1), ("a", 12, 0))


def arrival(by: str, at: float) -> Arrival:
    return Arrival(at=at, sequence=1, event_id="e", by=by)


def test_owners_that_follow_one_another_are_right() -> None:
    assert list(zombies_wrote(RIGHT)) == []
    assert list(zombies_wrote([*RIGHT, *journal(("b", 1, 0), shard=4)])) == []


@pytest.mark.parametrize(
    "wrong",
    [
        journal(("a", 5, 0), ("b", 9, 0), ("a", 5, 1)),
        journal(("a", 5, 0), ("a", 5, 2)),
        journal(("a", 5, 0), ("a", 5, 1), ("a", 5, 1)),
        journal(("a", 5, 0), ("b", 9, 1)),
    ],
    ids=["under an old epoch", "one missing", "one twice", "before its claim"],
)
def test_a_zombie_that_wrote_is_found(wrong: list[Flush]) -> None:
    assert list(zombies_wrote(wrong))


def test_attempts_of_owners_are_right() -> None:
    seen = [arrival("a", 0.0), arrival("a", 1.9), arrival("b", 2.0), arrival("b", 3.9), arrival("a", 7.0)]
    assert list(zombies_posted({3: seen}, RIGHT)) == []


def test_an_attempt_that_was_noted_late_is_judged_by_when_it_may_have_come() -> None:
    assert list(zombies_posted({3: [arrival("a", 2.5)]}, RIGHT, late_s=0.6)) == []
    assert list(zombies_posted({3: [arrival("a", 2.5)]}, RIGHT, late_s=0.4))


@pytest.mark.parametrize(
    ("shard", "by", "at"),
    [(3, "a", 2.5), (3, "b", 1.9), (3, "b", 4.5), (3, "", 1.0), (3, "a", -1.0), (4, "a", 1.0)],
    ids=["after the takeover", "before it", "after it went back", "by nobody", "unclaimed", "elsewhere"],
)
def test_a_zombie_that_posted_is_found(shard: int, by: str, at: float) -> None:
    assert list(zombies_posted({shard: [arrival(by, at)]}, RIGHT))
