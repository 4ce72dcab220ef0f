"""The status says in words that an attempt waits for a network, or for a turn at a host."""

import pytest

from actors.machine.scheduling.view import FixedBounds, View
from actors.machine.state import State
from actors.status import why
from tests.unit.worlds.values import NOW, event, policy

HEAD = event(5)
POLICY = policy()


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            FixedBounds(may_reach=False),
            "this node can connect to no host, and only makes probes until it can",
        ),
        (
            FixedBounds(may_try_host=False),
            "its host cannot be connected to: its receivers try it in turn, one at a time",
        ),
    ],
)
def test_the_status_says_that_a_host_cannot_be_connected_to(bounds: FixedBounds, words: str) -> None:
    view = View(waiting=(HEAD,), bounds=bounds)
    assert why(State(receiver="a.b", opened=True), POLICY, view, NOW, backlog=3) == words


def test_a_receiver_that_is_offline_waits_for_its_turn_too() -> None:
    state = State(receiver="a.b", opened=True, failing_since=NOW - 600, consecutive_failures=9)
    view = View(waiting=(HEAD,), bounds=FixedBounds(may_try_host=False))
    words = why(state, POLICY, view, NOW, backlog=3)
    assert words.startswith("offline: ")
    assert words.endswith("; its host cannot be connected to: its receivers try it in turn, one at a time")
