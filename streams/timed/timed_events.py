"""The timed events of one partition, as its router sees them: stored, published, taken."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import assert_never

from actors.errors import Unavailable
from actors.machine.event import Event
from streams.installation.timed_subjects import EntryAddress
from streams.installation.topology import Names
from streams.nats.answers import Answer, Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import GatheredReasonLog, Pauses
from streams.nats.wire_names import MESSAGE_TOO_LARGE, WRONG_LAST_SEQUENCE
from streams.tasks import cancel_and_wait, on_defect
from streams.timed.due_publisher import DuePublisher
from streams.timed.entries import (
    DueVerdict,
    due_entry_address,
    entry_address,
    entry_put,
    event_to_route,
    events_age_s,
    take,
)
from streams.timed.tenant_shares import TenantShares

LANE = "_timed"
"""The lane of a tenant's events that are stored until their time; no receiver has such a name."""
TOO_LARGE = "the event is too large to wait for its time"

log = logging.getLogger(__name__)


class TimedEvents:
    """The timed events of a partition, under one claim. `due_publisher`: that of the partition, unstarted."""

    def __init__(
        self,
        js: JetStream,
        names: Names,
        partition: int,
        due_publisher: DuePublisher,
        on_broken: Callable[[str], None],
    ) -> None:
        self._js = js
        self._names = names
        self._partition = partition
        self._on_broken = on_broken
        self._taking: set[asyncio.Task[DueVerdict]] = set()
        self._age_s: float | None = None
        self._reason_log = GatheredReasonLog(js, log, "later.untaken")
        self._shares = TenantShares(js, names, partition, on_broken)
        self._due_publisher = due_publisher

    def start(self) -> None:
        """Begin to publish what is due."""
        self._due_publisher.start()

    async def stop(self) -> None:
        """Publish and take nothing more."""
        await self._due_publisher.stop()
        await self._shares.stop()
        await cancel_and_wait(*self._taking)

    def begin_store(self, tenant: str, event: Event, source: int, ended: Callable[[str], None]) -> None:
        """Store an event until its time; calls `ended` as a lane does.

        `TOO_LARGE` is final: the event is stored nowhere.
        """
        if why := self._shares.refusal_reason(tenant):
            ended(why)
            return
        address = entry_address(event, self._partition, tenant, source)
        put = entry_put(self._names, address, event)
        self._js.begin_publish(put, partial(self._stored, address, ended))

    def _stored(self, address: EntryAddress, ended: Callable[[str], None], answer: Answer) -> None:
        match answer:
            case Stored():
                self._due_publisher.note(address.second)
                ended("")
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                self._due_publisher.note(address.second)  # It was stored before.
                ended("")
            case Refused(code=code) if code == MESSAGE_TOO_LARGE:
                ended(TOO_LARGE)
            case Refused(code, text):
                ended(f"{text} (JetStream error {code})")
            case Unanswered(why):
                ended(why)
            case _:
                assert_never(answer)

    def begin_take(self, tenant: str, event: Event, done: Callable[[DueVerdict], None]) -> None:
        """Find out whether a due event is to be routed; calls `done` once, unless this stops before."""
        taking = asyncio.ensure_future(self.take(tenant, event))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)
        taking.add_done_callback(on_defect("router", self._on_broken))
        taking.add_done_callback(
            lambda task: None if task.cancelled() or task.exception() else done(task.result())
        )

    async def event_to_bury(self, tenant: str, event: Event) -> Event | None:
        """The event as it is to be buried: a due one is taken before. None if it is dropped."""
        return event_to_route(event, await self.take(tenant, event)) if event.due else event

    async def take(self, tenant: str, event: Event) -> DueVerdict:
        """Find out whether a due event is to be routed, however long NATS does not answer."""
        address, pauses = due_entry_address(event, self._partition, tenant), Pauses(self._js)
        while True:
            try:
                if self._age_s is None:
                    self._age_s = await events_age_s(self._js, self._names)
                verdict = await take(self._js, self._names, address, event, self._age_s)
            except (Unavailable, ApiError) as error:
                self._reason_log.log_once(str(error), tenant=tenant)
                await pauses.wait()
            else:
                self._reason_log.clear()
                return verdict
