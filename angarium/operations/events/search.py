"""Searches the streams for an event: where it still waits, and since when; or why no receiver gets it.

No stream has an index of ids. So every search is bounded, and its answer says where it stopped.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from msgspec import Struct, field

from actors.configuration.parsing import parse
from actors.configuration.policy import SECONDS
from actors.errors import InvalidPolicy
from actors.ids import check_tenant, tenant_of
from actors.machine.event import Event
from actors.machine.state import State
from actors.subscriptions import matches
from actors.times_as_text import instant_text
from angarium import quantities
from angarium.access import Access
from angarium.operations.control_requests.inspection import StateDocument, inspect_receiver
from angarium.operations.events.timed_traces import DueEvent, timed_traces
from angarium.operations.failures import NotDone, operation
from angarium.operations.receiver_list.health import ReceiverHealth
from angarium.operations.receiver_list.listing import get_health
from angarium.operations.receiver_list.throughput import UNMEASURED, RecentCounts
from angarium.operations.routing_delays import why_unrouted
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.erasing.erasures import Erasures
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.observation.receiver_snapshots import receiver_snapshots
from streams.reading.messages import HEADERS_UNREAD, stored_event
from streams.routing.fanout import event_of_message

RECEIVERS_MAX = 1000
"""Receivers whose waiting events are searched."""
TENANTS_MAX = 100
"""Tenants whose records of erasures are checked, if none is given."""
SEARCHED_MAX = 10_000
"""Messages that are checked: the first that wait for a receiver, the newest of a stream."""
SEARCHED_BYTES_MAX = 64 << 20
RECEIVERS_NAMED_MAX = 3
"""Receivers that are named whose filters or regions may have kept an event from them."""
UNREAD_LETTERS_MAX = 3
"""Letters that are named because their headers, and so their ids, were not read."""
PAGE_MESSAGES = 512
PAGE_BYTES = 1 << 20
SEARCHED_AT_ONCE = 16
ON_ITS_WAY_S = 10.0
"""Age up to which an event may not have reached its receivers, or the ledger."""
NEVER_PUBLISHED = "it was never published under this id, or so long ago that it is no longer kept"


class WaitingDelivery(Struct, frozen=True, kw_only=True):
    """An event that waits for a receiver, at `place` of the `waiting` ones; the first has place 1.

    `why` says why the receiver waits, `remedy` what an operator has to do. `due_s`: seconds until the
    event's turn if everything continues as it is. None: unknown. `again`: the mark of the replay or redrive
    that sent it again; empty for the original.
    """

    receiver: str
    stored_at: str
    place: int | None
    waiting: int | None
    why: str
    remedy: str | None
    due_s: float | None
    again: str = ""


class ErasedEvent(Struct, frozen=True, kw_only=True):
    """The last erasure of an event: who asked for it, and when it was done; None while it is under way."""

    tenant: str
    at: str | None
    by: str


class EventSearch(Struct, frozen=True, kw_only=True):
    """The receivers for which an event waits; if there are none, the reason. `notes`: parts not searched.

    `stored`: a stream has the event, although it waits for no receiver. As `why_none` says, it is `unrouted`,
    since it waits for that, or it is `timed`, and waits for its time or was cancelled before that. `letter`:
    the number of the dead letter that it is. `erased`: one for each tenant. `due`: the last events of the id
    whose time had come, if they had one.
    """

    waiting: list[WaitingDelivery]
    why_none: str
    notes: list[str]
    stored: bool = False
    unrouted: bool = False
    timed: bool = False
    letter: int | None = None
    erased: list[ErasedEvent] = field(default_factory=list)
    due: list[DueEvent] = field(default_factory=list)

    def why_unknown(self, event: str) -> str:
        """The beginning of the sentence that no receiver has the event; `why_none` is its end."""
        if self.why_none == NEVER_PUBLISHED:
            return f"event {event} is unknown"
        return f"no attempt of the event {event} is recorded"


class _Whereabouts(Struct, frozen=True):
    """Why no receiver has an event, and what is known of it; the members are those of `EventSearch`."""

    why: str
    stored: bool = True
    unrouted: bool = False
    timed: bool = False
    letter: int | None = None


class _Searched(Struct, frozen=True):
    """A message with the event, if there is one, and whether the search ended at a bound."""

    message: StoredMessage | None
    cut: bool


class _Erased(Struct, frozen=True):
    """An erasure of an event, and whether it erased anything, or may still do so."""

    shown: ErasedEvent
    anything: bool


class SearchBounds(Struct, frozen=True, kw_only=True):
    """The bounds of a search: only receivers `after` one, and up to `last`, in alphabetical order.

    `at_once`: how many of them are searched at a time; `timeout_s`: for how long.
    """

    after: str = ""
    last: str | None = None
    at_once: int = SEARCHED_AT_ONCE
    timeout_s: float | None = None

    def includes(self, receiver: str) -> bool:
        """True if the receiver is within the bounds."""
        return receiver > self.after and (self.last is None or receiver <= self.last)


@operation
async def search_event(
    access: Access,
    event: str,
    tenant: str | None,
    recorded: Mapping[str, Collection[str | None]] = MappingProxyType({}),
    bounds: SearchBounds = SearchBounds(),  # noqa: B008 - it is immutable.
    why_unrecorded: Callable[[float], str] = lambda _: "",
    *,
    existing: Sequence[str] | None = None,
    recent_counts: RecentCounts | None = None,
) -> EventSearch:
    """Search for an event, of one tenant if given.

    `why_unrecorded`: returns why the end of an event that was stored at that time may not be recorded, or an
    empty text.

    `existing`: the receivers, if the caller knows them, and `recent_counts` what it knows of the journal.
    For receivers whose deliveries are `recorded`, only copies are searched that were sent again, except those
    of replays and redrives that are recorded, too.
    """
    if tenant is not None:
        check_tenant(tenant)
    among = tenant or "*"
    there = await StoredConfigurations(access.js, access.names).all(among) if existing is None else existing
    receivers = [each for each in there if bounds.includes(each)]
    notes = list[str]()
    if len(receivers) > RECEIVERS_MAX:
        notes.append(f"{len(receivers)} receivers are too many to search their waiting events")
        receivers = []
    states = await _states(access, among) if receivers else {}
    slots, found, left = asyncio.Semaphore(bounds.at_once), list[WaitingDelivery](), {*receivers}

    async def search(receiver: str) -> None:
        async with slots:
            known, wanted = states.get(receiver), _wanted(event, recorded.get(receiver))
            message, cut = await among_waiting(access, receiver, known, event, wanted)
            if (
                message is not None
                and (delivery := await _delivery(access, receiver, message, recent_counts)) is not None
            ):
                found.append(delivery)
            elif cut:
                notes.append(f"more than {SEARCHED_MAX} events wait for {receiver}; only those were searched")
            left.remove(receiver)

    try:
        async with asyncio.timeout(bounds.timeout_s):
            await asyncio.gather(*map(search, receivers))
    except TimeoutError:
        notes.append(
            f"{len(left)} of {len(receivers)} receivers could not be searched within {bounds.timeout_s:g} s"
        )
    found.sort(key=lambda each: each.receiver)
    tenants = [tenant] if tenant else sorted({tenant_of(each) for each in there})
    erased = await _erasures(access, event, tenants, notes)
    timed = await timed_traces(access, event, among, notes)
    if found or recorded:
        shown = [each.shown for each in erased]
        return EventSearch(waiting=found, why_none="", notes=notes, erased=shown, due=timed.due)
    none = await _why_none(access, event, among, why_unrecorded, notes, timed.why_none)
    if not none.stored:
        erased = [each for each in erased if each.anything]
    why = none.why
    if erased and not none.stored:
        at = erased[0].shown.at
        why = "its erasure is under way" if at is None else f"it was erased at {at}"
    return EventSearch(
        waiting=[], why_none=why, notes=notes, stored=none.stored, unrouted=none.unrouted,
        timed=none.timed, letter=none.letter, erased=[each.shown for each in erased], due=timed.due,
    )  # fmt: skip


async def _states(access: Access, among: str) -> dict[str, State | None]:
    """The receivers of a tenant, or all (`*`), by their snapshots."""
    return {each.receiver: each.state async for each in receiver_snapshots(access.js, access.names, among)}


def _wanted(event: str, recorded: Collection[str | None] | None) -> Callable[[Event], bool]:
    """Makes a test for the wanted messages of an event; `recorded`: the marks of those in the ledger."""
    if recorded is None:
        return lambda it: it.id == event
    return lambda it: it.id == event and bool(it.again) and it.again not in recorded


async def _erasures(access: Access, event: str, tenants: list[str], notes: list[str]) -> list[_Erased]:
    """The erasures of the event in these tenants: what waited in a stream alone leaves only their record."""
    if len(tenants) > TENANTS_MAX:
        notes.append(f"{len(tenants)} tenants are too many to look whether one had it erased; choose one")
        return []
    records, found = Erasures(access.js, access.names), list[_Erased]()
    for tenant in tenants:
        if (each := await records.get(tenant, event)) is not None:
            at = None if each.done_at is None else instant_text(each.done_at)
            shown = ErasedEvent(tenant=tenant, at=at, by=each.by)
            found.append(_Erased(shown, each.done_at is None or each.has_found_anything))
    return found


async def among_waiting(
    access: Access, receiver: str, known: State | None, event: str, wanted: Callable[[Event], bool]
) -> tuple[StoredMessage | None, bool]:
    """The wanted message of the event among the unsettled ones of a receiver, by its snapshot."""
    js, stream = access.js, access.names.deliveries
    for each in known.open if known else ():
        if each.id == event:
            message = await js.message(stream, each.position)
            if message is not None and wanted(stored_event(message)):
                return message, False
    after = known.frontier.position if known else 0
    found = await _search(js, stream, access.names.deliveries_to(receiver), after + 1, wanted, stored_event)
    return found.message, found.cut


async def _delivery(
    access: Access, receiver: str, message: StoredMessage, recent_counts: RecentCounts | None
) -> WaitingDelivery | None:
    """The place of an event among those that wait; None if it was settled since the receiver's snapshot."""
    subject = access.names.deliveries_to(receiver)
    later = await access.js.read(access.names.deliveries, subject, message.position + 1, batch=1, max_bytes=1)
    live, stored_at = await inspect_receiver(access, receiver), instant_text(message.stored_at)
    again = stored_event(message).again
    if isinstance(live, NotDone):
        return WaitingDelivery(
            receiver=receiver, stored_at=stored_at, place=None, waiting=None, why=live.text, remedy=None,
            due_s=None, again=again,
        )  # fmt: skip
    waiting = int(live["backlog"])
    place = waiting - len(later.messages) - later.pending
    if place < 1:
        return None
    health = await get_health(access, [receiver], recent_counts)
    measured = None if isinstance(health, NotDone) else health.get(receiver)
    return WaitingDelivery(
        receiver=receiver, stored_at=stored_at, place=place, waiting=waiting, why=live["why"],
        remedy=live.get("remedy"), due_s=due_s(live, measured, place, time.time()), again=again,
    )  # fmt: skip


def due_s(live: StateDocument, health: ReceiverHealth | None, place: int, now: float) -> float | None:
    """Seconds until the turn of the event at `place`, at the current throughput; None if not known."""
    if live["phase"] not in ("idle", "active"):
        resumes = live["resume_at"] if place == 1 else None
        return None if resumes is None else round(max(0.0, quantities.parse_time(resumes, now) - now), 1)
    measured = health is not None and health.limited_by not in UNMEASURED
    per_s, bucket = (health.out_per_s or 0.0) if health and measured else 0.0, live["bucket"]
    if health is not None and health.limited_by == "pace" and health.waiting and health.empty_in_s:
        per_s = health.waiting / health.empty_in_s + (health.in_per_s or 0.0)
    elif bucket and (not per_s or (health and health.limited_by == "rate")):
        per_s = bucket["effective_limit"] / SECONDS[bucket["per"]]
    elif not per_s and (pace := live.get("pace")):
        per_s = pace["effective_limit"] or 0.0
    return round(place / per_s, 1) if per_s else None


async def _why_none(
    access: Access,
    event: str,
    among: str,
    why_unrecorded: Callable[[float], str],
    notes: list[str],
    why_timed: str,
) -> _Whereabouts:
    """The reason why an event waits for no receiver; `notes` gets what may be the event under another id.

    `why_timed`: the reason if the event has a time, or had one.
    """
    js, names, letters = access.js, access.names, DeadLetters(access.js, access.names)
    seen, unread = 0, list[str]()
    async for page in letters.newest(LetterFilter(receivers=f"{among}.*"), await letters.end()):
        for letter in page.letters:
            if letter.event_id == event:
                reason = f"{letter.reason}: {letter.problem}" if letter.problem else letter.reason
                return _Whereabouts(
                    f"it is dead letter {letter.position}, for {letter.receiver} ({reason})",
                    letter=letter.position,
                )
            if letter.problem == HEADERS_UNREAD and len(unread) < UNREAD_LETTERS_MAX:
                unread.append(str(letter.position))
        seen += page.seen
        if seen >= SEARCHED_MAX:
            break
    if why_timed:
        return _Whereabouts(why_timed, timed=True)
    if unread:
        which = " or ".join(unread)
        notes.append(
            f"it may be dead letter {which}, which has too many headers, so that its id is not known"
        )
    stored = await _newest(js, names.deliveries, names.deliveries_to(f"{among}.*"), event, stored_event)
    if message := stored.message:
        if (address := names.shard_and_receiver(message.subject)) is None:
            return _Whereabouts(_stray(message))
        receiver, at = address[1], instant_text(message.stored_at)
        if _is_recent(message):
            what = "settled a moment ago, so ask again"
        elif why := why_unrecorded(message.stored_at):
            what = f"it was settled, and it is not known how, since {why}"
        else:
            what = f"it was discarded unread, or settled within the last {ON_ITS_WAY_S:g} s"
        return _Whereabouts(f"it was stored for {receiver} at {at}, and no longer waits: {what}")
    read = partial(event_of_message, names)
    published = await _newest(js, names.events, names.events_for(among), event, read)
    if message := published.message:
        if names.partition_and_tenant(message.subject) is None:
            # It may be another tenant's: of `events.umbra.acme.*`, acme is a part of the type.
            return (
                _Whereabouts(_stray(message)) if among == "*" else _Whereabouts(NEVER_PUBLISHED, stored=False)
            )
        tenant, _, kind = names.address_of_event(message.subject).partition(".")
        if waits := await why_unrouted(access, message, ON_ITS_WAY_S):
            return _Whereabouts(waits, unrouted=True)
        if _is_recent(message):
            return _Whereabouts("it was published a moment ago; ask again")
        newest = f"no copy of it is among the newest {SEARCHED_MAX} messages of the deliveries"
        copies = newest if stored.cut else await _why_no_copy(access, tenant, kind)
        return _Whereabouts(f"it was published at {instant_text(message.stored_at)}, and {copies}")
    if stored.cut or published.cut:
        return _Whereabouts(
            f"it is not among the newest {SEARCHED_MAX} messages of the streams", stored=False
        )
    return _Whereabouts(NEVER_PUBLISHED, stored=False)


async def _why_no_copy(access: Access, tenant: str, kind: str) -> str:
    """The reason why an event of that type has no copies, by the configurations as they are now."""
    subscribers, configurations = list[str](), StoredConfigurations(access.js, access.names)
    for receiver, stored in (await configurations.all(tenant)).items():
        with suppress(InvalidPolicy):
            policy, _ = parse(stored.raw, strict=False)
            if any(matches(each, kind) for each in policy.events) and (policy.filter or policy.region):
                subscribers.append(receiver)
    if subscribers:
        return f"a filter or region kept it from {', '.join(sorted(subscribers)[:RECEIVERS_NAMED_MAX])}"
    return f"no receiver of {tenant} subscribed to {kind}"


def _stray(message: StoredMessage) -> str:
    return f"it was published to {message.subject}: no receiver gets it, since no name contains * or >"


def _is_recent(message: StoredMessage) -> bool:
    return time.time() - message.stored_at < ON_ITS_WAY_S


async def _newest(
    js: JetStream, stream: str, subject: str, event: str, read: Callable[[StoredMessage], Event]
) -> _Searched:
    """Search the newest messages of a stream."""
    end = (await js.existing_stream(stream)).last
    start = max(1, end - SEARCHED_MAX + 1)
    found = await _search(js, stream, subject, start, lambda it: it.id == event, read)
    first = (await js.read(stream, subject, 1, batch=1, max_bytes=1)).messages if start > 1 else []
    return _Searched(found.message, found.cut or any(each.position < start for each in first))


async def _search(
    js: JetStream,
    stream: str,
    subject: str,
    start: int,
    wanted: Callable[[Event], bool],
    read: Callable[[StoredMessage], Event],
) -> _Searched:
    """Search the messages of a subject from `start` on."""
    seen, size, pending = 0, 0, 1
    while pending:
        page = await js.read(stream, subject, start, PAGE_MESSAGES, PAGE_BYTES)
        for message in page.messages:
            if wanted(read(message)):
                return _Searched(message, cut=False)
        if not page.messages:
            break
        start, pending = page.messages[-1].position + 1, page.pending
        seen, size = seen + len(page.messages), size + sum(len(each.data) for each in page.messages)
        if pending and (seen >= SEARCHED_MAX or size >= SEARCHED_BYTES_MAX):
            return _Searched(None, cut=True)
    return _Searched(None, cut=False)
