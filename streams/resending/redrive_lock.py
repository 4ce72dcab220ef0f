"""The lock of redrives, and what its holder plans to send again: one key, written before the letters go.

A letter is sent again in two steps, a publish and a deletion, in two streams; a command may die between them,
and JetStream forgets message ids after two minutes. So the letters of a page are planned first, with the end
of the deliveries stream at that moment: whatever becomes of the command, a letter that was sent and is still
there is one of the planned ones, and what was sent lies behind that position. Who comes next looks there.
(docs/decisions/redrive-exactly-once.md)

The plan is also the lock (`streams.resending.plan_lock`).
"""

from msgspec.structs import replace

from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending.plan_lock import LOCK_LEASE_S, HeldPlan, PlanLock

VERSION = 2


class RedrivePlan(HeldPlan, frozen=True, kw_only=True):
    """The plan of a redrive: what the holder of the lock is about to do.

    The `letters` (positions) are being sent; what was sent of them lies behind the position `after`. Of the
    `unsure` ones it is not known any more whether they were sent. The `nonce` in the ids of what is sent is
    drawn once and stays; the letters of a plan of version 1 were sent without one.
    """

    after: int = 0
    letters: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    nonce: str = ""


class RedriveLock(PlanLock[RedrivePlan]):
    """The lock for the command `run`; all redrives of an installation share it."""

    def __init__(
        self, js: JetStream, names: Names, run: str, time: Timekeeper, *, lease_s: float = LOCK_LEASE_S
    ) -> None:
        plan = RedrivePlan(v=VERSION, run=run, step=0, at=time.wall(), held=True)
        super().__init__(js, names.actors, names.redrive, plan, "redrive", time, lease_s)

    def carried_over(self, before: RedrivePlan) -> RedrivePlan:
        left = {"after": before.after, "letters": before.letters, "unsure": before.unsure}
        return replace(self.plan, **left, nonce=before.nonce)
