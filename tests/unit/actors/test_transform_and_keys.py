"""The live state of a receiver: its transform, and a key that its node lacks."""

from actors.configuration.policy import Policy
from actors.configuration.transform import Transform
from actors.machine.scheduling.view import View
from actors.machine.state import OpenEvent, RecordedTransform, State
from actors.status import ReceiverState, inspect

NOW = 1_700_000_000.0
POLICY = Policy(url="https://a.example")


def shown(state: State, policy: Policy | None = POLICY, *, needs_key: bool = False) -> ReceiverState:
    return inspect(
        state, policy, View(), NOW, shard=7, node="n1", queued=0, backlog=0, head=None, last_answer=None,
        problems=[], needs_key=needs_key,
    )  # fmt: skip


def test_the_transform_in_force_is_shown_with_the_events_that_keep_another() -> None:
    transform = RecordedTransform(revision=7, transform=Transform(keep=("/a", "/b"), drop=("/a/c",)))
    events = tuple(
        OpenEvent(sequence=each, position=each, id=f"e{each}", stored_at=NOW, transform=each)
        for each in (0, 6, 7)
    )
    state = State(receiver="a.b", open=events, transform=7, transforms=(transform,))
    assert shown(state)["transform"] == {
        "revision": 7, "keep": 2, "drop": 1, "pseudonymize": 0, "open_otherwise": 2,
    }  # fmt: skip
    assert shown(State(receiver="a.b", transforms=(transform,)))["transform"] is None


def test_a_receiver_whose_node_lacks_a_key_need_not_be_put_again() -> None:
    state = State(receiver="a.b")
    assert [shown(state, None, needs_key=each)["remedy"] for each in (True, False)] == ["key", "put"]
    assert shown(state, needs_key=True)["remedy"] is None
