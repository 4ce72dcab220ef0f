"""Rules of jobs and erasures, each taken out by itself: a run has to find what that breaks."""

import math
from collections.abc import Callable
from typing import Any

from angarium.node.housekeeping import eraser
from angarium.node.housekeeping.eraser import Eraser
from streams.erasing import search
from streams.erasing.erasures import Erasure
from streams.nats.answers import StoredMessage
from streams.resending.plan_lock import PlanLock
from streams.resending.redrive import Redrive
from streams.resending.replay import Replay
from streams.resending.sources import Sources
from tests.sim.mutants.mutant import Mutant
from tests.sim.resending import scenarios
from tests.sim.resending.resending_run import ResendingRun

_send, _store_plan = Replay._send, Redrive._keep


async def _ahead(self: Replay, page: list[StoredMessage], left: int, tell: Callable[[int], None]) -> None:
    await self._store(cursor=page[-1].sequence, left=left - len(page))
    await _send(self, page, left, tell)


async def _unplanned(self: Redrive, **changes: Any) -> None:
    await _store_plan(self, **{**changes, "letters": ()})


async def _never_renewed(self: PlanLock[Any], for_s: float = 0.0) -> None:
    return


def _always(self: Sources, position: int) -> bool:
    return True


async def _routed(self: Eraser, message: StoredMessage) -> bool:
    return True


async def _once(self: Eraser, erasure: Erasure, revision: int) -> None:
    return


async def _none_found(*_: object) -> list[int]:
    return []


async def _no_answers(*_: object) -> dict[int, int]:
    return {}


def _run(seed: int) -> None:
    ResendingRun(seed).run()


RESENDING_MUTANTS = [
    Mutant("replay-cursor-ahead", "the position is recorded after the copies up to it",
           ((Replay, "_send", _ahead),), run=_run),
    Mutant("redrive-unplanned", "the letters of a page are on record before they are sent",
           ((Redrive, "_keep", _unplanned),),
           scenarios.redrive_dies_between_two_steps),
    Mutant("lock-unchecked", "a copy is sent only within the lease of the lock",
           ((PlanLock, "ensure_held", _never_renewed),),
           scenarios.replaying_process_sleeps),
    Mutant("sources-unasked", "a copy is sent only within a lease of its source",
           ((Sources, "certain", _always),),
           scenarios.replaying_process_sleeps_through_an_erasure),
    Mutant("late-copies-unawaited", "an erasure is done when no copy can be on its way any more",
           ((eraser, "LATE_COPIES_S", -math.inf),),
           scenarios.erased_shortly_after_its_source_was_there),
    Mutant("erased-unrouted", "what producers published is deleted when it is routed",
           ((Eraser, "_is_routed", _routed),),
           scenarios.erased_while_it_is_routed),
    Mutant("looked-at-once", "an erasure looks again for copies that came late",
           ((Eraser, "_look_again", _once),),
           scenarios.copy_of_a_router_comes_late),
    Mutant("letters-kept", "dead letters are erased", ((search, "dead_letters", _none_found),),
           run=_run),
    Mutant("answers-kept", "answers that repeat the body are erased",
           ((search, "answers", _no_answers),),
           scenarios.erased_with_an_answer),
]  # fmt: skip
