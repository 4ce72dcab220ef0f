"""The history of a receiver in words, including its configurations."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct

from actors.configuration.policy import Offline
from actors.machine.facts import DISABLED_WHY
from actors.machine.scheduling.pace_in_words import lesson_words
from actors.times_as_text import age_text
from angarium.ledger.configurations import policy_of
from angarium.ledger.ledger_answers import Configured, RecordedChange, RecordedPace
from angarium.ledger.queries import ROWS_MAX
from angarium.ledger.schema import END_OF_TIME
from angarium.operations.failures import operation
from angarium.operations.ledger_queries.configuration_changes import changed_members
from angarium.operations.ledger_queries.ledger_access import (
    LedgerLag,
    OpenLedger,
    ledger_lag,
    number_of,
    text,
)
from angarium.operations.ledger_queries.page_start import PageStart, next_start
from angarium.quantities import count_text

_Entry = tuple[int, str, str, dict[str, Any]]


class HistoryEntry(Struct, frozen=True):
    """One thing that happened to a receiver. `what` is a sentence for people."""

    at: str
    kind: str
    what: str
    detail: dict[str, Any]


class ReceiverHistory(Struct, frozen=True):
    """The history of a receiver, the oldest first; `now` is its condition after the last fact."""

    receiver: str
    entries: list[HistoryEntry]
    now: str
    ledger: LedgerLag


CHANGES_BEFORE = 4
"""Changes that are read from before: a fact `resumed` may be the second of one resume."""
SAME_RESUME_MS = 1000
"""Time within which two facts `resumed` of a receiver belong to one resume."""

_WORDS = {
    "opened": "taken up by a node",
    "paused": "paused",
    "handshake_succeeded": "proved itself",
    "resumed": "resumed: nothing holds it back any more",
    "retargeted": "its URL was changed; its failures are cleared",
    "repaired": "its events are read again, since the stream had lost its tail",
}
_UNKNOWN_CLIENT = "an unknown NATS client"


class FoundHistory(Struct, frozen=True):
    """Some of the history, the oldest first, and where it continues; None if that is all."""

    receiver: str
    entries: list[HistoryEntry]
    now: str
    next: PageStart | None
    ledger: LedgerLag


@operation
async def read_history(ledger: OpenLedger, receiver: str, since: int, until: int) -> ReceiverHistory:
    """The history of a receiver between two times. Fails as invalid and not_found."""
    entries, now = await _entries_and_condition(ledger, receiver, since, until, ROWS_MAX)
    return ReceiverHistory(receiver, list(map(_shown, entries)), now, await ledger_lag(ledger))


@operation
async def history_page(
    ledger: OpenLedger, receiver: str, since: int, until: int, start: PageStart | None, limit: int
) -> FoundHistory:
    """One page of the history, from a place on. Fails as invalid and not_found."""
    begin, seen = (max(since, start.at), start.skip) if start else (since, 0)
    entries, now = await _entries_and_condition(ledger, receiver, begin, until, seen + limit + 1)
    left = entries[start.skipped([at for at, *_ in entries]) :] if start else entries
    page = left[:limit]
    following = next_start([at for at, *_ in page], start) if len(left) > limit else None
    return FoundHistory(receiver, list(map(_shown, page)), now, following, await ledger_lag(ledger))


def _shown(entry: _Entry) -> HistoryEntry:
    at, kind, what, detail = entry
    return HistoryEntry(str(text(at)), kind, what, detail)


async def _entries_and_condition(
    ledger: OpenLedger, receiver: str, since: int, until: int, limit: int
) -> tuple[list[_Entry], str]:
    """The first entries between two times, and the receiver's current condition.

    No more of each kind is read: a receiver may have had a configuration a second.
    """
    number = await number_of(ledger, receiver)
    queries = ledger.queries
    now = await queries.standing(number)
    read = _Read(
        changes=await _changes(ledger, number, since, until, limit),
        configurations=await queries.configurations(number, since, until, limit),
        before=await queries.configurations_before(number, since, 1),
        claims=await queries.unclean_claims(
            now.shard, max(since, await queries.first_known(number)), until, limit
        ),
        paces=await queries.pace_changes(number, since, until, limit),
    )
    entries = await asyncio.to_thread(_entries, read, limit)
    condition = "not paused, disabled or failing"
    if await _is_removed(ledger, number):
        condition = "removed"
    elif now.disabled:
        condition = f"disabled: {DISABLED_WHY.get(now.disabled, now.disabled)}"
    elif now.paused:
        condition = "paused"
    elif now.failing_since:
        error = now.last_error or (f"HTTP {now.last_status}" if now.last_status else "no answer")
        attempts = count_text(now.failures, "attempt")
        condition = f"failing since {text(now.failing_since)}, {attempts}, the last: {error}"
    return entries, condition


async def _is_removed(ledger: OpenLedger, number: int) -> bool:
    """True if its last configuration was removed; if none is known, if its last facts say so."""
    configurations = await ledger.queries.configurations_before(number, END_OF_TIME, 1)
    if configurations:
        return configurations[0].document is None
    return await ledger.queries.last_existence(number) == "removed"


class _Read(Struct, frozen=True):
    """The rows of which a history is made; `before` has the last configuration before all others."""

    changes: list[RecordedChange]
    configurations: list[Configured]
    before: list[Configured]
    claims: list[tuple[int, str]]
    paces: list[RecordedPace]


async def _changes(
    ledger: OpenLedger, number: int, since: int, until: int, limit: int
) -> list[RecordedChange]:
    """The first changes that have an entry: at least `limit`, or all."""
    before = await ledger.queries.changes_before(number, since, CHANGES_BEFORE)
    most = limit
    while True:
        changes = await ledger.queries.changes(number, since, until, most)
        began = {each.at for each in changes if each.kind == "opened"}
        entries = [
            each
            for each in _once([*before, *changes])
            # Its first URL is not a change.
            if each.at >= since and (each.kind != "retargeted" or each.at not in began)
        ]
        if len(entries) >= limit or len(changes) < most:
            return entries
        most *= 4


def _entries(read: _Read, limit: int) -> list[_Entry]:
    """The first entries in their order. Only these are put into words, which costs time."""
    known = [*read.before, *read.configurations]
    replaced = [None, *known][-1 - len(read.configurations) : -1]
    found: list[tuple[int, Callable[[], _Entry]]] = [
        (each.at, partial(_entry, each, known)) for each in read.changes
    ]
    found += [
        (each.at, partial(_put, each, before))
        for each, before in zip(read.configurations, replaced, strict=True)
    ]
    found += [(at, partial(_moved, at, node)) for at, node in read.claims]
    found += [(each.at, partial(_paced, each)) for each in read.paces]
    return [entry() for _, entry in sorted(found, key=lambda each: each[0])[:limit]]


def _put(each: Configured, before: Configured | None) -> _Entry:
    """The entry of a configuration. `first_revision`: it has changes that are not recorded, from there on."""
    detail: dict[str, Any] = {"revision": each.revision}
    if each.changed_by:
        detail["by"] = each.changed_by
    by = each.changed_by or _UNKNOWN_CLIENT
    if each.document is None:
        return each.at, "configured", f"configuration removed, by {by}", detail
    old = None if before is None else before.document
    changes = [] if old is None else changed_members(old, each.document)
    if changes:
        detail["changes"] = changes
    members = "; ".join(map(str, changes))
    if not _lacks_changes(each, before):
        what = "put" if old is None else "changed" if changes else "put again, unchanged"
        revision = f"(revision {each.revision}){members and ': '}{members}"
        return each.at, "configured", f"configuration {what} {revision}, by {by}", detail
    first = 1 if before is None else before.revision + 1
    detail["first_revision"] = first
    revisions = f"revisions {first} to {each.revision}" if before else f"revisions up to {each.revision}"
    what = members if changes else "nothing in the end" if old is not None else "not known what"
    sentence = (
        f"configuration changed ({revisions}): {what}, the last by {by}; who made the others is not known"
    )
    return each.at, "configured", sentence, detail


def _lacks_changes(each: Configured, before: Configured | None) -> bool:
    """True if there were changes between two configurations of a receiver that are not recorded."""
    if each.replaced is None:
        return False
    if before is None:
        return each.replaced > 0
    if each.replaced == 0:
        return before.document is not None
    return each.replaced != before.revision


def _moved(at: int, node: str) -> _Entry:
    return at, "claimed", f"its shard moved to {node}, from an owner that had died", {"node": node}


def _paced(each: RecordedPace) -> _Entry:
    detail = {
        "effective_limit": each.per_second, "limited_by": each.limited_by or None,
        "concurrency": each.in_flight, "concurrency_limited_by": each.in_flight_by or None,
    }  # fmt: skip
    what = lesson_words(each.pace, each.per_second, each.limited_by, each.in_flight, each.in_flight_by)
    return each.at, "pace_set", what, detail


def _once(changes: Iterable[RecordedChange]) -> Iterator[RecordedChange]:
    """Yield the changes, but one of both facts of a resume: the request's, and that of its configuration."""
    resumed_at = -SAME_RESUME_MS
    for each in changes:
        if each.kind == "resumed":
            if each.at - resumed_at < SAME_RESUME_MS:
                continue
            resumed_at = each.at
        elif each.kind in ("paused", "disabled"):
            resumed_at = -SAME_RESUME_MS
        yield each


def _entry(change: RecordedChange, configurations: list[Configured]) -> _Entry:
    detail = change.detail
    lasted = ""
    if since := detail.get("since"):
        lasted = f"; it {_outage(configurations, change.at, since, detail['failures'])}"
        detail = detail | {"since": text(since)}
    match change.kind, detail:
        case "disabled", {"reason": reason}:
            what = f"disabled: {DISABLED_WHY.get(reason, reason)}"
        case "removed", {"discarded": count}:
            what = f"removed: {_discarded(count, detail)}"
        case "forgot", {"discarded": count}:
            what = f"forgotten: {_discarded(count, detail)}"
        case "dead_lettered", {"sequence": sequence, "event_id": event}:
            what = f"event {sequence} skipped ({event})"
        case "missing", {"first": first, "last": last}:
            what = f"its events at {first} to {last} are gone from the stream"
        case "rate_set", {"per_second": rate, "burst": burst}:
            what = f"rate {_rate_text(rate, burst)}"
            for each in detail.get("others", ()):
                what += f", and {_rate_text(each['per_second'], each['burst'])}"
        case "rate_set", _:
            what = "no rate limit"
        case "transform_set", {"revision": revision}:
            what = f"bodies are shaped by the transform of revision {revision}"
        case "transform_set", _:
            what = "bodies are sent as published"
        case "transform_gone", {"sequence": sequence, "gone": gone, "revision": revision} if gone == revision:
            what = f"event {sequence} was tried again with other pseudonyms: their key was replaced"
        case "transform_gone", {"sequence": sequence, "gone": gone, "revision": revision}:
            what = f"event {sequence} was tried again {_shaped_by(revision)}: that of revision {gone} is gone"
        case "window_set", {"size": size}:
            what = f"dedup window of {size} events"
        case "handshake_succeeded", {"per_minute": per_minute}:
            what = f"proved itself, and allows {per_minute} requests a minute"
        case "alert_raised", {"alert": alert, "why": why}:
            what = f"alert {alert}: {why}"
        case "alert_recovered", {"alert": alert, "why": why}:
            what = f"the alert {alert} is over: {why}"
        case "recovered", _:
            what = f"accepts events again{lasted}"
        case "resumed", {"by": by}:
            return change.at, "resumed", f"resumed by {by}: nothing holds it back any more{lasted}", detail
        case kind, _:
            what = _WORDS.get(kind, kind) + lasted
    return change.at, change.kind, _with(detail, what), detail


def _rate_text(per_second: float, burst: int) -> str:
    return f"{per_second:g} a second, burst {burst}"


def _outage(configurations: list[Configured], ended_at: int, since: int, failures: int) -> str:
    """Say how long a receiver failed, and whether it was offline."""
    lasted_s = (ended_at - since) / 1000
    state = "was offline" if lasted_s >= _offline(configurations, ended_at).after_s else "failed"
    return f"{state}: {age_text(lasted_s)} without a success, {count_text(failures, 'failure')}"


def _discarded(count: int, detail: dict[str, Any]) -> str:
    """The number of discarded events, and apart from it that of the numbers left out after a crash."""
    what = f"{count_text(count, 'waiting event')} discarded"
    if left_out := detail.get("left_out"):
        were = "number was" if left_out == 1 else "numbers were"
        what += f"; {left_out} {were} left out, since a node that crashed may have given them"
    return what


def _shaped_by(revision: int) -> str:
    return f"with the transform of revision {revision}" if revision else "as published"


def _with(detail: dict[str, Any], what: str) -> str:
    """The sentence, and who asked for it, if that is known."""
    return f"{what}, by {detail['by']}" if detail.get("by") else what


def _offline(configurations: list[Configured], at: int) -> Offline:
    """The times until offline in the last configuration before a time."""
    put = next((each for each in reversed(configurations) if each.at <= at), None)
    policy = None if put is None else policy_of(put.document)
    return Offline() if policy is None else policy.offline
