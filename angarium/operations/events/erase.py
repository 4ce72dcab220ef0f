"""Erases the content of an event from streams, dead letters, answers and ledgers; numbers and ids stay.

The request is recorded with its author, and a node carries it out, so it continues after the caller is gone.
"""

import time

from msgspec import Struct

from actors.ids import tenant_of
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing.erasures import Erasure, Erasures


class ErasureStatus(Struct, frozen=True, kw_only=True):
    """The progress of an erasure.

    `waits_for` says why it is not `done`. The counts are of erased messages; `discarded` is the number of
    deliveries that had not been settled.
    """

    tenant: str
    event: str
    requested_by: str
    requested_at: str
    done: bool
    done_at: str | None
    waits_for: str | None
    events: int
    deliveries: int
    discarded: int
    dead_letters: int
    journal_messages: int


@operation
async def request_erasure(access: Access, tenant: str, event: str) -> ErasureStatus:
    """Record a request that an event be erased, or join an unfinished request."""
    return _status(await Erasures(access.js, access.names).request(tenant, event, access.by, time.time()))


@operation
async def get_erasure(access: Access, tenant: str, event: str) -> ErasureStatus:
    """The progress of the last request. Fails as not_found."""
    found = await Erasures(access.js, access.names).get(tenant, event)
    if found is None:
        raise OperationError("not_found", f"there is no request to erase the event {event} of {tenant}")
    return _status(found)


@operation
async def only_tenant(access: Access) -> str:
    """The only tenant. Fails as invalid if there are several."""
    found = {tenant_of(each) for each in await StoredConfigurations(access.js, access.names).all()}
    if len(found) != 1:
        text = "there are several tenants" if found else "there is no receiver, so no tenant is known"
        raise OperationError("invalid", text, remedy=": choose one with --tenant")
    return found.pop()


def _status(erasure: Erasure) -> ErasureStatus:
    return ErasureStatus(
        tenant=erasure.tenant, event=erasure.event, requested_by=erasure.by,
        requested_at=instant_text(erasure.at), done=erasure.done_at is not None,
        done_at=None if erasure.done_at is None else instant_text(erasure.done_at),
        waits_for=erasure.waits_for or None, events=erasure.events, deliveries=erasure.deliveries,
        discarded=erasure.waiting, dead_letters=erasure.dead_letters, journal_messages=erasure.flushes,
    )  # fmt: skip
