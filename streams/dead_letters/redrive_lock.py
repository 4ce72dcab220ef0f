"""The lock of redrives, and what its holder plans to send again: one key, written before the letters go.

A letter is sent again in two steps, a publish and a deletion, in two streams; a command may die between them,
and JetStream forgets message ids after two minutes. So the letters of a page are planned first, with the end
of the deliveries stream at that moment: whatever becomes of the command, a letter that was sent and is still
there is one of the planned ones, and what was sent lies behind that position. Who comes next looks there.
(docs/decisions/redrive-exactly-once.md)

The plan is also the lock. It is only ever replaced at its known revision, so all plans stand in one order.
Its holder sends only for `LOCK_LEASE_S` from before the last plan was stored; then it stores it once more,
which fails if another one came. A redrive that finds an unfinished plan waits until its holder cannot send
any more, before it takes the lock. The clock is one that counts sleep, as with the nodes' leases
(`streams.fleet.lease`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError, Unavailable
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal.fence import Appended, Overtaken, append
from streams.nats.jetstream import JetStream
from streams.nats.retry import COMMAND_PATIENCE_S, patiently
from streams.versions import read_versioned

VERSION = 2
LOCK_LEASE_S = 5.0
LEASES_WAITED = 1.1
"""So many leases are waited for a redrive that may be over: clocks drift, and something may be on its way."""


class Busy(AngariumError):
    """Another process holds the lock."""


class RedrivePlan(Struct, frozen=True, kw_only=True):
    """The plan of a redrive: what the holder of the lock is about to do.

    `run` is the redrive's own name and `step` counts its plans, so that no two are alike. `at` is the
    holder's wall clock, for people. `held` until the lock is released in order. The `letters` (positions) are
    being sent; what was sent of them lies behind the position `after`. Of the `unsure` ones it is not known
    any more whether they were sent. The `nonce` in the ids of what is sent is drawn once and stays; the
    letters of a plan of version 1 were sent without one.
    """

    v: int = VERSION
    run: str
    step: int
    at: float
    held: bool
    after: int = 0
    letters: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    nonce: str = ""


_plan = msgspec.json.Decoder(RedrivePlan)


class RedriveLock:
    """The lock for the command `run`, from `acquire` on until a plan says that it is not `held` any more."""

    def __init__(
        self, js: JetStream, names: Names, run: str, time: Timekeeper, *, lease_s: float = LOCK_LEASE_S
    ) -> None:
        self.plan = RedrivePlan(run=run, step=0, at=time.wall(), held=True)
        self._js = js
        self._names = names
        self._time = time
        self._lease_s = lease_s
        self._revision = 0
        self._ends_at = 0.0
        self._renewing = asyncio.Lock()

    async def acquire(self, waiting: Callable[[RedrivePlan, float], None] = lambda *_: None) -> None:
        """Begin; what the redrive before has left undone is in `plan`.

        Where that one was not ended, it is waited for so long that it is over for certain; `waiting` is told
        of it, and for how many seconds. Raises `Busy` where it goes on all the same.
        """
        before = await self._read()
        if before is not None and before.held:
            wait_s = self._lease_s * LEASES_WAITED
            waiting(before, wait_s)
            revision = self._revision
            await asyncio.sleep(wait_s)
            before = await self._read()
            if before is not None and before.held and self._revision != revision:
                raise Busy("another redrive is running; wait until it ends, then run this one again")
        if before is not None:
            left = {"after": before.after, "letters": before.letters, "unsure": before.unsure}
            self.plan = replace(self.plan, **left, nonce=before.nonce)
        await self.store()

    async def store(self, **changes: Any) -> None:
        """Store the plan with these changes; `held=False` releases the lock.

        Raises `Busy`; and `Unavailable`, with the plan stored or not.
        """
        plan = replace(self.plan, **changes, step=self.plan.step + 1)
        sent_at = self._time.boottime()
        data, subject = msgspec.json.encode(plan), self._names.redrive
        try:
            async with asyncio.timeout(COMMAND_PATIENCE_S):
                stored = await append(self._js, self._names.actors, subject, data, expected=self._revision)
        except TimeoutError:
            raise Unavailable(
                f"the plan was not stored at {subject}; check that this user may publish there"
            ) from None
        match stored:
            case Appended(position):
                self.plan, self._revision, self._ends_at = plan, position, sent_at + self._lease_s
            case Overtaken():
                raise Busy("another redrive started in between; run this one again to continue")

    async def ensure_held(self) -> None:
        """Check that the lock is certainly ours: call this right before a letter is sent."""
        while self._time.boottime() >= self._ends_at:
            async with self._renewing:
                if self._time.boottime() >= self._ends_at:
                    await self.store()

    async def _read(self) -> RedrivePlan | None:
        """The plan in force, whose revision is then ours to replace."""
        message = await patiently(self._js.last_message, self._names.actors, self._names.redrive)
        self._revision = message.sequence if message else 0
        return read_versioned(_plan, message.data, VERSION, message.subject) if message else None
