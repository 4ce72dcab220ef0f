"""Shows the copy of an event that a stream still has for a receiver, never more of it than the receiver gets.

A receiver may have a transform, and its viewers must not see the original by this way. The streams do not say
under which transform an event was sent; the record of the receiver does. Unless it says that no other one can
have been in force for this event than the present one, the body is not shown.
"""

import asyncio

from msgspec import Struct

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.configuration.secret_places import is_sealed
from actors.configuration.transform import Transform, Unshapeable, key_hash, shaping_of
from actors.errors import InvalidPolicy
from actors.ids import split_receiver
from actors.machine.state import State
from angarium.access import Access
from angarium.delivery.shaping.shape import shape
from angarium.ledger.schema import CLOCKS_APART_MS
from angarium.operations.dead_letters.shown import OTHER_TRANSFORM, SEALED_KEY, UNREADABLE
from angarium.operations.events.recorded_copies import RecordedCopies
from angarium.operations.events.search import among_waiting
from angarium.operations.failures import OperationError, operation
from streams.nats.answers import StoredMessage
from streams.nats.wire_names import (
    CONTENT_TYPE,
    EVENT_AGAIN,
    EVENT_ID,
    EVENT_PUBLISHED,
    EVENT_REGION,
    EVENT_SOURCE,
    EVENT_TYPE,
    TRACEPARENT,
    TRACESTATE,
)
from streams.observation.receiver_snapshots import last_snapshot
from streams.reading.messages import stored_event

NO_COPY = "the deliveries stream has no copy of this event for {} any more, or never had one"
UNRECORDED = "the body is not shown: its receiver may have had another transform then, since {}"
NOT_ALL_RECORDED = "not all of its transforms are recorded"
NOT_YET = "the body is not shown yet: its receiver was configured a moment ago; look again in a few seconds"
SHOWN_HEADERS = frozenset(
    each.lower()
    for each in (
        EVENT_ID, EVENT_TYPE, EVENT_PUBLISHED, EVENT_SOURCE, EVENT_AGAIN, EVENT_REGION, CONTENT_TYPE,
        TRACEPARENT, TRACESTATE,
    )
)  # fmt: skip
"""Headers that are shown. A producer may add others to an event for one receiver, which does not get them."""
ADOPTED_WITHIN_S = 5.0
"""Time within which nodes adopt a configuration: only then is it known that no earlier one is adopted."""


class StoredCopy(Struct, frozen=True):
    """A copy of an event, and its body as it may be shown; None: it may not, and `why` says why."""

    position: int
    stored_at: float
    headers: dict[str, str]
    body: bytes | None
    why: str = ""


class HiddenBody(Struct, frozen=True):
    """A body that may not be shown, and why."""

    why: str


@operation
async def stored_copy(access: Access, event: str, receiver: str, recorded: RecordedCopies) -> StoredCopy:
    """Find the newest copy of an event for a receiver. Fails as not_found."""
    split_receiver(receiver)
    snapshot = await last_snapshot(access.js, access.names, receiver)
    state = snapshot.state if snapshot else None
    message = await _message(access, event, receiver, recorded, state)
    found, configured = (
        await access.configurations.get(receiver),
        await access.configurations.last(receiver),
    )
    if message is None or found is None or configured is None:
        raise OperationError("not_found", NO_COPY.format(receiver))
    try:
        policy, _ = parse(found.raw, strict=False)
    except InvalidPolicy:
        return _copy(message, HiddenBody(UNREADABLE))
    if snapshot is not None and state is None:
        return _copy(message, HiddenBody(UNREADABLE))
    if recorded.recorded_to < (configured.stored_at + ADOPTED_WITHIN_S) * 1000:
        # A transform that was replaced so soon may be in no record yet, and have shaped the event.
        return _copy(message, HiddenBody(NOT_YET))
    transform = transform_to_show(policy, state, recorded, message.stored_at)
    if isinstance(transform, HiddenBody):
        return _copy(message, transform)
    return _copy(message, await asyncio.to_thread(_shaped, message, policy, transform))


async def _message(
    access: Access, event: str, receiver: str, recorded: RecordedCopies, state: State | None
) -> StoredMessage | None:
    """The newest copy: one that is recorded, or one that still waits."""
    for position in recorded.positions:
        message = await access.js.message(access.names.deliveries, position)
        # Another message may have the position of one that was lost with the end of the stream.
        if message is not None and _is_copy(access, message, event, receiver):
            return message
    waiting, _ = await among_waiting(access, receiver, state, event, lambda it: it.id == event)
    return waiting


def _is_copy(access: Access, message: StoredMessage, event: str, receiver: str) -> bool:
    address = access.names.shard_and_receiver(message.subject)
    return address is not None and address[1] == receiver and stored_event(message).id == event


def transform_to_show(
    policy: Policy, state: State | None, recorded: RecordedCopies, stored_at: float
) -> Transform | HiddenBody | None:
    """The transform by which the body of an event may be shown; None: as it was published."""
    present = state.transform if state else 0
    if why := recorded.ledger.why_unrecorded(stored_at):
        return HiddenBody(UNRECORDED.format(why))
    possible = _revisions_since(recorded, round(stored_at * 1000) - CLOCKS_APART_MS, present)
    if possible is None:
        return HiddenBody(UNRECORDED.format(NOT_ALL_RECORDED))
    if possible - {present, 0}:
        return HiddenBody(OTHER_TRANSFORM)
    wanted = policy.transform
    if not present:
        return wanted
    kept = state.kept_transform(present) if state else None
    if wanted is None or kept is None or kept.transform != wanted:
        return HiddenBody(OTHER_TRANSFORM)
    if wanted.pseudonymize and kept.key != key_hash(policy.pseudonym_key):
        return HiddenBody(OTHER_TRANSFORM)
    return wanted


def _revisions_since(recorded: RecordedCopies, since_ms: int, present: int) -> set[int] | None:
    """The revisions of the transforms that may have been in force since a time; None: not known."""
    if not recorded.are_all:
        return None
    later = {each.revision for each in recorded.changes if each.at >= since_ms}
    before = [each.revision for each in recorded.changes if each.at < since_ms]
    if not later:  # The last one is the present one, unless the state was lost: both may have been in force.
        return {present, *before[-1:]}
    if recorded.ledger.gaps or (recorded.ledger.kept_since and not before):
        return None
    return later | {before[-1] if before else 0}


def _shaped(message: StoredMessage, policy: Policy, transform: Transform | None) -> bytes | HiddenBody:
    if transform is None:
        return message.data
    if transform.pseudonymize and is_sealed(policy.pseudonym_key):
        return HiddenBody(SEALED_KEY)
    shaping = shaping_of(transform, policy.pseudonym_key)
    body = shape(message.data, message.headers.get(EVENT_REGION, ""), shaping)
    if isinstance(body, Unshapeable):
        return HiddenBody(f"the body is not shown: {body.why}, so it cannot be shaped")
    return body


def _copy(message: StoredMessage, shown: bytes | HiddenBody) -> StoredCopy:
    body, why = (None, shown.why) if isinstance(shown, HiddenBody) else (shown, "")
    headers = {name: value for name, value in message.headers.items() if name.lower() in SHOWN_HEADERS}
    return StoredCopy(message.position, message.stored_at, headers, body, why)
