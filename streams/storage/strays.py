"""Buries strays: accepted messages that belong to no shard, so that no owner ever reads them.

nats-server accepts a message whose subject contains a wildcard as a token, and stores it under that subject:
its transform, which adds the number of the shard, does not apply. So the subject of a stray is one token
shorter than others, which is how strays are found. A stray becomes a dead letter of its tenant, like a
malformed event.

Strays are looked for before settled messages are purged; events that came after the search are kept. If there
are more than a round buries, nothing is kept for the others: a producer could fill the stream with them.

No filter distinguishes a stray event of a type with several tokens from other events, unless its tenant is
known: then its subject has the tenant where others have the number of their partition. `count_stray_events`
counts them all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Literal

from actors.ids import is_tenant, stable_hash, tenant_of
from actors.machine.event import Event
from streams.dead_letters.bury import encoded, filed_under, store
from streams.dead_letters.malformed import MALFORMED_RECEIVER
from streams.installation.topology import Names
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.wire_names import DEAD_ATTEMPTS, DEAD_PROBLEM, DEAD_REASON, EVENT_ID, MESSAGE_ID
from streams.reading.messages import stored_event
from streams.routing.fanout import event_of_message
from streams.storage.purge import ANY_POSITION

STRAYS_BURIED_MAX = 256
"""Strays of one stream that are buried in one round."""
PAGE_BYTES = 4 << 20
"""Size of the strays that are buried at the same time."""
SEARCHES_MAX = 16
"""Searches for strays in one round: one takes up to 40 requests, if they have to be found by counting."""
NEARBY_POSITIONS = 256
"""Positions before a stray that are checked for others."""
COUNT_AGAIN_AFTER_S = 1.0
log = logging.getLogger(__name__)


async def bury_stray_deliveries(js: JetStream, names: Names) -> None:
    """Bury deliveries that have no shard, a limited number. Raises `Unavailable` and `ApiError`."""

    async def bury(message: StoredMessage) -> bool:
        tenant = tenant_of(names.published_to(message.subject))
        return await _bury(js, names, names.deliveries, tenant, message, "p", stored_event(message))

    await _bury_found(lambda limit: _stray_deliveries(js, names, limit), bury)


async def bury_stray_events(js: JetStream, names: Names, tenants: Collection[str] = ()) -> int:
    """Bury some of the events that have no partition: those with a type of one token, and those of `tenants`.

    Returns the position from which on all events are to be kept. Raises `Unavailable` and `ApiError`.
    """
    stray, kept_from = names.publish_event("*", "*"), 0

    async def find(limit: int) -> list[StoredMessage]:
        nonlocal kept_from
        subjects, listed = await js.subjects_and_info(names.events, stray)
        if subjects:
            return await _matching(js, names.events, stray, limit)
        for of_tenant in stray_filters(names, tenants):
            # Its subjects are not listed: a producer may invent any number of types.
            if (first := await js.next_message(names.events, of_tenant, 1)) is not None:
                page = await js.read(names.events, of_tenant, first.position, limit, PAGE_BYTES)
                return list(page.messages) or [first]
        kept_from = listed.last + 1
        return []

    async def bury(message: StoredMessage) -> bool:
        event, tenant = event_of_message(names, message), tenant_of(names.published_to(message.subject))
        return await _bury(js, names, names.events, tenant, message, "e", event)

    match await _bury_found(find, bury):
        case "all":
            return kept_from
        case "not storable":
            return 0
        case "enough":
            return ANY_POSITION


def stray_filters(names: Names, tenants: Collection[str]) -> list[str]:
    """A filter for the strays of each tenant. A name that no tenant can have might mean events of others."""
    return [names.publish_event(tenant, ">") for tenant in sorted(tenants) if is_tenant(tenant)]


async def _bury_found(
    find: Callable[[int], Awaitable[list[StoredMessage]]], bury: Callable[[StoredMessage], Awaitable[bool]]
) -> Literal["all", "enough", "not storable"]:
    """Bury what is found, together, until there is no more, one cannot be buried, or it was enough."""
    left = STRAYS_BURIED_MAX
    for _ in range(SEARCHES_MAX):
        if not (found := await find(left)):
            return "all"
        if not all(await asyncio.gather(*map(bury, found))):
            return "not storable"
        left -= len(found)
        if left <= 0:
            break
    return "enough"


async def count_stray_events(js: JetStream, names: Names, partitions: int) -> int:
    """The number of events that are in no partition. Raises `Unavailable` and `ApiError`.

    Events come and go during a count, so the lower of two counts is returned.
    """
    found = await _count_once(js, names, partitions)
    if found <= 0:
        return 0
    await asyncio.sleep(COUNT_AGAIN_AFTER_S)
    return max(0, min(found, await _count_once(js, names, partitions)))


async def _count_once(js: JetStream, names: Names, partitions: int) -> int:
    total = await _count_from(js, names.events, ALL_SUBJECTS, 1)
    return total - sum([
        await _count_from(js, names.events, names.events_of(partition), 1) for partition in range(partitions)
    ])  # fmt: skip


async def _stray_deliveries(js: JetStream, names: Names, limit: int) -> list[StoredMessage]:
    """Some deliveries that have no shard.

    What no filter finds is found by counting all that has a shard. Others are often near it.
    """
    stream = names.deliveries
    if not await js.subjects(stream, names.stray_deliveries):
        return []
    if found := await _matching(js, stream, names.stray_deliveries, limit):
        return found
    last = await _last_but(js, stream, names.deliveries_to("*.*"))
    if last is None:
        return []
    page = await js.read(stream, ALL_SUBJECTS, last.position - NEARBY_POSITIONS, NEARBY_POSITIONS, PAGE_BYTES)
    nearby = {each.position: each for each in (last, *page.messages)}
    return [each for each in nearby.values() if names.shard_and_receiver(each.subject) is None][:limit]


async def _matching(js: JetStream, stream: str, stray: str, limit: int) -> list[StoredMessage]:
    """Messages whose subject matches `stray`.

    nats-server lists the subjects, but does not always find the messages: none with the token `>` (2.15.1).
    """
    if found := (await js.read(stream, stray, 1, limit, PAGE_BYTES)).messages:
        return list(found)
    for subject in sorted(await js.subjects(stream, stray)):
        message = await js.next_message(stream, subject, 1)
        if message is not None and message.subject == subject:
            return [message]
    return []


async def _last_but(js: JetStream, stream: str, proper: str) -> StoredMessage | None:
    """The last message that does not match `proper`, found by bisection; None if others came meanwhile."""
    low, high = 1, (await js.existing_stream(stream)).last
    while low < high:
        middle = (low + high + 1) // 2
        total = await _count_from(js, stream, ALL_SUBJECTS, middle)
        if total > await _count_from(js, stream, proper, middle):
            low = middle
        else:
            high = middle - 1
    return await js.message(stream, low)


async def _count_from(js: JetStream, stream: str, subject: str, position: int) -> int:
    page = await js.read(stream, subject, position, batch=1)
    return len(page.messages) + page.pending


async def _bury(
    js: JetStream, names: Names, stream: str, tenant: str, message: StoredMessage, kind: str, event: Event
) -> bool:
    """Store the dead letter, then delete the message by its position: its subject means others, too."""
    receiver = f"{_tenant_of_letter(tenant)}.{MALFORMED_RECEIVER}"
    why = await store(js, names, receiver, message, {
        EVENT_ID: event.id,
        MESSAGE_ID: f"{filed_under(receiver)}:{kind}{message.position}",
        DEAD_REASON: "malformed",
        DEAD_ATTEMPTS: 0,
        DEAD_PROBLEM: encoded(f"published to {message.subject}: no name contains * or >"),
    })  # fmt: skip
    fields = {"stream": stream, "position": message.position, "trace_id": event.trace_id}
    if why is not None:
        log.warning("stray.waiting", extra=fields | {"why": why})
        return False
    log.warning("stray.buried", extra=fields | {"receiver": receiver})
    mark = Mark(position=message.position, stored_at=message.stored_at)
    await delete_known(js, stream, mark)
    return True


def _tenant_of_letter(tenant: str) -> str:
    """The tenant that gets the letter; a hash if the name is not a tenant's."""
    return tenant if is_tenant(tenant) else f"_{stable_hash(tenant)}"
