"""The lease: counted from before the sending; once lapsed, it stays lapsed."""

from streams.fleet.lease import LEASE_MARGIN_S, Lease

TTL_S = 5.0
SAFE_S = TTL_S - LEASE_MARGIN_S


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def boottime(self) -> float:
        return self.now

    def wall(self) -> float:
        raise AssertionError("a lease must not ask a clock that may be set")


def renewed(clock: Clock) -> Lease:
    lease = Lease(TTL_S, clock)
    assert lease.acknowledged(lease.sending())
    return lease


def test_no_lease_is_valid_before_the_first_acknowledgement() -> None:
    lease = Lease(TTL_S, Clock())
    assert not lease.is_valid()
    assert not lease.is_over


def test_a_lease_lasts_for_the_ttl_less_the_margin() -> None:
    clock = Clock()
    lease = renewed(clock)
    clock.now += SAFE_S - 0.001
    assert lease.is_valid()
    clock.now += 0.001
    assert not lease.is_valid()
    assert lease.is_over


def test_a_lease_counts_from_the_sending_and_not_from_the_acknowledgement() -> None:
    clock = Clock()
    lease = renewed(clock)
    sent_at = lease.sending()
    clock.now += 3.0
    assert lease.acknowledged(sent_at)
    clock.now = sent_at + SAFE_S
    assert not lease.is_valid()


def test_each_renewal_prolongs_it() -> None:
    clock = Clock()
    lease = renewed(clock)
    for _ in range(10):
        clock.now += SAFE_S - 0.1
        assert lease.acknowledged(lease.sending())
    assert lease.is_valid()


def test_an_acknowledgement_that_comes_late_does_not_shorten_it() -> None:
    clock = Clock()
    lease = renewed(clock)
    early = lease.sending()
    clock.now += 2.0
    assert lease.acknowledged(lease.sending())
    assert lease.acknowledged(early)
    clock.now += SAFE_S - 0.001
    assert lease.is_valid()


def test_no_renewal_revives_it() -> None:
    """A node that never asked whether it is valid finds out by the acknowledgement."""
    clock = Clock()
    lease = renewed(clock)
    clock.now += SAFE_S
    sent_at = lease.sending()
    assert not lease.acknowledged(sent_at)
    assert not lease.is_valid()
    assert not lease.acknowledged(lease.sending())


def test_a_renewal_sent_in_time_and_acknowledged_too_late_does_not_save_it() -> None:
    clock = Clock()
    lease = renewed(clock)
    clock.now += SAFE_S - 0.1
    sent_at = lease.sending()
    clock.now += 0.2
    assert not lease.acknowledged(sent_at)
    assert lease.is_over


def test_a_clock_that_went_back_does_not_revive_it() -> None:
    clock = Clock()
    lease = renewed(clock)
    clock.now += SAFE_S
    assert not lease.is_valid()
    clock.now -= SAFE_S
    assert not lease.is_valid()


def test_the_first_acknowledgement_may_come_too_late() -> None:
    clock = Clock()
    lease = Lease(TTL_S, clock)
    sent_at = lease.sending()
    clock.now += SAFE_S
    assert not lease.acknowledged(sent_at)
    assert lease.is_over
