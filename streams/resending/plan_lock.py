"""A lock that is its holder's plan: one key, written before the work goes, and replaced at its revision.

Work in several steps may be cut off between two of them. So it is planned first, under the key that is also
the lock: who comes next knows what may have been done, and where to look. All plans stand in one order. The
holder works only for `LOCK_LEASE_S` from before the last plan was stored; then it stores it once more, which
fails if another one came. A command that finds an unfinished plan waits until its holder cannot do anything
any more, before it takes the lock. The clock is one that counts sleep, as with the nodes' leases
(`streams.fleet.lease`).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError, Unavailable
from streams.clock import Timekeeper
from streams.journal.fence import Appended, Overtaken, append
from streams.nats.answers import Answer, Refused, Stored, Unanswered
from streams.nats.codes import IN_FLIGHT
from streams.nats.jetstream import JetStream
from streams.nats.retry import COMMAND_PATIENCE_S, Pauses, patiently
from streams.versions import read_versioned

LOCK_LEASE_S = 5.0
LEASES_WAITED = 1.1
"""So many leases are waited for work that may be over: clocks drift, and something may be on its way."""


class Busy(AngariumError):
    """Another process holds the lock."""


class HeldPlan(Struct, frozen=True, kw_only=True):
    """The part of a plan that makes it a lock.

    `run` is the command's own name and `step` counts its plans, so that no two are alike. `at` is the
    holder's wall clock, for people. `held` until the lock is released in order.
    """

    v: int
    run: str
    step: int
    at: float
    held: bool


P = TypeVar("P", bound=HeldPlan)


class PlanLock(Generic[P]):
    """The lock at `subject`, from `acquire` on until a plan says that it is not `held` any more.

    `plan` is the first one, and `work` the word for what is locked.
    """

    def __init__(
        self, js: JetStream, stream: str, subject: str, plan: P, work: str, time: Timekeeper, lease_s: float
    ) -> None:
        self.plan = plan
        self.lease_s = lease_s
        self._js = js
        self._stream = stream
        self._subject = subject
        self._work = work
        self._time = time
        self._decoder = msgspec.json.Decoder(type(plan))
        self._revision = 0
        self._ends_at = 0.0
        self._renewing = asyncio.Lock()

    def carried_over(self, before: P) -> P:
        """The first plan, with what the one before it has left undone."""
        return self.plan

    async def acquire(self, waiting: Callable[[P, float], None] = lambda *_: None) -> None:
        """Begin; what the plan before has left undone is in `plan`.

        Where that one was not ended, it is waited for so long that it is over for certain; `waiting` is told
        of it, and for how many seconds. Raises `Busy` where it goes on all the same.
        """
        before = await self.read()
        if before is not None and before.held:
            wait_s = self.lease_s * LEASES_WAITED
            waiting(before, wait_s)
            revision = self._revision
            await asyncio.sleep(wait_s)
            before = await self.read()
            if before is not None and before.held and self._revision != revision:
                raise Busy(f"another {self._work} is running; wait until it ends, then run this one again")
        if before is not None:
            self.plan = self.carried_over(before)
        await self.store()

    async def store(self, **changes: Any) -> None:
        """Store the plan with these changes; `held=False` releases the lock.

        Raises `Busy`; and `Unavailable`, with the plan stored or not.
        """
        plan = replace(self.plan, **changes, step=self.plan.step + 1)
        sent_at = self._time.boottime()
        data, subject = msgspec.json.encode(plan), self._subject
        try:
            async with asyncio.timeout(COMMAND_PATIENCE_S):
                stored = await append(self._js, self._stream, subject, data, expected=self._revision)
        except TimeoutError:
            raise Unavailable(
                f"the plan was not stored at {subject}; check that this user may publish there"
            ) from None
        match stored:
            case Appended(position):
                self.plan, self._revision, self._ends_at = plan, position, sent_at + self.lease_s
            case Overtaken():
                raise Busy(f"another {self._work} started in between; run this one again to continue")

    async def ensure_held(self, for_s: float = 0.0) -> None:
        """Check that the lock is certainly ours, and for so long: call this right before any step."""
        while self._time.boottime() + for_s >= self._ends_at:
            async with self._renewing:
                if self._time.boottime() + for_s >= self._ends_at:
                    await self.store()

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> Answer:
        """Publish it while the lock is held, until that is decided.

        A refusal decides nothing if an earlier try was not answered.
        """
        pauses, loop = Pauses(), asyncio.get_running_loop()
        deadline, in_doubt = loop.time() + COMMAND_PATIENCE_S, False
        while True:
            await self.ensure_held()
            match answer := await self._js.publish(subject, data, headers):
                case Stored():
                    return answer
                case Refused(code, text):
                    if not in_doubt and code not in IN_FLIGHT:
                        return answer
                    why = text
                case Unanswered(why):
                    in_doubt = True
            if loop.time() >= deadline:
                return Unanswered(why)
            await pauses.wait()

    async def read(self) -> P | None:
        """The plan in force, whose revision is then ours to replace."""
        message = await patiently(self._js.last_message, self._stream, self._subject)
        self._revision = message.sequence if message else 0
        if message is None:
            return None
        return read_versioned(self._decoder, message.data, self.plan.v, message.subject)
