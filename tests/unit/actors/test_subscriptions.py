"""Subscriptions compared with a matcher too simple to be wrong, through every change."""

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import subscriptions
from actors.configuration.parsing import parse
from actors.configuration.problems import PATTERNS_MAX
from actors.errors import InvalidPolicy
from actors.subscriptions import ANSWER_COST, Subscriptions

TOKENS = ("a", "b", "c")
RECEIVERS = ("t.one", "t.two", "t.three", "u.one")

types = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=4).map(".".join)
exact = st.lists(st.sampled_from([*TOKENS, "*"]), min_size=1, max_size=4).map(".".join)
patterns = st.one_of(st.just(">"), exact, exact.map(lambda pattern: f"{pattern}.>"))
changes = st.lists(st.tuples(st.sampled_from(RECEIVERS), st.lists(patterns, max_size=4)), max_size=12)


def matches(pattern: str, event_type: str) -> bool:
    """Matches like the documentation of NATS says of its wildcards."""
    *wanted, last = pattern.split(".")
    tokens = event_type.split(".")
    if last == ">":
        enough = len(tokens) > len(wanted)
    else:
        wanted.append(last)
        enough = len(tokens) == len(wanted)
    return enough and all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def naive(subscribed: dict[str, list[str]], tenant: str, event_type: str) -> tuple[str, ...]:
    return tuple(sorted(
        receiver
        for receiver, wanted in subscribed.items()
        if receiver.startswith(f"{tenant}.") and any(matches(each, event_type) for each in wanted)
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "event_type", "matching"),
    [
        ("order", "order", True),
        ("order", "order.created", False),
        ("order.>", "order", False),
        ("order.>", "order.created", True),
        ("order.>", "order.created.twice", True),
        ("order.*", "order.created", True),
        ("order.*", "order.created.twice", False),
        ("*", "order", True),
        ("*.created", "order.created", True),
        ("*.>", "order", False),
        (">", "order", True),
        ("order", "Order", False),
    ],
)
def test_the_wildcards_are_those_of_nats(pattern: str, event_type: str, matching: bool) -> None:
    subscriptions = Subscriptions()
    subscriptions.put("t.one", [pattern])
    assert subscriptions.match("t", event_type) == (("t.one",) if matching else ())
    assert matches(pattern, event_type) is matching


@given(changes, types)
def test_through_all_changes_it_matches_as_a_naive_matcher_does(
    made: list[tuple[str, list[str]]], event_type: str
) -> None:
    subscriptions, subscribed = Subscriptions(), {}
    for receiver, wanted in made:
        subscriptions.put(receiver, wanted)
        subscribed[receiver] = wanted
        for tenant in ("t", "u", "unknown"):
            assert subscriptions.match(tenant, event_type) == naive(subscribed, tenant, event_type)


@given(changes)
def test_types_without_subscribers_take_no_memory(made: list[tuple[str, list[str]]]) -> None:
    subscriptions = Subscriptions()
    for receiver, wanted in made:
        subscriptions.put(receiver, wanted)
    for receiver in RECEIVERS[:3]:
        subscriptions.put(receiver, [])
    assert "t" not in subscriptions._tenants
    subscriptions.put("t.one", ["a.b"])
    subscriptions.put("t.two", [each for _, wanted in made for each in wanted])
    subscriptions.put("t.two", ["a.>"])
    root = subscriptions._tenants["t"].root
    assert (list(root.next), list(root.next["a"].next)) == (["a"], ["b"])


def test_the_order_is_that_of_the_alphabet_and_no_receiver_comes_twice() -> None:
    subscriptions = Subscriptions()
    subscriptions.put("t.b", ["a", "*", ">", "a"])
    subscriptions.put("t.a", [">"])
    assert subscriptions.match("t", "a") == ("t.a", "t.b")


class Visits:
    """Counts the nodes of a trie that were visited since the last question."""

    def __init__(self) -> None:
        self._count = 0
        self._collect = subscriptions.collect_matches

    def __call__(self, node: subscriptions._Node, tokens: list[str], at: int, found: dict[str, None]) -> None:
        self._count += 1
        self._collect(node, tokens, at, found)

    def take(self) -> int:
        count, self._count = self._count, 0
        return count


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Visits:
    visits = Visits()
    monkeypatch.setattr(subscriptions, "collect_matches", visits)
    return visits


def test_tens_of_thousands_of_receivers_cost_those_nothing_that_do_not_match(visits: Visits) -> None:
    """Two ways at most lead on from each token, and nothing else is checked, however many subscribe."""
    subscriptions = Subscriptions()
    for number in range(30_000):
        subscriptions.put(f"t.r{number}", [f"order.{number}.>", f"*.{number}", f"only.{number}"])
    subscriptions.put("t.all", [">"])
    assert subscriptions.match("t", "order.17.created") == ("t.all", "t.r17")
    assert visits.take() < 2**4
    assert subscriptions.match("t", "order.17") == ("t.all", "t.r17")
    assert visits.take() < 2**3


def test_the_wildcards_that_a_configuration_may_have_bound_what_a_type_costs(visits: Visits) -> None:
    """The patterns are all allowed combinations of `a` and `*`, with an end that never matches."""
    subscriptions = Subscriptions()
    patterns = [
        ".".join("*" if place in stars else "a" for place in range(15)) + ".zz"
        for count in filter(policy_takes, range(16))
        for stars in combinations(range(15), count)
    ]
    for number in range(0, len(patterns), PATTERNS_MAX):
        subscriptions.put(f"t.r{number}", patterns[number : number + PATTERNS_MAX])
    assert subscriptions.match("t", "a." * 15 + "b") == ()
    assert 1000 < visits.take() < 10_000


def policy_takes(count: int) -> bool:
    """True if a pattern may have this number of wildcards."""
    try:
        parse(json.dumps({"url": "https://a.example", "events": ["*." * count + "a"]}).encode(), strict=True)
    except InvalidPolicy:
        return False
    return True


def test_a_type_is_matched_once_until_its_tenant_changes(visits: Visits) -> None:
    subscriptions = Subscriptions()
    subscriptions.put("t.one", ["a"])
    subscriptions.put("u.one", ["a"])
    subscriptions.match("t", "a")
    assert visits.take() > 0
    subscriptions.put("u.one", ["b"])
    subscriptions.put("t.one", ["a"])
    assert subscriptions.match("t", "a") == ("t.one",)
    assert visits.take() == 0
    subscriptions.put("t.two", ["a"])
    assert subscriptions.match("t", "a") == ("t.one", "t.two")
    assert visits.take() > 0


def test_the_remembered_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "REMEMBERED_COST_MAX", 10 * ANSWER_COST)
    known = Subscriptions()
    for number in range(20):
        known.put(f"t.r{number}", [">"])
    for number in range(100):
        assert len(known.match("t", f"type-{number}")) == 20
        named = sum(len(answer) + ANSWER_COST for answer in known._answers.values())
        assert named <= 10 * ANSWER_COST
    assert known._answers


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (">", False), ("*.alert.>", False), ("*.*.failing", False), ("angarium.alert.>", True),
        ("angarium.>", True), ("angarium.*.failing", True), ("angarium.alert.offline", False),
        ("order.>", False),
    ],
)  # fmt: skip
def test_alerts_go_only_to_receivers_that_ask_for_types_of_angarium(pattern: str, expected: bool) -> None:
    subscribed, event_type = Subscriptions(), "angarium.alert.failing"
    subscribed.put("acme.ops", [pattern])
    assert subscribed.match("acme", event_type) == (("acme.ops",) if expected else ())
    assert subscriptions.matches(pattern, event_type) == expected
