"""Evidence: which failures together show an outage, and which never do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.http_exchange.target import Target, parse_target
from angarium.delivery.own_outage.evidence import (
    EVIDENCE_WINDOW_S,
    HOSTS_OF_TENANT_MAX,
    HOSTS_REMEMBERED_S,
    NETWORKS_MIN,
    TENANTS_MAX,
    Evidence,
    is_this_machine,
    network_of,
)


def target(number: int) -> Target:
    return parse_target(f"https://h.example{number}.com/")


def fail(evidence: Evidence, *, count: int = NETWORKS_MIN, tenants: int = 3, at: float = 0.0) -> None:
    for number in range(count):
        evidence.unreached(f"t{number % tenants}", target(number), "", at)


def test_enough_places_of_three_tenants_show_an_outage() -> None:
    evidence = Evidence()
    fail(evidence, count=NETWORKS_MIN - 1)
    assert not evidence.has_enough_networks(0.0)
    assert not evidence.shows_outage(0.0)
    evidence.unreached("t0", target(NETWORKS_MIN), "", 0.0)
    assert evidence.has_enough_networks(0.0)
    assert evidence.shows_outage(0.0)
    assert evidence.shows_outage(EVIDENCE_WINDOW_S)
    assert not evidence.shows_outage(EVIDENCE_WINDOW_S + 0.1)


def test_a_connection_of_any_tenant_disproves_it() -> None:
    evidence = Evidence()
    fail(evidence)
    evidence.reached("other", target(99), "", 0.5)
    assert not evidence.shows_outage(1.0)
    fail(evidence, at=1.0, tenants=3)
    assert evidence.shows_outage(1.0)


def test_one_tenant_shows_it_only_if_there_is_no_other() -> None:
    evidence = Evidence()
    fail(evidence, tenants=1)
    assert evidence.shows_outage(0.0)
    evidence.reached("b", target(99), "", 1.0)
    fail(evidence, tenants=1, at=2.0)
    assert not evidence.shows_outage(2.0)
    evidence.unreached("b", target(99), "", 2.0)
    assert evidence.shows_outage(2.0)


def test_two_of_many_tenants_do_not_show_it() -> None:
    evidence = Evidence()
    evidence.reached("b", target(98), "", 0.0)
    evidence.reached("c", target(99), "", 0.0)
    fail(evidence, tenants=2, at=1.0)
    assert not evidence.shows_outage(1.0)
    evidence.unreached("b", target(98), "", 1.0)
    assert evidence.shows_outage(1.0)


@pytest.mark.parametrize(
    ("name", "address", "network"),
    [
        ("a.example.com", "", "example.com"), ("b.c.example.com", "", "example.com"),
        ("a.example.com", "192.0.2.7", "192.0.2.0/24"), ("192.0.2.9", "", "192.0.2.0/24"),
        ("2001:db8:1:2::1", "", "2001:db8:1::/48"), ("localhost", "", "localhost"),
    ],
)  # fmt: skip
def test_a_host_is_counted_by_its_network_or_zone(name: str, address: str, network: str) -> None:
    assert network_of(name, address) == network


def test_many_names_in_one_place_count_once() -> None:
    evidence = Evidence()
    for number in range(HOSTS_OF_TENANT_MAX):
        for tenant in ("a", "b", "c"):
            evidence.unreached(tenant, parse_target(f"https://h{number}.example.com/"), "", 0.0)
            evidence.unreached(tenant, target(number), "192.0.2.7", 0.0)
    assert not evidence.shows_outage(0.0)
    assert not evidence.has_enough_networks(0.0)


@pytest.mark.parametrize(
    ("name", "address", "here"),
    [
        ("localhost", "", True), ("a.localhost", "", True), ("127.0.0.9", "", True), ("::1", "", True),
        ("example.com", "127.0.0.1", True), ("example.com", "", False), ("10.0.0.1", "", False),
    ],
)  # fmt: skip
def test_this_machine_is_known(name: str, address: str, here: bool) -> None:
    assert is_this_machine(name, address) is here


def test_witnesses_are_asked_by_tenants_in_turn_the_latest_first() -> None:
    evidence = Evidence()
    for number in range(3):
        evidence.reached("a", target(number), "", float(number))
    evidence.reached("b", target(10), "", 1.5)
    evidence.unreached("c", target(20), "", 3.0)
    evidence.unreached("c", target(1), "", 3.0)
    names = [each.target.host for each in evidence.witnesses(3.0)]
    assert names == ["h.example2.com", "h.example10.com", "h.example0.com"]
    assert [each.target.host for each in evidence.witnesses(3.0 + EVIDENCE_WINDOW_S + 1)][2:] == [
        "h.example20.com", "h.example1.com", "h.example0.com",
    ]  # fmt: skip


def test_memory_of_hosts_is_bounded_and_ends() -> None:
    evidence = Evidence()
    for number in range(HOSTS_OF_TENANT_MAX + 5):
        evidence.unreached("a", target(number), "", float(number))
    assert len(evidence.in_turn(50.0)) == HOSTS_OF_TENANT_MAX
    assert evidence.has_enough_networks(HOSTS_REMEMBERED_S)
    assert not evidence.has_enough_networks(HOSTS_REMEMBERED_S + 100)
    for number in range(TENANTS_MAX + 5):
        evidence.reached(f"t{number}", target(1000 + number), "", 60.0)
    assert len(evidence.in_turn(60.0)) == TENANTS_MAX
    assert all(each.tenant != "a" for each in evidence.in_turn(60.0))


COURSE = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from("abcd"), st.integers(0, 30), st.integers(0, 15)), max_size=120
)


@given(COURSE)
def test_no_course_shows_an_outage_unless_all_failed_since_the_last_connection(
    course: list[tuple[float, str, int, int]],
) -> None:
    """The rule, plainly, with all that ever happened at hand; one of 16 attempts reaches its host."""
    evidence, now, happened = Evidence(), 0.0, list[tuple[float, str, int, bool]]()
    for passed_s, tenant, number, chance in course:
        now += passed_s
        reached = chance == 0
        (evidence.reached if reached else evidence.unreached)(tenant, target(number), "", now)
        happened.append((now, tenant, number, reached))
        last = max((at for at, _, _, good in happened if good), default=-1.0)
        latest = {(each[1], each[2]): each[0] for each in happened if not each[3]}
        failed = {key for key, at in latest.items() if at > last and at >= now - EVIDENCE_WINDOW_S}
        tenants = {each[1] for each in happened}
        expected = len({key[1] for key in failed}) >= NETWORKS_MIN and len({key[0] for key in failed}) >= min(
            3, len(tenants)
        )
        assert evidence.shows_outage(now) is expected
