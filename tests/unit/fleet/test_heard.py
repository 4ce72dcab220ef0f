"""Messages between looks: each counts for the process and the heartbeat that it came from."""

import pytest

from streams.fleet.heard import Heard

CAME_AT, NOW = 100.0, 103.0


@pytest.fixture
def heard() -> Heard:
    heard = Heard()
    heard.add("a", "first", 7, CAME_AT, (1, 2))
    heard.add("b", "", 7, CAME_AT, ())
    return heard


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
    heard: Heard, node: str, run: str, number: int, since: float
) -> None:
    assert heard.came_at(node, run, number, NOW) == since


def test_owned_shards_are_those_of_the_last_messages_of_live_nodes(heard: Heard) -> None:
    heard.add("b", "first", 1, NOW, (3,))
    assert heard.owned() == {1, 2, 3}
    heard.add("a", "first", 8, NOW, (2,))
    assert heard.owned() == {2, 3}
    heard.drop("b")
    assert heard.owned() == {2}
    heard.keep(())
    assert heard.owned() == set()
