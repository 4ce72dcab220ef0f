"""Lists the timed events."""

import time

from msgspec import Struct

from actors.ids import check_tenant
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import operation
from streams.timed.entries import Entry
from streams.timed.listing import ListKey, list_entries


class TimedEvent(Struct, frozen=True, kw_only=True):
    """A timed event.

    - `deliver_at`: the time that its producer asked for; `due_at`: the full second in which it is due.
    - `receiver`: the only one that gets it, if there is one.
    """

    id: str
    tenant: str
    type: str
    deliver_at: str
    due_at: str
    published_at: str
    receiver: str | None
    bytes: int


class TimedPage(Struct, frozen=True):
    """Waiting events, the next first; `next` is where the next page begins if there are others, or may be."""

    events: list[TimedEvent]
    next: ListKey | None


@operation
async def list_timed(
    access: Access,
    tenant: str | None,
    receiver: str = "",
    limit: int | None = None,
    after: ListKey | None = None,
) -> TimedPage:
    """A page of the events of a tenant that wait, or of all. Fails as invalid.

    `receiver`: only those that are for this one receiver alone; it is its name in the tenant. A page may be
    short, or empty, although there are others.
    """
    return await _page(access, tenant, receiver, limit, after)


@operation
async def list_timed_up_to(
    access: Access, tenant: str | None, receiver: str = "", limit: int | None = None
) -> TimedPage:
    """The first events that wait, up to `limit`, however many pages that takes. Fails as invalid."""
    page = await _page(access, tenant, receiver, limit, None)
    found = page.events
    while page.next is not None and len(found) != limit:
        left = None if limit is None else limit - len(found)
        page = await _page(access, tenant, receiver, left, page.next)
        found += page.events
    return TimedPage(found, page.next)


async def _page(
    access: Access, tenant: str | None, receiver: str, limit: int | None, after: ListKey | None
) -> TimedPage:
    if tenant is not None:
        check_tenant(tenant)
    found = await list_entries(
        access.js, access.names, tenant, time.time(), only_for=receiver, limit=limit, after=after
    )
    return TimedPage([timed_event(each) for each in found.entries], found.next)


def timed_event(entry: Entry) -> TimedEvent:
    """The waiting event as it is shown."""
    return TimedEvent(
        id=entry.id, tenant=entry.address.tenant, type=entry.type, deliver_at=entry.deliver_at,
        due_at=instant_text(entry.address.second),
        published_at=instant_text(entry.published_at), receiver=entry.only_for or None,
        bytes=len(entry.message.data),
    )  # fmt: skip
