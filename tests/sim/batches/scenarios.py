"""Batches of four events, as many as the receiver takes at a time: which events go together, and when."""

from collections.abc import Callable
from typing import Any

from tests.sim.stage import R, Stage, staged
from tests.sim.world.receivers import Manner

Scenario = Callable[[], None]
FOUR = ("one", "two", "three", "four")
LINGER_S = 30.0
"""Longer than it takes to publish four events, so that they go in one POST."""


def _put(stage: Stage, max_events: int, *, max_bytes: int = 1000, **members: Any) -> None:
    batch = {"max_events": max_events, "max_bytes": max_bytes, "linger_s": LINGER_S}
    stage.put(batch=batch, **members)


def _first_is_rejected_then(stage: Stage, manner: Manner) -> None:
    """The receiver rejects the first POST, and deals like that with those after it."""
    stage.receiver_is(Manner.REJECTS)
    stage.at_start(1, lambda process: stage.receiver_is(manner))


def _failed_together(stage: Stage) -> tuple[int, int] | None:
    """The first and last number of the recorded POST in which the oldest open event failed."""
    state = stage.checkers.journal_of(R).states.get(R)
    return state.open[0].post if state and state.open else None


def batch_is_cut_and_the_limit_grows_again() -> None:
    """Two of four events that failed together fail again, in a POST of their own."""
    with staged() as stage:
        _put(stage, 4)
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.ERRS)
        stage.publish(*FOUR)
        stage.until(lambda: _failed_together(stage) == (1, 4))
        _put(stage, 4, max_bytes=4)  # Two bodies.
        stage.until(lambda: _failed_together(stage) == (1, 2))
        _put(stage, 4)
        stage.wait(2.0)
        stage.receivers_are_good()
        stage.settle()


def first_half_fails() -> None:
    """A batch is rejected, and its first half has to wait for its next attempt."""
    with staged() as stage:
        _put(stage, 4, retry={"base_s": 20.0, "cap_s": 20.0})
        stage.node()
        stage.owner()
        _first_is_rejected_then(stage, Manner.ERRS)
        stage.publish(*FOUR)
        stage.until(lambda: _failed_together(stage) == (1, 2) and stage.checkers.starts > 1)
        stage.wait(1.0)
        stage.receivers_are_good()
        stage.settle()


def halves_wait_for_tokens() -> None:
    """A batch is rejected, and each of its halves needs a token."""
    with staged() as stage:
        _put(stage, 4, rate={"limit": 6, "per": "minute", "burst": 1})
        stage.node()
        stage.owner()
        _first_is_rejected_then(stage, Manner.TAKES)
        stage.publish(*FOUR)
        stage.settle()


def order_changes_during_a_post() -> None:
    """A receiver whose POST is under way becomes relaxed while two more events wait."""
    with staged() as stage:
        _put(stage, 2, timeout_s=5.0)
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.publish(*FOUR)
        stage.until(lambda: stage.checkers.starts == 1)
        stage.receivers_are_good()
        _put(stage, 2, timeout_s=5.0, order="relaxed")
        stage.settle()


def batch_has_an_event_twice() -> None:
    """An event is published twice, and both messages wait for the same POST."""
    with staged() as stage:
        _put(stage, 4)
        stage.node()
        stage.owner()
        stage.publish("one", *FOUR)
        stage.settle()


ALL = (
    batch_is_cut_and_the_limit_grows_again, first_half_fails, halves_wait_for_tokens,
    order_changes_during_a_post, batch_has_an_event_twice,
)  # fmt: skip
