"""Token buckets of tenants in the router."""

from hypothesis import given
from hypothesis import strategies as st

from actors.machine.bucket import RateLimit
from streams.routing import tenant_rates as module
from streams.routing.tenant_rates import TenantRates


@given(st.floats(0.1, 50), st.integers(1, 20), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_in_each_window_there_are_at_most_burst_and_rate(
    per_second: float, burst: int, pauses: list[float]
) -> None:
    rates, now, taken = TenantRates(lambda _: RateLimit(per_second, burst)), 100.0, list[float]()
    for pause in pauses:
        now += pause
        if not rates.take("acme", now):
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = burst + per_second * (taken[last] - taken[first])
            assert last - first + 1 <= allowed + 1e-6


@given(st.floats(0.1, 50), st.integers(1, 20))
def test_at_the_time_that_it_names_there_is_a_token(per_second: float, burst: int) -> None:
    rates, now = TenantRates(lambda _: RateLimit(per_second, burst)), 100.0
    for _ in range(30):
        due_at = rates.take("acme", now)
        if due_at:
            assert due_at > now
            assert rates.take("acme", due_at) == 0.0
            now = due_at


def test_a_new_owner_grants_no_burst() -> None:
    rates = TenantRates(lambda _: RateLimit(1.0, 100))
    assert [bool(rates.take("acme", 7.0)) for _ in range(3)] == [False, True, True]


def test_tenants_without_a_rate_take_no_memory_and_quiet_ones_are_forgotten() -> None:
    limits = {f"t{number}": RateLimit(1.0, 1) for number in range(2 * module.FORGET_AFTER_MIN)}
    rates = TenantRates(limits.get)
    assert rates.take("free", 0.0) == 0.0
    for number, tenant in enumerate(limits):
        assert rates.take(tenant, float(number)) == 0.0
    assert rates.take("t0", float(len(limits))) == 0.0
    assert rates.held <= module.FORGET_AFTER_MIN + 1


def test_very_many_tenants_cost_no_more_each_and_share_a_bucket_at_last() -> None:
    """Their names come from producers, and at a low rate no bucket is full again soon."""
    asked = 0

    def limit_of(_: str) -> RateLimit:
        nonlocal asked
        asked += 1
        return RateLimit(1 / 3600, 1)

    rates, count = TenantRates(limit_of), 3 * module.BUCKETS_MAX
    granted = sum(not rates.take(f"t{number}", 1000.0) for number in range(count))
    assert granted == module.BUCKETS_MAX + 1
    assert rates.held == module.BUCKETS_MAX + 1
    assert asked < 4 * count
    assert rates.take("t0", 1000.0) > 1000.0, "a tenant keeps the bucket that it has"
    for _ in range(count):
        rates.take("t0", 1e6)
    assert rates.held == 1, "the others are full by now"
