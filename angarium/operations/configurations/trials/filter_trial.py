"""Tries the filter of a receiver, or another one, on the last events that it subscribes to; sends nothing."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Literal

from msgspec import Struct

from actors.configuration.filters.compiling import NotAFilter
from actors.configuration.filters.evaluating import Filter, FilterResult, decode_body, filter_of
from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import BadInput, InvalidPolicy
from actors.ids import split_receiver, tenant_of
from actors.machine.event import Event
from actors.subscriptions import matches
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.configurations.stored import not_found
from angarium.operations.failures import OperationError, operation
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.observation.newest_events import newest_events

EVENTS_MAX = 1000
EVENTS_DEFAULT = 100
Meaning = Literal["sent", "filter", "region", "not_json", "failed", "too_costly"]
"""The meaning of a result: the event is sent, or why not. The last three are failures."""
_MEANINGS: dict[FilterResult, Meaning] = {
    FilterResult.PASSED: "sent",
    FilterResult.STOPPED: "filter",
    FilterResult.NOT_JSON: "not_json",
    FilterResult.FAILED: "failed",
    FilterResult.TOO_COSTLY: "too_costly",
}


class TriedEvent(Struct, frozen=True, kw_only=True):
    """An event, and what the filter says: `result`, and `why` if it could not be evaluated."""

    position: int
    id: str
    type: str
    stored_at: str
    result: Meaning
    why: str = ""


class FilterTrial(Struct, frozen=True, kw_only=True):
    """The results for the last events that a receiver subscribes to, the oldest first.

    `failed`: those whose filter could not be evaluated; they are `not_sent`, too. `cut`: older events were
    not looked at, since the search is bounded.
    """

    receiver: str
    filter: str | None
    region: tuple[str, ...]
    sent: int
    not_sent: int
    failed: int
    cut: bool
    events: list[TriedEvent]


@operation
async def try_filter(
    access: Access, receiver: str, expression: str | None = None, last: int = EVENTS_DEFAULT
) -> FilterTrial:
    """Evaluate the receiver's own filter, or another `expression`, over the last events.

    Fails as not_found, as invalid if the expression is no filter, and as refused if the configuration is
    invalid.
    """
    split_receiver(receiver)
    if not 1 <= last <= EVENTS_MAX:
        raise BadInput(f"the number of events must be 1 to {EVENTS_MAX}")
    policy = await usable_policy(StoredConfigurations(access.js, access.names), receiver)
    text = policy.filter if expression is None else expression
    try:
        chosen = None if text is None else filter_of(text)
    except NotAFilter as error:
        raise BadInput(f"filter: {error}") from None

    return await trial(access.js, access.names, receiver, policy, chosen, last)


async def usable_policy(configurations: StoredConfigurations, receiver: str) -> Policy:
    """The configuration of a receiver. Raises `OperationError` if there is none, or it is invalid."""
    stored = await configurations.get(receiver)
    if stored is None:
        raise not_found(receiver)
    try:
        return parse(stored.raw, strict=False)[0]
    except InvalidPolicy as error:
        raise OperationError("refused", f"the configuration of {receiver} cannot be used: {error}") from None


async def trial(
    js: JetStream, names: Names, receiver: str, policy: Policy, chosen: Filter | None, last: int
) -> FilterTrial:
    """Try the regions of a receiver's configuration, and a filter, on its last events.

    Raises `Unavailable` and `ApiError`.
    """
    wanted = partial(subscribes, receiver, policy)
    found = await newest_events(js, names, tenant_of(receiver), last, wanted)
    tried = await tried_events(found.events, policy, chosen)
    counts = Counter(each.result for each in tried)
    return FilterTrial(
        receiver=receiver, filter=None if chosen is None else chosen.text, region=policy.region,
        sent=counts["sent"], not_sent=len(tried) - counts["sent"], failed=count_failed(tried),
        cut=found.is_cut, events=tried,
    )  # fmt: skip


def subscribes(receiver: str, policy: Policy, event: Event) -> bool:
    """True if the router asks the receiver's filter about the event."""
    # A timed event is published once more when it is due; only then the router asks the filter.
    if event.about == receiver or event.only_for or event.deliver_at:
        return False
    return any(matches(each, event.type) for each in policy.events)


def count_failed(tried: Iterable[TriedEvent]) -> int:
    """The number of events for which the filter could not be evaluated."""
    return sum(each.result in ("not_json", "failed", "too_costly") for each in tried)


async def tried_events(events: Iterable[Event], policy: Policy, chosen: Filter | None) -> list[TriedEvent]:
    """Try each event: the regions of a configuration, and this filter."""
    tried = list[TriedEvent]()
    for event in events:
        tried.append(_tried(event, policy, chosen))
        await asyncio.sleep(0)  # An evaluation may take milliseconds.
    return tried


def _tried(event: Event, policy: Policy, chosen: Filter | None) -> TriedEvent:
    result: Meaning = "sent"
    why = ""
    if not policy.admits(event.region):
        result = "region"
    elif chosen is not None:
        answer = chosen.evaluate(decode_body(event.body))
        result, why = _MEANINGS[answer.result], answer.why
    return TriedEvent(
        position=event.position, id=event.id, type=event.type, stored_at=instant_text(event.stored_at),
        result=result, why=why,
    )  # fmt: skip
