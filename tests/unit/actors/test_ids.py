"""Names, ids, and the hashes behind shards and jitter: written down, since they must never change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import InvalidName
from actors.ids import check_tenant, check_type, dedup_key, event_id, fraction, split_receiver, stable_hash

GOOD_ID = st.text("ABCxyz019_-:", min_size=1, max_size=128)


@pytest.mark.parametrize("tenant", ["a", "Acme", "a-1_B", "x" * 64])
def test_valid_tenants_are_accepted(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", "1a", "_a", "-a", "a.b", "a b", "ä", "a\n", "x" * 65, "a*", "a>"])
def test_invalid_tenants_are_refused(tenant: str) -> None:
    with pytest.raises(InvalidName, match="tenant"):
        check_tenant(tenant)


@pytest.mark.parametrize("receiver", ["acme.billing", "A.1", "a.-", "a." + "n" * 64, "a.b_"])
def test_valid_receivers_are_split_into_tenant_and_name(receiver: str) -> None:
    assert ".".join(split_receiver(receiver)) == receiver


@pytest.mark.parametrize("receiver", ["acme", "", ".", "a.", ".b", "a._b", "a.b.c", "a.b ", "a." + "n" * 65])
def test_invalid_receivers_are_refused(receiver: str) -> None:
    with pytest.raises(InvalidName):
        split_receiver(receiver)


@pytest.mark.parametrize("event_type", ["a", "order.created", "A-1._x", ".".join("t" * 16), "x" * 200])
def test_valid_types_are_accepted(event_type: str) -> None:
    assert check_type(event_type) == event_type


@pytest.mark.parametrize(
    "event_type", ["", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\n", ".".join("t" * 17), "x" * 201]
)
def test_invalid_types_are_refused(event_type: str) -> None:
    with pytest.raises(InvalidName, match="event type"):
        check_type(event_type)


@given(GOOD_ID)
def test_a_good_id_is_kept(given_id: str) -> None:
    assert event_id(given_id, 7, 1.0) == given_id


@given(st.text())
def test_any_id_becomes_a_good_one_always_the_same(given_id: str) -> None:
    made = event_id(given_id, 7, 1.0)
    assert made == event_id(given_id, 8, 2.0)
    assert event_id(made, 9, 3.0) == made


def test_a_lone_surrogate_in_an_id_is_hashed_too() -> None:
    assert event_id("\ud800", 1, 1.0) == "h_b4fe3de0239399efbfffc79686f435f9"


def test_a_missing_id_names_place_and_time() -> None:
    assert event_id(None, 42, 1_700_000_000.1234) == "evt_42_1700000000123"


@settings(max_examples=50)
@given(GOOD_ID, GOOD_ID, st.text("AZaz09_:-", max_size=128), st.text("AZaz09_:-", max_size=128))
def test_an_event_sent_again_is_another_one(one: str, other: str, again: str, other_again: str) -> None:
    same = (one, again) == (other, other_again)
    assert (dedup_key(one, again) == dedup_key(other, other_again)) is same


def test_the_hashes_never_change() -> None:
    assert dedup_key("evt_1", "").hex() == "d659aecd31a53f49"
    assert dedup_key("evt_1", "r1").hex() == "cc95684729cb6652"
    assert fraction("acme.billing", 1, 1) == 0.02210924729003383
    assert stable_hash("https://example.com") == "ea1a275a1f241484"


@settings(max_examples=50)
@given(st.text(), st.integers(0), st.integers(1))
def test_the_jitter_lies_between_nothing_and_all(receiver: str, sequence: int, attempt: int) -> None:
    assert 0 <= fraction(receiver, sequence, attempt) < 1


def test_the_jitter_is_spread_evenly() -> None:
    drawn = sorted(fraction("acme.billing", n, 1) for n in range(1000))
    assert all(abs(value - i / 1000) < 0.05 for i, value in enumerate(drawn))
