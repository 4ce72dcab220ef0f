"""A lock that is also its holder's plan: one key, written before the work begins, updated at its revision.

Work in several steps may be interrupted between two of them. So it is planned first, under the key that is
also the lock: the next holder knows what may have been done, and where to look. All plans have one order. The
holder works only for `LOCK_LEASE_S` from before the last plan was stored. Then it stores the plan once more,
which fails if another holder came. A command that finds an unfinished plan waits until the holder can no
longer act, and then takes the lock. The clock continues during sleep, as with the nodes' leases
(`streams.fleet.lease`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError, Unavailable
from streams.clock import Timekeeper
from streams.journal.fence import Appended, Overtaken, append
from streams.nats.answers import Answer, Refused, Stored, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.protocol import rfc3339
from streams.nats.retry import COMMAND_PATIENCE_S, Pauses, retry_for_command
from streams.nats.wire_names import IN_FLIGHT
from streams.resending.sources import CheckedSources
from streams.versions import read_versioned

LOCK_LEASE_S = 5.0
READS_A_LEASE = 20
LEASES_WAITED = 1.1
"""Leases that a new holder waits before the old one's work counts as over: clocks drift, messages are
late."""


class LockHeld(AngariumError):
    """Another process holds the lock. `remedy` says who that is, as far as it is known, and what to do."""

    def __init__(self, text: str, *, work: str = "", remedy: str = "") -> None:
        super().__init__(text)
        self.work = work
        self.remedy = remedy


class HeldPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a plan that makes it a lock.

    - `run`: the command's own id.
    - `step`: counts its plans, so that no two are equal.
    - `at`: time by the holder's wall clock, for people.
    - `held`: True until the lock is released.
    - `by`: who holds it, for people; empty if an older Angarium stored it.
    """

    v: int
    run: str
    step: int
    at: float
    held: bool
    by: str = ""


P = TypeVar("P", bound=HeldPlan)


class PlanLock(Generic[P]):
    """The lock at `subject`, from `acquire` on until a plan says that it is no longer `held`.

    `plan` is the first plan, and `work` names the work in messages. `read_at` is when the plan was stored
    that was read last: the one of the previous holder, once the lock is taken.
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
        self.time = time
        self._decoder = msgspec.json.Decoder(type(plan))
        self._revision = 0
        self.read_at = 0.0
        self._ends_at = 0.0
        self._renewing = asyncio.Lock()

    def carried_over(self, before: P) -> P:
        """The first plan, with the work that the plan before it has left undone."""
        first = self.plan
        return replace(
            before, v=first.v, run=first.run, step=first.step, at=first.at, held=True, by=first.by
        )  # fmt: skip

    async def acquire(self, waiting: Callable[[P, float], None] = lambda *_: None) -> None:
        """Take the lock; `plan` then contains the work that the previous plan has left undone.

        If the previous holder did not release the lock, this waits until that holder certainly cannot
        continue, or has released it; `waiting` gets its plan and the number of seconds. Raises `LockHeld` as
        soon as the holder continues nevertheless.
        """
        before = await self.read()
        if before is not None and before.held:
            wait_s = self.lease_s * LEASES_WAITED
            waiting(before, wait_s)
            revision = self._revision
            before = await self._released(before, wait_s)
            if before is not None and before.held and self._revision != revision:
                raise self._runs(before)
        if before is not None:
            self.plan = self.carried_over(before)
        await self.store()

    def _runs(self, holder: P) -> LockHeld:
        by = f" by {holder.by}" if holder.by else ""
        return LockHeld(
            f"another {self._work} is running",
            work=self._work,
            remedy=f", begun{by} at {rfc3339(holder.at)}; wait until it ends, then run this one again",
        )

    async def _released(self, before: P, wait_s: float) -> P | None:
        """The plan once its holder has released it, or continued; as it is after that time, if neither."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            await asyncio.sleep(min(max(0.0, until - loop.time()), self.lease_s / READS_A_LEASE))
            plan = await self.read()
            if plan is None or not plan.held or loop.time() >= until:
                return plan
            if (plan.run, plan.step) != (before.run, before.step):
                return plan

    async def store(self, **changes: Any) -> None:
        """Store the plan with these changes; `held=False` releases the lock.

        Raises `LockHeld`, and `Unavailable`: then the plan may or may not be stored. Raises `NotPermitted`
        for a command whose user may not publish there.
        """
        plan = replace(self.plan, **changes, step=self.plan.step + 1)
        sent_at = self.time.boottime()
        data, subject = msgspec.json.encode(plan), self._subject
        try:
            async with asyncio.timeout(COMMAND_PATIENCE_S):
                stored = await append(self._js, self._stream, subject, data, expected=self._revision)
        except TimeoutError:
            raise Unavailable(f"the plan was not stored at {subject}") from None
        match stored:
            case Appended(position):
                self.plan, self._revision, self._ends_at = plan, position, sent_at + self.lease_s
            case Overtaken():
                raise LockHeld(
                    f"another {self._work} started in between",
                    work=self._work,
                    remedy="; run this one again to continue",
                )

    def change(self, **changes: Any) -> None:
        """Change the plan here; the next one that is stored has these changes, at the latest a renewal.

        They must already be true of the work done: a plan that is lost with its holder lacks them.
        """
        self.plan = replace(self.plan, **changes)

    async def ensure_held(self, for_s: float = 0.0) -> None:
        """Check that the lock is certainly ours for another `for_s`. Call this right before each step."""
        while self.time.boottime() + for_s >= self._ends_at:
            async with self._renewing:
                if self.time.boottime() + for_s >= self._ends_at:
                    await self.store()

    def sources(self, stream: str, check: Callable[[], Awaitable[None]] | None = None) -> CheckedSources:
        """The sources in that stream of what the holder sends again; `check` as in `CheckedSources`."""
        more = () if check is None else (check,)
        return CheckedSources(self._js, stream, self.time, self.lease_s, *more)

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str], sources: CheckedSources, position: int
    ) -> Answer | None:
        """Publish a copy of the message at `position` while the lock is held, until it is stored or refused.

        None: its source is gone, and no copy of it is wanted any more. A refusal decides nothing if an
        earlier attempt got no answer. It is not sent again when JetStream may have forgotten its message id,
        by a clock that runs during sleep.
        """
        pauses, deadline = Pauses(), self.time.boottime() + COMMAND_PATIENCE_S
        in_doubt, why = False, ""
        while True:
            if not await self._may_send(sources, position):
                return None
            if in_doubt and self.time.boottime() >= deadline:
                return Unanswered(why)
            match answer := await self._js.publish(subject, data, headers):
                case Stored():
                    return answer
                case Refused(code, text):
                    if not in_doubt and code not in IN_FLIGHT:
                        return answer
                    why = text
                case Unanswered(why):
                    in_doubt = True
            if self.time.boottime() >= deadline:
                return Unanswered(why)
            await pauses.wait()

    async def _may_send(self, sources: CheckedSources, position: int) -> bool:
        """Hold the lock and know that the source is there, both at this moment; False if it is gone."""
        while True:
            await self.ensure_held()
            if sources.is_certain(position):
                return True
            if not await sources.ask(position):
                return False

    async def read(self) -> P | None:
        """The plan in force; its revision is the one that the next `store` replaces."""
        message = await retry_for_command(self._js.last_message, self._stream, self._subject)
        self._revision = message.position if message else 0
        self.read_at = message.stored_at if message else 0.0
        if message is None:
            return None
        return read_versioned(self._decoder, message.data, self.plan.v, message.subject)
