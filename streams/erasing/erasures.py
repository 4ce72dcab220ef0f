"""Requests to erase events, in the bucket of the actors: author, time and progress of each.

A request is a key of its own, so it outlives its caller. The node that owns shard 0 carries it out; the
record stays, with the event's id and none of its content.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import BadInput, Unavailable
from actors.ids import check_tenant, is_event_id
from streams.installation.topology import Names
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BucketPosition
from streams.nats.answers import Forbidden, Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED, WRONG_LAST_SEQUENCE
from streams.versions import read_versioned

VERSION = 1
READ_AT_ONCE = 64
"""Requests that are read at a time from the beginning: one after the other, 20,000 take 8 s."""


class Erasure(Struct, frozen=True, kw_only=True):
    """One request. Instants are seconds since the epoch.

    - `by`, `at`: who asked for it, and when. `done_at`: None until it is done.
    - `waits_for`: what keeps it from being done.
    - `events`, `deliveries`, `dead_letters`: the messages of each stream that were erased.
    - `waiting`: how many of these deliveries were not settled before.
    - `flushes`: the messages of the journal that were erased, for an answer of a receiver.
    - `journal_end`, `events_end`: the last message of these streams when it was done.
    """

    v: int = VERSION
    tenant: str
    event: str
    by: str
    at: float
    done_at: float | None = None
    waits_for: str = ""
    events: int = 0
    deliveries: int = 0
    waiting: int = 0
    dead_letters: int = 0
    flushes: int = 0
    journal_end: int = 0
    events_end: int = 0

    @property
    def has_found_anything(self) -> bool:
        """True if any message was erased."""
        return any((self.events, self.deliveries, self.waiting, self.dead_letters, self.flushes))


_erasure = msgspec.json.Decoder(Erasure)


class Erasures:
    """The requests of an installation."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._read_to = BucketPosition(js, names.actors)
        self._pending: dict[str, int] = {}

    async def request(self, tenant: str, event: str, by: str, at: float) -> Erasure:
        """Request that an event be erased, or join the request that is not done yet; returns the request.

        Raises BadInput, `Unavailable` and `ApiError`.
        """
        check_tenant(tenant)
        if not is_event_id(event):
            raise BadInput(f"{event[:60]!r} is not the id of an event; receivers see the id as webhook-id")
        while True:
            found, revision = await self._get(tenant, event)
            if found is not None and found.done_at is None:
                return found
            erasure = Erasure(tenant=tenant, event=event, by=by, at=at)
            if await self._put(erasure, revision):
                return erasure

    async def get(self, tenant: str, event: str) -> Erasure | None:
        """The last request about that event. Raises `Unavailable` and `ApiError`."""
        check_tenant(tenant)
        return (await self._get(tenant, event))[0] if is_event_id(event) else None

    async def pending(self) -> AsyncIterator[tuple[Erasure, int]]:
        """Yield the requests to carry out, with their revisions. Raises `Unavailable` and `ApiError`."""
        async for request, revision in self.unread():
            if request.done_at is None:
                yield request, revision

    async def unread(self, done_since: float = 0.0) -> AsyncIterator[tuple[Erasure, int]]:
        """Yield the requests to carry out, and at least once each one that was done since a time.

        They come with their revisions. Each revision is read once, and then only those requests that were not
        done. So one that waits for long does not make all later ones be read again. Raises `Unavailable` and
        `ApiError`.
        """
        await self._read_to.check_created()
        await self._read_to.compare()
        if not self._read_to.position:
            self._pending.clear()
        for subject, revision in sorted(self._pending.items(), key=lambda item: item[1]):
            found = await self._js.last_message(self._names.actors, subject)
            if found is not None and found.position == revision:
                yield _request_in(found), revision
            elif found is not None and found.position > revision:
                del self._pending[subject]  # It comes below.
        async for mark, request in _requests_after(self._js, self._names, self._read_to.position):
            position = mark.position
            if not self._read_to.is_doubtful:
                if request is not None and request.done_at is None:
                    self._pending[self._names.actor_keys.erasure(request.tenant, request.event)] = position
                self._read_to.move(mark)
            if request is not None and (request.done_at is None or request.done_at >= done_since):
                yield request, position

    async def store_progress(self, erasure: Erasure, revision: int) -> None:
        """Store how far a request is. Raises `Unavailable` if it was changed since that revision."""
        if not await self._put(erasure, revision):
            raise Unavailable(f"the erasure of {erasure.event} was changed by another node")

    async def _get(self, tenant: str, event: str) -> tuple[Erasure | None, int]:
        subject = self._names.actor_keys.erasure(tenant, event)
        found = await self._js.last_message(self._names.actors, subject)
        if found is None:
            return None, 0
        if not found.data:
            return None, found.position
        return read_versioned(_erasure, found.data, VERSION, subject), found.position

    async def _put(self, erasure: Erasure, revision: int) -> bool:
        subject = self._names.actor_keys.erasure(erasure.tenant, erasure.event)
        match await self._js.publish(subject, msgspec.json.encode(erasure), {EXPECTED: str(revision)}):
            case Stored():
                return True
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                return False
            case Forbidden(why):
                raise NotPermitted(why, final=self._js.for_command)
            case Refused(text=text) | Unanswered(why=text):
                raise Unavailable(f"the erasure of {erasure.event} cannot be stored: {text}")


async def next_request(js: JetStream, names: Names, after: int) -> tuple[Mark, Erasure | None] | None:
    """The first request after `after`: its message, and itself; None if it was deleted.

    Raises `Unavailable`, `ApiError`, NewerVersion and NotOurs.
    """
    found = await js.next_message(names.actors, names.actor_keys.erasures, after + 1)
    return None if found is None else marked(found)


async def _requests_after(
    js: JetStream, names: Names, position: int
) -> AsyncIterator[tuple[Mark, Erasure | None]]:
    """The requests after a position, in their order; at the beginning, many are read at a time."""
    if not position:
        # What is stored after this read, and moves others behind it, is found one by one.
        subjects, info = await js.subjects_and_info(names.actors, names.actor_keys.erasures)
        messages: list[StoredMessage | None] = []
        for start in range(0, len(subjects), READ_AT_ONCE):
            some = subjects[start : start + READ_AT_ONCE]
            messages += await asyncio.gather(*(js.last_message(names.actors, each) for each in some))
        found = [each for each in messages if each is not None and each.position <= info.last]
        for message in sorted(found, key=lambda each: each.position):
            position = message.position
            yield marked(message)
    while following := await next_request(js, names, position):
        position = following[0].position
        yield following


def marked(message: StoredMessage) -> tuple[Mark, Erasure | None]:
    """The request in a message, with its place; None if it was deleted. Raises NewerVersion and NotOurs."""
    request = _request_in(message) if message.data else None
    return Mark(position=message.position, stored_at=message.stored_at), request


def _request_in(message: StoredMessage) -> Erasure:
    """The request that a message holds. Raises NewerVersion and NotOurs."""
    return read_versioned(_erasure, message.data, VERSION, message.subject)


def finished(erasure: Erasure, at: float, journal_end: int, events_end: int = 0) -> Erasure:
    """The record of one that is done."""
    return replace(erasure, done_at=at, waits_for="", journal_end=journal_end, events_end=events_end)
