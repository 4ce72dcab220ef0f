"""Requests to erase an event, in the bucket of the actors: who asked, when, and what became of it.

A request is a key of its own, so it outlives its caller. The node that owns shard 0 carries it out; the
record stays, with the event's id and nothing that the event held.
"""

from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import BadInput, Unavailable
from actors.ids import check_tenant, is_event_id
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored, Unanswered
from streams.nats.codes import WRONG_LAST_SEQUENCE
from streams.nats.headers import EXPECTED
from streams.nats.jetstream import JetStream
from streams.versions import read_versioned

VERSION = 1


class Erasure(Struct, frozen=True, kw_only=True):
    """One request. `waits_for` says what keeps it from being done; instants are seconds since the epoch.

    The other members count what was erased: messages of each stream, and how many of the deliveries were
    not settled before. `journal_end` is the last message of the journal when it was done.
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


_erasure = msgspec.json.Decoder(Erasure)


class Erasures:
    """The requests of an installation."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._done_to = 0

    async def request(self, tenant: str, event: str, by: str, at: float) -> Erasure:
        """Request that an event be erased, or join the request that is not done yet; returns the request.

        Raises BadInput, `Unavailable` and `ApiError`.
        """
        check_tenant(tenant)
        if not is_event_id(event):
            raise BadInput(f"{event[:60]!r} is no id of an event; receivers see it as webhook-id")
        while True:
            found, revision = await self._get(tenant, event)
            if found is not None and found.done_at is None:
                return found
            asked = Erasure(tenant=tenant, event=event, by=by, at=at)
            if await self._put(asked, revision):
                return asked

    async def get(self, tenant: str, event: str) -> Erasure | None:
        """The last request about that event. Raises `Unavailable` and `ApiError`."""
        check_tenant(tenant)
        return (await self._get(tenant, event))[0] if is_event_id(event) else None

    async def pending(self) -> AsyncIterator[tuple[Erasure, int]]:
        """Yield the requests to carry out, with their revisions. Raises `Unavailable` and `ApiError`."""
        position, all_done = self._done_to, True
        while found := await next_request(self._js, self._names, position):
            position, request = found
            all_done = all_done and (request is None or request.done_at is not None)
            if all_done:
                self._done_to = position
            if request is not None and request.done_at is None:
                yield request, position

    async def note(self, erasure: Erasure, revision: int) -> int:
        """Store how far it is; returns the new revision. Raises `Unavailable` if it was changed."""
        if not await self._put(erasure, revision):
            raise Unavailable(f"the erasure of {erasure.event} was changed by another node")
        return (await self._get(erasure.tenant, erasure.event))[1]

    async def _get(self, tenant: str, event: str) -> tuple[Erasure | None, int]:
        subject = self._names.erasure(tenant, event)
        found = await self._js.last_message(self._names.actors, subject)
        if found is None:
            return None, 0
        if not found.data:
            return None, found.sequence
        return read_versioned(_erasure, found.data, VERSION, subject), found.sequence

    async def _put(self, erasure: Erasure, revision: int) -> bool:
        subject = self._names.erasure(erasure.tenant, erasure.event)
        match await self._js.publish(subject, msgspec.json.encode(erasure), {EXPECTED: str(revision)}):
            case Stored():
                return True
            case Refused(code=code) if code == WRONG_LAST_SEQUENCE:
                return False
            case Refused(text=text) | Unanswered(why=text):
                raise Unavailable(f"the erasure of {erasure.event} cannot be stored: {text}")


async def next_request(js: JetStream, names: Names, after: int) -> tuple[int, Erasure | None] | None:
    """The position of the first request after `after`, and the request; None in its place if it was deleted.

    Raises `Unavailable`, `ApiError`, NewerVersion and NotOurs.
    """
    found = await js.next_message(names.actors, names.erasures, after + 1)
    if found is None:
        return None
    return found.sequence, read_versioned(
        _erasure, found.data, VERSION, found.subject
    ) if found.data else None


def finished(erasure: Erasure, at: float, journal_end: int) -> Erasure:
    """The record of one that is done."""
    return replace(erasure, done_at=at, waits_for="", journal_end=journal_end)
