"""Receivers that are offline for a while, get pings, and return; their owners die meanwhile."""

from typing import Any

from actors.machine import facts as f
from tests.sim.stage import Stage, old, staged
from tests.sim.world.process import EPOCH_S, Process
from tests.sim.world.receivers import Manner

PINGED: dict[str, Any] = {"after_s": 1, "ping": True}
SOON: dict[str, Any] = {"base_s": 0.2, "cap_s": 0.4}
LENGTH_S = 20.0


def _begin(stage: Stage, **members: Any) -> Process:
    """An owner whose receiver fails from the beginning, and has an event that waits."""
    stage.put(**({"retry": SOON, "offline": PINGED} | members))
    stage.node().skew_s = 0.0
    owner = stage.owner()
    stage.receiver_is(Manner.ERRS)
    stage.publish("first")
    return owner


def _outcomes(stage: Stage) -> list[f.OutcomeFact]:
    kinds = (f.Delivered, f.AttemptFailed, f.Throttled)
    journal = stage.checkers.journals[0]
    return [each for _, flush in journal.flushes for each in flush.facts if isinstance(each, kinds)]


def _pings(stage: Stage) -> list[f.OutcomeFact]:
    return [each for each in _outcomes(stage) if each.kind == f.OFFLINE_PING]


def _attempts(stage: Stage) -> list[f.OutcomeFact]:
    return [each for each in _outcomes(stage) if each.events]


def _replace(stage: Stage, owner: Process) -> None:
    owner.kill()
    stage.node().skew_s = 0.0
    stage.owner()


def pings_take_the_place_of_events() -> None:
    """After a second no event is sent, by any owner, and no attempt is used up; then it is delivered."""
    with staged() as stage:
        owner = _begin(stage, retry=SOON | {"max_attempts": 60})
        stage.wait(LENGTH_S)
        _replace(stage, owner)
        stage.wait(LENGTH_S)
        attempts, pings = _attempts(stage), _pings(stage)
        late = [each for each in attempts if each.at > attempts[0].at + 1.5]
        stage.expect(not late, f"{len(late)} events were sent to a receiver that was offline")
        stage.expect(len(pings) > LENGTH_S, f"only {len(pings)} pings were made")
        stage.expect(len(pings) < 2 * LENGTH_S / SOON["base_s"], f"{len(pings)} pings were made")
        stage.receivers_are_good()
        stage.settle()
        ended = [each for each in _outcomes(stage) if isinstance(each, f.Delivered)]
        stage.expect(
            len(ended) == 2, f"{len(ended)} successes are recorded, not those of a ping and an event"
        )


def owner_dies_between_two_pings() -> None:
    """The next owner knows when the next ping is due."""
    with staged() as stage:
        owner = _begin(stage, retry={"base_s": 30, "cap_s": 30})
        stage.until(lambda: len(_pings(stage)) == 2)
        failed = _pings(stage)[-1]
        stage.wait(0.5)
        _replace(stage, owner)
        starts = list[float]()
        stage.checkers.on_start = lambda process: starts.append(EPOCH_S + stage.world.now)
        stage.wait(40.0)
        due_at = failed.until if isinstance(failed, f.AttemptFailed) else 0.0
        stage.expect(bool(starts), "no ping was made by the next owner")
        stage.expect(starts[0] > due_at - 0.1, f"the next ping came {due_at - starts[0]:.1f} s too early")
        stage.receivers_are_good()
        stage.settle()


def receiver_returns_after_long_delays() -> None:
    """Open events do not wait for delays that were about the time offline."""
    with staged() as stage:
        _begin(stage, order="relaxed", retry={"base_s": 50, "cap_s": 50})
        stage.publish(*old(5))
        stage.wait(3.0)
        stage.receiver_is(Manner.TAKES)
        stage.ask("ping")
        at = stage.world.now
        stage.until(lambda: len(stage.delivered()) == 6)
        stage.expect(stage.world.now - at < 4.0, f"events waited for {stage.world.now - at:.1f} s")
        stage.settle()


def _waiting(stage: Stage, **members: Any) -> list[float]:
    """Let many events wait for a receiver that is offline; returns when attempts start from now on."""
    _begin(stage, order="relaxed", concurrency=32, **members)
    stage.publish(*old(60))
    stage.wait(LENGTH_S)
    starts = list[float]()
    stage.checkers.on_start = lambda process: starts.append(stage.world.now)
    return starts


def receiver_returns_and_hangs() -> None:
    """A receiver that has answered a ping, and no more, does not meet its whole width."""
    with staged() as stage:
        starts = _waiting(stage)

        def begin(process: Process) -> None:
            starts.append(stage.world.now)
            stage.receiver_is(Manner.HANGS)

        stage.wait(1.0)
        del starts[:]
        stage.checkers.on_start = begin
        stage.receiver_is(Manner.TAKES)
        stage.wait(6.0)
        stage.expect(len(starts) == 2, f"{len(starts) - 1} attempts followed the ping")
        stage.checkers.on_start = lambda process: None
        stage.receivers_are_good()
        stage.settle()


def receiver_returns_with_saved_tokens() -> None:
    """No burst follows the time offline, by the owner that saw its end and by the next one."""
    with staged() as stage:
        starts = _waiting(stage, rate={"limit": 2, "burst": 40}, retry={"base_s": 4, "cap_s": 4})
        stage.receiver_is(Manner.TAKES)
        stage.until(lambda: isinstance(_outcomes(stage)[-1], f.Delivered))
        del starts[:]
        stage.wait(6.0)
        stage.expect(6 <= len(starts) <= 13, f"{len(starts)} attempts started in 6 s at 2 a second")
        _replace(stage, stage.owner())
        del starts[:]
        stage.wait(4.0)
        stage.expect(len(starts) <= 9, f"{len(starts)} attempts started in 4 s at 2 a second")
        stage.settle()


ALL = (
    pings_take_the_place_of_events, owner_dies_between_two_pings, receiver_returns_after_long_delays,
    receiver_returns_and_hangs, receiver_returns_with_saved_tokens,
)  # fmt: skip
