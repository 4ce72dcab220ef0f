"""Receivers that say what they can take, and owners that die after they have learnt it."""

from random import Random
from typing import Any

from actors.machine.outcome import Answered
from streams.nats.wire import Message
from tests.sim.stage import Deal, R, Stage, old, staged
from tests.sim.world.process import Process
from tests.sim.world.receivers import Manner

RESET_S = 20.0
RELAXED: dict[str, Any] = {"order": "relaxed", "concurrency": 8}
TEN: dict[str, Any] = {"limit": 10, "per": "second", "burst": 20}


def answer(status: int, **headers: str) -> Answered:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answered(status=status, latency_ms=1.0, headers=named)


def left(count: int, reset_s: float = RESET_S) -> Answered:
    return answer(200, ratelimit=f'"a";r={count};t={reset_s:g}')


def _begin(stage: Stage, *answers: Answered, **members: Any) -> tuple[Process, list[float]]:
    """An owner whose receiver gives these answers first, and the times at which attempts start."""
    stage.put(**members)
    stage.node().skew_s = 0.0
    owner, starts = stage.owner(), list[float]()
    stage.run.receivers.next_answers[R] = list(answers)
    stage.checkers.on_start = lambda process: starts.append(stage.world.now)
    return owner, starts


def _replace(stage: Stage, owner: Process) -> None:
    """The owner dies once its facts are stored, and another node takes over."""
    stage.wait(1.0)
    owner.kill()
    stage.node().skew_s = 0.0
    stage.owner()


def _most_within(starts: list[float], length_s: float) -> int:
    return max((sum(at <= each < at + length_s for each in starts) for at in starts), default=0)


def nothing_is_left_when_the_owner_dies() -> None:
    """No attempt starts before the reset, of any owner."""
    with staged() as stage:
        owner, starts = _begin(stage, left(0))
        stage.publish("one", "two")
        stage.until(lambda: len(starts) == 1)
        _replace(stage, owner)
        stage.settle()
        stage.expect(starts[1] - starts[0] >= RESET_S - 0.1, f"the next attempt came at {starts}")


def little_is_left_when_the_owner_dies() -> None:
    """Little that is left is spread over the time until the reset."""
    with staged() as stage:
        owner, starts = _begin(stage, left(5), **RELAXED)
        stage.publish("one")
        stage.until(lambda: len(starts) == 1)
        stage.wait(0.5)
        stage.publish(*old(30))
        _replace(stage, owner)
        stage.settle()
        within = [each for each in starts if each < starts[0] + RESET_S - 0.5]
        stage.expect(len(within) <= 7, f"{len(within)} attempts started before the reset")
        stage.expect(len(within) >= 3, f"only {len(within)} attempts started before the reset")
        stage.expect(_most_within(within[2:], 3.9) == 1, "attempts did not come evenly")


def receiver_answers_429_and_its_owner_dies() -> None:
    """The next owner has half of the rate, and no burst."""
    with staged() as stage:
        owner, starts = _begin(stage, answer(429, retry_after="1"), rate=TEN, **RELAXED)
        stage.publish("one")
        stage.until(lambda: len(starts) == 2)
        stage.publish(*old(90))
        _replace(stage, owner)
        del starts[:]
        stage.wait(4.0)
        stage.expect(len(starts) >= 15, f"only {len(starts)} attempts started in 4 s")
        stage.expect(_most_within(starts, 1.0) <= 7, f"{_most_within(starts, 1.0)} attempts in a second")
        stage.settle()


def learnt_rate_ends() -> None:
    """A rate of one a second ends while the receiver is at work; then the configured rate follows, evenly."""
    with staged() as stage:
        _, starts = _begin(stage, left(6, 6.0), rate=TEN, **RELAXED)
        stage.publish("one")
        stage.until(lambda: len(starts) == 1)
        stage.wait(0.5)
        stage.publish(*old(60))
        stage.settle()
        stage.expect(_most_within(starts, 0.5) <= 8, f"{_most_within(starts, 0.5)} attempts in half a second")


def hidden_limit_is_found_and_the_owner_dies() -> None:
    """A receiver refuses more than three a second; the second owner knows that from the facts."""
    with staged() as stage:
        owner, starts = _begin(stage, adaptive={"smart": True, "headers": False}, **RELAXED)
        stage.run.receivers.hidden_limits[R] = 3
        stage.publish(*old(150))
        stage.wait(25.0)
        _replace(stage, owner)
        stage.run.receivers.refused = 0
        del starts[:]
        stage.wait(10.0)
        refused = stage.run.receivers.refused
        stage.expect(refused <= 2, f"{refused} of {len(starts)} attempts were refused")
        stage.expect(len(starts) >= 12, f"only {len(starts)} attempts started in 10 s")
        stage.receivers_are_good()
        stage.settle()


def few_attempts_at_once_are_learnt() -> None:
    """A receiver that is slow and answers 503 gets fewer attempts at once."""
    with staged() as stage:
        _begin(stage, *[answer(503)] * 3, adaptive={"concurrency": True, "after_429": False}, **RELAXED)
        stage.publish("one")
        stage.settle()
        stage.run.receivers.set_on(R, Manner.HANGS)
        starts = stage.checkers.starts
        stage.publish(*old(20))
        stage.wait(2.0)
        at_once = stage.checkers.starts - starts
        stage.expect(at_once <= 4, f"{at_once} attempts were in flight")
        stage.receivers_are_good()
        stage.settle()


def limits_are_told_at_random() -> None:
    """A receiver tells all kinds of limits: the configured rate holds, and facts are few."""
    chance = Random(7)
    answers = [
        answer(
            chance.choice((200, 200, 429)), x_ratelimit_limit="50",
            x_ratelimit_remaining=chance.choice(("0", "1", "9", "40", "-1", "x")),
            x_ratelimit_reset_after=chance.choice(("0", "0.2", "1", "3", "")),
        )
        for _ in range(60)
    ]  # fmt: skip
    with staged() as stage:
        owner, _ = _begin(stage, *answers, rate=TEN, adaptive={"concurrency": True}, **RELAXED)
        at = list[float]()

        def count(message: Message, deal: Deal) -> None:
            if ".journal." in message.subject:
                at.extend([stage.world.now] * message.data.count(b'"pace_set"'))
            deal()

        stage.gate(count)
        stage.publish(*old(120))
        _replace(stage, owner)
        stage.settle()
        stage.expect(len(at) > 3, f"only {len(at)} facts about the pace")
        stage.expect(len(at) <= at[-1] - at[0] + 2, f"facts about the pace came at {at}")
