"""The status of a receiver with a handshake: its phase and why, and the rate that it allowed."""

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.handshake.proof import handshake_key
from actors.machine.scheduling.view import FixedBounds, View
from actors.machine.state import Handshake, State
from actors.status import ReceiverState, inspect, why
from tests.unit.worlds.values import NOW

UNPROVEN = Policy(url="https://a.example", handshake="cloudevents")


def shown(state: State, policy: Policy) -> ReceiverState:
    return inspect(
        state, policy, View(bucket=state.bucket), NOW, shard=7, node="n1", queued=0, backlog=1, head=None,
        last_answer=None, problems=[],
    )  # fmt: skip


def test_an_unverified_receiver_says_what_its_handshake_came_to() -> None:
    state = State(receiver="a.b")
    assert shown(state, UNPROVEN)["resume_at"] is None
    said = why(state, UNPROVEN, View(), NOW, backlog=1)
    assert said == "unverified: it has to prove itself; a handshake is made before the next event is sent"
    known = Handshake(key=handshake_key(UNPROVEN), failures=2, error="HTTP 404", next_at=NOW + 42)
    failed = State(receiver="a.b", handshake=known, failing_since=NOW - 9e5)
    assert why(failed, UNPROVEN, View(), NOW, backlog=1) == (
        "unverified: the handshake failed 2 times, the last: HTTP 404; "
        "the next is at 2023-11-14T22:14:02Z (in 42s)"
    )
    assert shown(failed, UNPROVEN)["resume_at"] == "2023-11-14T22:14:02.000Z"
    assert "a handshake is under way" in why(failed, UNPROVEN, View(handshake_under_way=True), NOW, backlog=1)
    alone = View(bounds=FixedBounds(all_know_handshakes=False))
    assert "upgrade it" in why(failed, UNPROVEN, alone, NOW, backlog=1)
    elsewhere = State(receiver="a.b", handshake=replace(known, key="another URL"))
    assert shown(elsewhere, UNPROVEN)["handshake"] == {
        "kind": "cloudevents", "verified": False, "failures": 0, "failing_since": None, "error": None,
        "next_at": None, "allowed_per_minute": None,
    }  # fmt: skip


def test_the_bucket_shows_the_rate_that_a_receiver_allowed_if_none_is_configured() -> None:
    known = Handshake(key=handshake_key(UNPROVEN), verified=True, per_minute=120)
    state = State(
        receiver="a.b", handshake=known, limit=RateLimit(2.0, 1), bucket=Bucket(1.0, NOW, 1)
    )  # fmt: skip
    assert shown(state, UNPROVEN)["bucket"] == {
        "tokens": 1.0, "limit": 120, "per": "minute", "burst": 1, "effective_limit": 120.0,
    }  # fmt: skip
