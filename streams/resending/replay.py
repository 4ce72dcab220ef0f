"""Sends events to their receiver again, from the deliveries stream: each exactly once, even after crashes.

The stream keeps settled events for a while. A replay goes through the receiver's subject between two
positions, and publishes a copy of each wanted event, one after the other, each confirmed before the next. A
copy is a new delivery: it keeps the event's id, gets a new number, and has an `angarium-again` of its own.

Before the copies of a page, a plan is stored: the position up to which all is done (`done_to`), and the end
of the stream at that moment (`stream_end`). As copies are sent one by one, those after it belong to the first
events after `done_to`, and the last of them shows how far the replay got
(docs/decisions/replays-send-one-by-one.md). Between pages, each renewal of the lock stores the progress.

A receiver that was removed gets none of its old events, and neither does a new one of that name. So the plan
names the last removal before its events were chosen, and a copy is sent only within a lease of asking for it.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from actors.errors import AngariumError, Unavailable
from actors.machine.event import Event
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.answers import Answer, Refused, Stored, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.nats.wire_names import EVENT_AGAIN, EVENT_ID, MESSAGE_ID
from streams.reading.messages import stored_event
from streams.resending.copies import TOO_LARGE_CODES, copied_headers, deliveries_info, pages_between
from streams.resending.job import Job
from streams.resending.replay_lock import EventsToResend, ReplayLock
from streams.resending.sources import ASKED_AT_ONCE

TOO_LARGE, ID_TAKEN = "too_large", "taken"
HALTED = "the process that sent it was stopped"
NOT_DUE = "the next copy is not due yet"


class ReceiverRemoved(AngariumError):
    """The receiver was removed after its events were chosen."""


class Replayed(Struct):
    """The result of a replay.

    - `sent`: number of copies, including those of an interrupted command.
    - `purged`: some of the wanted events are no longer stored.
    - `too_large`: positions of events that are too large for the stream now.
    - `taken`: positions of events under whose message ids another publisher has stored something else.
    - `stopped`: why no more were sent; empty if all were.
    """

    sent: int = 0
    purged: bool = False
    too_large: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    stopped: str = ""


class Replay:
    """The replay of one command, under the lock that it holds, with at least `pace_s` between two copies.

    Raises `LockHeld` if another replay came, ReceiverRemoved, and `Unavailable` if NATS is away for long. If
    it is resumed, it continues: events that had been sent are not sent again. It stops between two copies, or
    pages, once it is `halted`, and if the next copy is not due for `patience_s`; the plan then says when it
    is due.
    """

    def __init__(
        self, js: JetStream, names: Names, receiver: str, lock: ReplayLock, pace_s: float, *,
        halted: Callable[[], bool] = lambda: False, patience_s: float = math.inf,
    ) -> None:  # fmt: skip
        self.done = Replayed()
        self._halted = halted
        self._patience_s = patience_s
        self._js = js
        self._names = names
        self._receiver = receiver
        self._lock = lock
        self._pace_s = pace_s
        self._next_at = 0.0
        self._left_out_before: dict[str, int] = {}
        self._subject = names.deliveries_to(receiver)
        self._configurations = StoredConfigurations(js, names)
        self._receiver_asked_at = -math.inf
        self._sources = lock.sources(names.deliveries, self.ensure_not_removed)

    async def begin(
        self, events: EventsToResend, again: str, nonce: str, api_job: Job | None = None, *,
        command_job: Job | None = None,
    ) -> None:  # fmt: skip
        """Begin a replay if none is unfinished; the job says whether the API runs it, or a command."""
        info = await deliveries_info(self._js, self._names)
        remaining = await self._count(events.begin, events.until)
        await self._lock.store(
            unfinished=True, created=info.created, events=events, done_to=events.begin, remaining=remaining,
            stream_end=info.last, sent=0, again=again, nonce=nonce, pace_s=self._pace_s,
            api_job=api_job and replace(api_job, total=remaining),
            command_job=command_job and replace(command_job, total=remaining),
            previous=None if api_job else self._lock.plan.ended_job(self._lock.read_at),
        )  # fmt: skip

    async def resume(self) -> None:
        """Find out how far the unfinished replay got."""
        plan = self._lock.plan
        info = await deliveries_info(self._js, self._names)
        if info.created != plan.created:
            self.done = Replayed(sent=plan.sent, purged=True)
            await self._store(done_to=plan.events.until)
            return
        done_to, sent = plan.done_to, plan.sent
        job = plan.api_job or plan.command_job
        self._left_out_before = job.left_out if job else {}
        self.done.purged = await self._count(done_to, plan.events.until) < plan.remaining
        async for page in pages_between(self._js, self._names, self._subject, plan.stream_end, info.last):
            for message in page:
                if (position := self._source_of(message)) is not None and position > done_to:
                    done_to, sent = position, sent + 1
            await self._lock.ensure_held(self._lock.lease_s / 2)
        remaining = await self._count(done_to, plan.events.until)
        await self._lock.store(done_to=done_to, remaining=remaining, sent=sent, stream_end=info.last)
        self.done.sent = sent
        if plan.due_at:
            wait_s = min(plan.due_at - self._lock.time.wall(), self._pace_s)
            self._next_at = asyncio.get_running_loop().time() + wait_s

    async def send_rest(self, on_progress: Callable[[int, int], None]) -> None:
        """Send the remaining messages; `on_progress` gets the number of messages dealt with, and their total.

        The plan is stored as finished when the lock is released.
        """
        plan = self._lock.plan
        until, remaining = plan.events.until, plan.remaining
        on_progress(0, plan.remaining)
        async for page in pages_between(self._js, self._names, self._subject, plan.done_to, until):
            await self.ensure_not_removed()
            await self._send(page, remaining, lambda now: on_progress(plan.remaining - now, plan.remaining))
            if self.done.stopped:
                return
            remaining -= len(page)
            await self._renew()
            if remaining and self._halted():
                self._stop(HALTED)
                return
        self.done.purged = self.done.purged or remaining > 0
        self._record_progress(until, 0)
        self._lock.change(unfinished=False)

    async def leave(self, *, unfinished: bool) -> None:
        """Release the lock; an `unfinished` replay can be resumed."""
        await self._lock.store(held=False, unfinished=unfinished)

    async def _store(self, **changes: Any) -> None:
        """Store how far it has come."""
        await self._lock.store(**changes, **self._updated_jobs())

    def _record_progress(self, done_to: int, remaining: int) -> None:
        """Let the next plan that is stored say that all messages up to there are dealt with."""
        self._lock.change(done_to=done_to, remaining=remaining, sent=self.done.sent, **self._updated_jobs())

    def _updated_jobs(self) -> dict[str, Job | None]:
        """The job, with what is not sent."""
        now = {TOO_LARGE: len(self.done.too_large), ID_TAKEN: len(self.done.taken)}
        counts = {why: self._left_out_before.get(why, 0) + count for why, count in now.items()}
        left_out = {why: count for why, count in counts.items() if count}
        purged, plan = self.done.purged, self._lock.plan
        return {
            name: job and replace(job, purged=job.purged or purged, left_out=job.left_out | left_out)
            for name, job in (("api_job", plan.api_job), ("command_job", plan.command_job))
        }

    async def _renew(self) -> None:
        """Renew the lock in good time: a holder that is silent for a lease counts as dead.

        Ask for the receiver as often, since a copy may not be due for hours.
        """
        soon_s = self._lock.lease_s / 2
        await self._lock.ensure_held(soon_s)
        if self._lock.time.boottime() >= self._receiver_asked_at + soon_s:
            await self.ensure_not_removed()

    async def ensure_not_removed(self) -> None:
        """Ask the leader whether the receiver is the one whose events were chosen."""
        asked_at, events = self._lock.time.boottime(), self._lock.plan.events
        removal = await retry_for_command(self._configurations.removal_before_present, self._receiver)
        if removal is None:
            raise ReceiverRemoved(f"{self._receiver} was removed")
        if events.removal is None:
            self._lock.change(events=replace(events, removal=removal))
        elif events.removal != removal:
            raise ReceiverRemoved(
                f"{self._receiver} was removed and put again, and gets no event of the time before"
            )
        self._receiver_asked_at = asked_at

    async def _send(
        self, page: list[StoredMessage], remaining: int, on_progress: Callable[[int], None]
    ) -> None:
        """Send the wanted messages of a page; `remaining` counts from it on; `on_progress` gets the rest."""
        wanted = [each for each in map(stored_event, page) if self._lock.plan.events.takes(each)]
        places = {each.position: place for place, each in enumerate(page)}
        if wanted:
            info = await deliveries_info(self._js, self._names)
            # Everything before the page is dealt with.
            done_to = max(self._lock.plan.done_to, page[0].position - 1)
            await self._store(done_to=done_to, remaining=remaining, stream_end=info.last, sent=self.done.sent)
        for number, event in enumerate(wanted):
            await self._wait()
            if self.done.stopped:
                return
            if not self._sources.is_certain(event.position):
                await self._sources.ask(*(each.position for each in wanted[number : number + self._ahead]))
            place = places[event.position]
            match await self._publish(page[place], event):
                case None:
                    self.done.purged = True
                case Stored(position=stored, duplicate=True) if not await self._is_copy(stored, event):
                    self.done.taken.append(event.position)
                case Stored():
                    self.done.sent += 1
                case Refused(code=code) if code in TOO_LARGE_CODES:
                    self.done.too_large.append(event.position)
                case Refused(code, text):
                    self.done.stopped = f"the deliveries take no more: {text} (JetStream error {code})"
                    return
                case Unanswered(why):
                    raise Unavailable(
                        f"a copy was sent and not confirmed ({why}); resume it, and it continues"
                    )
            self._record_progress(event.position, remaining - place - 1)
            on_progress(remaining - place - 1)
        self._record_progress(page[-1].position, remaining - len(page))
        on_progress(remaining - len(page))

    @property
    def _ahead(self) -> int:
        """The number of events to ask for at once: as many as are sent soon after."""
        soon_s = self._lock.lease_s / 2
        return ASKED_AT_ONCE if not self._pace_s else max(1, min(ASKED_AT_ONCE, int(soon_s / self._pace_s)))

    async def _publish(self, message: StoredMessage, event: Event) -> Answer | None:
        """Send a copy; None if the event is gone."""
        subject, headers = self._names.publish_to(self._receiver), self._headers(message, event)
        return await self._lock.publish(subject, event.body, headers, self._sources, event.position)

    async def _is_copy(self, position: int, event: Event) -> bool:
        """True if the message that has the copy's id is our copy; one that is gone was settled and purged."""
        found = await retry_for_command(self._js.message, self._names.deliveries, position)
        if found is None:
            return True
        named = {EVENT_ID: event.id, EVENT_AGAIN: self._lock.plan.again}
        return (
            found.subject.endswith(f".{self._receiver}")
            and all(found.headers.get(name) == value for name, value in named.items())
            and found.data == event.body
        )

    async def _wait(self) -> None:
        """Wait for the next copy, and keep the lock meanwhile, unless it stops here."""
        loop = asyncio.get_running_loop()
        while not self._halted() and (left_s := self._next_at - loop.time()) > 0:
            if left_s > self._patience_s:
                self._stop(NOT_DUE)
                return
            await self._renew()
            await asyncio.sleep(min(left_s, self._lock.lease_s / 4))
        if self._halted():
            self._stop(HALTED)
            return
        now = loop.time()
        # A delay of less than one step is made up for.
        self._next_at = (self._next_at if now - self._next_at < self._pace_s else now) + self._pace_s

    def _stop(self, why: str) -> None:
        """Stop here, and let the plan say when the next copy is due."""
        self.done.stopped = why
        wait_s = self._next_at - asyncio.get_running_loop().time()
        self._lock.change(due_at=self._lock.time.wall() + max(0.0, wait_s))

    def _headers(self, message: StoredMessage, event: Event) -> dict[str, str]:
        message_id = f"{self._prefix}{event.position}"
        return copied_headers(message.headers, self._lock.plan.again, message_id) | {EVENT_ID: event.id}

    async def _count(self, after: int, until: int) -> int:
        """The number of the receiver's messages between two positions, as far as a replica knows."""
        beyond = [
            await retry_for_command(self._js.read, self._names.deliveries, self._subject, position + 1, 1, 1)
            for position in (after, until)
        ]
        counts = [len(page.messages) + page.pending for page in beyond]
        return max(0, counts[0] - counts[1])

    @property
    def _prefix(self) -> str:
        return f"{self._receiver}:replay:{self._lock.plan.nonce}:"

    def _source_of(self, message: StoredMessage) -> int | None:
        """The position of the event of which this message is our copy; None if it is not our copy."""
        name = message.headers.get(MESSAGE_ID, "")
        return int(name.removeprefix(self._prefix)) if name.startswith(self._prefix) else None
