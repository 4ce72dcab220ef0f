"""Messages between reads: each counts for the process and the heartbeat that it came from."""

import pytest

from streams.fleet.last_messages import LastMessages

CAME_AT, NOW = 100.0, 103.0


@pytest.fixture
def messages() -> LastMessages:
    messages = LastMessages()
    messages.add("a", "first", 7, CAME_AT, (1, 2))
    messages.add("b", "", 7, CAME_AT, ())
    return messages


@pytest.mark.parametrize(
    ("node", "run", "number", "since"),
    [
        ("a", "first", 7, CAME_AT),
        ("a", "first", 8, NOW),
        ("a", "first", 6, NOW),
        ("a", "second", 7, NOW),
        ("b", "", 7, NOW),
        ("c", "first", 7, NOW),
    ],
    ids=[
        "this one",
        "a later one",
        "an earlier one",
        "another process",
        "an unknown process",
        "another node",
    ],
)
def test_a_heartbeat_came_when_its_own_message_did(
    messages: LastMessages, node: str, run: str, number: int, since: float
) -> None:
    assert messages.came_at(node, run, number, NOW) == since


def test_owned_shards_are_those_of_the_last_messages_of_live_nodes(messages: LastMessages) -> None:
    messages.add("b", "first", 1, NOW, (3,))
    assert messages.owned() == {1, 2, 3}
    messages.add("a", "first", 8, NOW, (2,))
    assert messages.owned() == {2, 3}
    messages.drop("b")
    assert messages.owned() == {2}
    messages.keep(())
    assert messages.owned() == set()
