"""Lists the events that wait for their time."""

import time

from msgspec import Struct

from actors.ids import check_tenant
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import operation
from streams.timed.entries import Entry
from streams.timed.listing import ListStart, list_entries


class LaterEvent(Struct, frozen=True, kw_only=True):
    """An event that waits for its time. `receiver`: the only one that gets it, if there is one."""

    id: str
    tenant: str
    type: str
    deliver_at: str
    published_at: str
    receiver: str | None
    bytes: int


class LaterPage(Struct, frozen=True):
    """Waiting events, the next first; `next` is the place of the last one if there are others."""

    events: list[LaterEvent]
    next: ListStart | None


@operation
async def list_later(
    access: Access,
    tenant: str | None,
    receiver: str = "",
    limit: int | None = None,
    after: ListStart | None = None,
) -> LaterPage:
    """The events of a tenant that wait, or of all; of those with one receiver, only those for `receiver`.

    `receiver` is its name in the tenant. Fails as invalid.
    """
    if tenant is not None:
        check_tenant(tenant)
    found = await list_entries(
        access.js, access.names, tenant, time.time(), only_for=receiver, limit=limit, after=after
    )
    return LaterPage([later_event(each) for each in found.entries], found.next)


def later_event(entry: Entry) -> LaterEvent:
    """The waiting event as it is shown."""
    return LaterEvent(
        id=entry.id, tenant=entry.place.tenant, type=entry.type, deliver_at=entry.deliver_at,
        published_at=instant_text(entry.published_at), receiver=entry.only_for or None,
        bytes=len(entry.message.data),
    )  # fmt: skip
