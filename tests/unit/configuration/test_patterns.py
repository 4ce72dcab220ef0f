"""One pattern and one type: the same answer as the trie of subscriptions."""

from hypothesis import given
from hypothesis import strategies as st

from actors.configuration.problems import is_pattern
from actors.subscriptions import Subscriptions, matches

TOKENS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
PATTERNS = st.lists(st.sampled_from("ab*"), max_size=4).flatmap(
    lambda tokens: st.sampled_from([".".join([*tokens, ">"]), ".".join(tokens) or ">"])
)


@given(pattern=PATTERNS, tokens=TOKENS)
def test_a_pattern_means_what_a_subscription_means(pattern: str, tokens: list[str]) -> None:
    subscriptions = Subscriptions()
    subscriptions.put("acme.x", (pattern,))
    event_type = ".".join(tokens)
    assert is_pattern(pattern)
    assert matches(pattern, event_type) == bool(subscriptions.match("acme", event_type))
