"""Events counted by tenant: producers that invent tenants cost a limited memory."""

from streams.routing.node_routing import COUNTED_TENANTS_MAX, EventsByTenant


def test_tenants_beyond_the_first_have_no_counts_of_their_own() -> None:
    counted = EventsByTenant()
    for number in range(COUNTED_TENANTS_MAX + 5):
        counted.add_new(f"t{number}")
    assert (len(counted.counts), counted.others) == (COUNTED_TENANTS_MAX, 5)
    assert set(counted.counts.values()) == {1}


def test_a_subject_that_names_no_tenant_is_counted_without_a_name() -> None:
    counted = EventsByTenant()
    for name in ("_other", "a b", "1st"):
        counted.add_new(name)
    assert (counted.counts, counted.others) == ({}, 3)
