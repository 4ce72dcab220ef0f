"""Rules of jobs and erasures, each taken out by itself: a run has to find what that breaks."""

import math
from typing import Any

from msgspec.structs import replace

from angarium.node.housekeeping import eraser, erasure_steps
from streams.erasing import search
from streams.journal import claim
from streams.journal.claim import ShardRecord
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.marks import Mark
from streams.nats.answers import Answer
from streams.resending.plan_lock import PlanLock
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import Replay
from streams.resending.replay_lock import ReplayLock
from streams.resending.sources import CheckedSources
from streams.storage import purge
from tests.sim.mutants.mutant import Mutant
from tests.sim.resending import scenarios
from tests.sim.resending.resending_run import ResendingRun

_publish, _store_plan, _read_past = ReplayLock.publish, RedriveLock.store, claim.read_shard_record


async def _ahead(
    lock: ReplayLock,
    subject: str,
    data: bytes,
    headers: dict[str, str],
    sources: CheckedSources,
    position: int,
) -> Answer | None:
    await lock.store(done_to=position, remaining=lock.plan.remaining - 1)
    return await _publish(lock, subject, data, headers, sources, position)


async def _unplanned(lock: RedriveLock, **changes: Any) -> None:
    await _store_plan(lock, **{**changes, "letters": ()})


async def _never_renewed(self: PlanLock[Any], for_s: float = 0.0) -> None:
    return


def _always(self: CheckedSources, position: int) -> bool:
    return True


async def _routed_to_the_end(*args: Any) -> ShardRecord:
    return replace(await _read_past(*args), routing=RoutingProgress(routed=purge.ANY_POSITION))


async def _no_late_copies(*_: object) -> dict[str, list[Mark]]:
    return {}


async def _none_found(*_: object) -> list[Mark]:
    return []


async def _no_answers(*_: object) -> dict[Mark, int]:
    return {}


async def _not_removed(self: Replay) -> None:
    return


def _run(seed: int) -> None:
    ResendingRun(seed).run()


RESENDING_MUTANTS = [
    Mutant("replay-position-ahead", "the position is recorded after the copies up to it",
           ((ReplayLock, "publish", _ahead),), run=_run),
    Mutant("redrive-unplanned", "the letters of a page are recorded before they are sent",
           ((RedriveLock, "store", _unplanned),),
           scenarios.redrive_dies_between_two_steps),
    Mutant("lock-unchecked", "a copy is sent only within the lease of the lock",
           ((PlanLock, "ensure_held", _never_renewed),),
           scenarios.process_sleeps_during_a_replay),
    Mutant("receiver-unasked", "a replay ends with the receiver that it was begun for",
           ((Replay, "ensure_not_removed", _not_removed),),
           scenarios.receiver_is_put_again_during_a_replay),
    Mutant("sources-unasked", "a copy is sent only within a lease of its source",
           ((CheckedSources, "is_certain", _always),),
           scenarios.process_sleeps_through_an_erasure),
    Mutant("late-copies-unawaited", "an erasure is done when no copy can be on its way any more",
           ((eraser, "COPIES_UNTIL_LEASE_ENDS_S", -math.inf),),
           scenarios.event_is_erased_shortly_after_its_source_was_seen),
    Mutant("erased-unrouted", "what producers published is deleted when it is routed",
           ((erasure_steps, "read_shard_record", _routed_to_the_end),),
           scenarios.event_is_erased_while_it_is_routed),
    Mutant("looked-at-once", "an erasure looks again for copies that came late",
           ((search, "late_copies", _no_late_copies),),
           scenarios.copy_of_a_router_arrives_late),
    Mutant("letters-kept", "dead letters are erased", ((search, "dead_letters", _none_found),),
           run=_run),
    Mutant("answers-kept", "answers that repeat the body are erased",
           ((search, "answers", _no_answers),),
           scenarios.event_is_erased_with_an_answer),
]  # fmt: skip
