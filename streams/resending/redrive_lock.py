"""The lock of redrives, and the plan of its holder: one key, written before the letters are sent.

A letter is sent again in two steps, a publish and a deletion, in two streams. A command may die between them,
and JetStream forgets message ids after two minutes. So the letters of a page are planned first, together with
the end of the deliveries stream at that moment. Even if the command dies, every letter that was sent and
still exists is a planned one, and its copy is after that position, where the next command looks for it
(docs/decisions/redrive-exactly-once.md).

The plan is also the lock (`streams.resending.plan_lock`).
"""

from msgspec import field

from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending.plan_lock import LOCK_LEASE_S, HeldPlan, PlanLock

VERSION = 2


class RedrivePlan(HeldPlan, frozen=True, kw_only=True):
    """The plan of a redrive: what the holder of the lock is about to do.

    - `stream_end`: copies that this plan has sent are after this position of the deliveries.
    - `letters`: positions of the letters that are being sent.
    - `unsure`: positions of letters of which it can no longer be known whether they were sent.
    - `nonce`: part of the message ids, drawn once and then kept; version 1 had none.
    """

    stream_end: int = field(default=0, name="after")
    letters: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    nonce: str = ""


class RedriveLock(PlanLock[RedrivePlan]):
    """The lock that all redrives of an installation share; `run` names the command that holds it."""

    def __init__(
        self, js: JetStream, names: Names, run: str, time: Timekeeper, *, lease_s: float | None = None,
        by: str = "",
    ) -> None:  # fmt: skip
        plan = RedrivePlan(v=VERSION, run=run, step=0, at=time.wall(), held=True, by=by)
        super().__init__(
            js, names.actors, names.actor_keys.redrive, plan, "redrive", time, lease_s or LOCK_LEASE_S
        )
