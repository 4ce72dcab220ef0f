"""Signs of life: from when on a node or a process is silent, and what begins its time again."""

import math

import pytest

from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.signs_of_life import FORGET_DEAD_AFTER_S, SignOfLife, SignsOfLife
from streams.journal.claim import Owner

TTL_S = 5.0
DEAD_S = TTL_S + LEASE_MARGIN_S


def owner(heartbeat: int = 0, run: str = "first") -> Owner:
    return Owner(node="b", at=0.0, run=run, heartbeat=heartbeat)


@pytest.fixture
def signs() -> SignsOfLife:
    """The signs that process `own` of node a has seen: the first heartbeat of b, at 0."""
    signs = SignsOfLife("a", "own", TTL_S)
    signs.note_heartbeat("b", "first", SignOfLife(1, 0.0, TTL_S, 1))
    return signs


def read(signs: SignsOfLife, at: float, *present: str) -> None:
    signs.end_read(present, at, at)


def keep_reading(signs: SignsOfLife, since: float, until: float, *present: str) -> None:
    """Read each second, so that no heartbeat expires unseen."""
    while since < until:
        read(signs, since, *present)
        since += 1.0
    read(signs, until, *present)


def test_a_node_is_silent_if_a_read_after_ttl_and_margin_finds_no_later_heartbeat(
    signs: SignsOfLife,
) -> None:
    read(signs, DEAD_S - 0.01, "b")
    assert not signs.is_node_silent("b", DEAD_S * 9), "the time goes on, and no read has ended"
    read(signs, DEAD_S, "b")
    assert signs.is_node_silent("b", DEAD_S)
    signs.note_heartbeat("b", "first", SignOfLife(2, DEAD_S, TTL_S, 2))
    assert not signs.is_node_silent("b", DEAD_S)


def test_a_read_is_as_old_as_it_says_and_not_as_its_answer(signs: SignsOfLife) -> None:
    signs.end_read(("b",), DEAD_S - 0.01, DEAD_S * 9)
    assert not signs.is_node_silent("b", DEAD_S * 9)


def test_the_longer_ttl_counts(signs: SignsOfLife) -> None:
    signs.note_heartbeat("b", "first", SignOfLife(2, 0.0, TTL_S * 2, 2))
    read(signs, DEAD_S, "b")
    assert not signs.is_node_silent("b", DEAD_S)
    read(signs, DEAD_S + TTL_S, "b")
    assert signs.is_node_silent("b", DEAD_S + TTL_S)


def test_an_unknown_node_is_watched_from_the_first_question_on(signs: SignsOfLife) -> None:
    read(signs, 1.0, "b")
    assert not signs.is_node_silent("new", 1.0)
    keep_reading(signs, 2.0, 1.0 + DEAD_S - 0.01, "b")
    assert not signs.is_node_silent("new", 1.0 + DEAD_S)
    read(signs, 1.0 + DEAD_S, "b")
    assert signs.is_node_silent("new", 1.0 + DEAD_S)


def test_the_time_of_silence_begins_again_with_a_connection(signs: SignsOfLife) -> None:
    signs.connected(3.0)
    read(signs, DEAD_S, "b")
    assert not signs.is_node_silent("b", DEAD_S)
    read(signs, 3.0 + DEAD_S, "b")
    assert signs.is_node_silent("b", 3.0 + DEAD_S)


def test_a_node_without_a_key_gets_more_time_after_a_ttl_without_a_read(signs: SignsOfLife) -> None:
    read(signs, 0.0, "b")
    read(signs, DEAD_S)
    assert not signs.is_node_silent("b", DEAD_S), "a later heartbeat may have expired unseen"
    for at in (DEAD_S + TTL_S / 2, DEAD_S + TTL_S - 0.1, DEAD_S * 2):
        read(signs, at)
    assert signs.is_node_silent("b", DEAD_S * 2)


def test_a_claim_is_a_sign_of_life_if_it_names_a_heartbeat_that_was_not_seen(signs: SignsOfLife) -> None:
    keep_reading(signs, 0.0, 4.0, "b")
    assert signs.note_claim(owner(heartbeat=1), 4.0).since == 0.0
    claimed = signs.note_claim(owner(heartbeat=2), 4.0)
    assert (claimed.since, claimed.ttl_s, claimed.revision) == (4.0, TTL_S, None)
    read(signs, DEAD_S, "b")
    assert not signs.is_silent(signs.note_claim(owner(heartbeat=2), DEAD_S))
    assert signs.is_node_silent("b", DEAD_S)
    keep_reading(signs, DEAD_S, 4.0 + DEAD_S, "b")
    assert signs.is_silent(signs.note_claim(owner(heartbeat=2), 4.0 + DEAD_S))


def test_a_process_is_silent_though_another_one_of_its_name_lives(signs: SignsOfLife) -> None:
    read(signs, 0.0, "b")
    signs.note_heartbeat("b", "second", SignOfLife(2, 3.0, TTL_S, 1))
    keep_reading(signs, 1.0, DEAD_S, "b")
    assert signs.is_silent(signs.note_claim(owner(1, "first"), DEAD_S))
    assert not signs.is_silent(signs.note_claim(owner(1, "second"), DEAD_S))


def test_the_next_silence_is_of_another_node_or_process_not_judged_yet(
    signs: SignsOfLife,
) -> None:
    signs.note_heartbeat("a", "own", SignOfLife(2, -1.0, TTL_S, 1))
    assert signs.next_silent_from() == DEAD_S
    read(signs, DEAD_S, "a", "b")
    assert signs.next_silent_from() == math.inf
    signs.note_process("a", "twin", SignOfLife(None, 7.0, TTL_S, 1))
    assert signs.next_silent_from() == 7.0 + DEAD_S
    assert [node for node, _ in signs.others] == ["b"]


def test_a_heartbeat_is_known_by_its_revision_until_its_node_leaves(signs: SignsOfLife) -> None:
    assert signs.is_known("b", 1)
    assert not signs.is_known("b", 2)
    signs.note_departure("b")
    assert not signs.is_known("b", 1)
    assert list(signs.others) == []


def test_a_dead_node_whose_key_is_gone_is_forgotten_in_the_end(signs: SignsOfLife) -> None:
    read(signs, 0.0, "b")
    at = 0.0
    while at <= FORGET_DEAD_AFTER_S:
        assert list(signs.others)
        at += TTL_S / 2
        read(signs, at)
    assert list(signs.others) == []
    assert signs.note_claim(owner(heartbeat=1), at).since == at, "so its process is watched from now on"


def test_a_dead_node_whose_key_is_still_there_is_not_forgotten(signs: SignsOfLife) -> None:
    """Otherwise its old heartbeat would seem new, and its process would be watched from then on."""
    after = FORGET_DEAD_AFTER_S * 2
    keep_reading(signs, 0.0, after, "b")
    assert signs.is_known("b", 1)
    assert signs.note_claim(owner(heartbeat=1), after).since == 0.0
