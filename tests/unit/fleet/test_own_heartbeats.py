"""Our own heartbeats: they date those of others, however many are sent."""

import math

from streams.fleet.own_heartbeats import APART_MIN_S, KEPT_MAX, OwnHeartbeats, StoredHeartbeat

TTL_MAX_S = 60.5


def test_a_burst_of_heartbeats_dates_others_as_far_back_as_a_ttl() -> None:
    own, revision = OwnHeartbeats(), 0
    for number in range(int(TTL_MAX_S * 100)):
        revision += 1
        own.add(StoredHeartbeat(revision, number / 100, number / 100))
    assert own.last.revision == revision
    assert own.is_older(1, APART_MIN_S)
    assert not own.is_older(revision, math.inf)
    assert own.is_older(revision - 1, math.inf)


def test_a_heartbeat_between_two_close_ones_is_forgotten_unlike_the_last() -> None:
    own = OwnHeartbeats()
    for revision, at in enumerate((0.0, APART_MIN_S / 4, APART_MIN_S / 2), 1):
        own.add(StoredHeartbeat(revision, at, at))
    assert own.last.revision == 3
    assert not own.is_older(1, APART_MIN_S / 4)
    assert own.is_older(1, APART_MIN_S / 2)


def test_heartbeats_are_kept_for_longer_than_any_ttl() -> None:
    assert KEPT_MAX / 2 * APART_MIN_S > TTL_MAX_S
