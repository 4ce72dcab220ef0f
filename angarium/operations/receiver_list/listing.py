"""Lists receivers: each with a short configuration, its phase, its waiting events, and its throughput.

Phases and figures are those of the last snapshots, which nodes write every five seconds; the throughput is
that of the last seconds of the journal. No node is asked.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from actors.configuration.parsing import members_of, parse, rate_members
from actors.configuration.policy import RATES_MAX, Policy
from actors.errors import AngariumError, InvalidPolicy
from actors.ids import check_tenant
from actors.machine.pace.pace import NO_PACE_LIMITS, PaceLimits
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.scheduling.phases import Phase
from actors.machine.state import State
from actors.status import held_back
from actors.times_as_text import age_text, instant_text_or_none
from angarium import logs
from angarium.access import Access
from angarium.delivery.http_exchange.target import InvalidTarget, parse_target
from angarium.operations.failures import NotDone, operation
from angarium.operations.receiver_list.health import ReceiverHealth
from angarium.operations.receiver_list.throughput import BacklogThroughput, Counts, RecentCounts, throughput
from streams.bounded_gather import in_turns
from streams.buckets.stored_configurations import Configuration, StoredConfigurations
from streams.installation.partitions import shard_of_receiver
from streams.installation.topology import Names
from streams.journal_feed.recent_flushes import RecentFlushes
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.observation.receiver_snapshots import (
    BacklogCount,
    ReceiverSnapshot,
    SettledSince,
    ShardProgress,
    count_since,
    count_waiting,
    last_snapshot_in,
    progress_by_shard,
    receiver_snapshots,
    shard_count,
    waiting_events,
)

COUNTED_AT_ONCE = 32
RATE_MAX = 1e100
"""Largest limit that is shown; a larger one is shown as `?`, since one of 400 digits is not even a float."""
OVERTAKEN_COUNTED_MAX = 256
"""Receivers whose events are counted in the stream, each with a request, because the journal is ahead of
their snapshots. The others show no number of waiting events."""
OLD_AFTER_S = 15.0
"""Age from which on a note says how old the figures are; they are always a few seconds old."""
_LOST = Policy(url="https://unknown.invalid/")
"""Stands for the older configuration that is in force if the newest is invalid."""


class ListedReceiver(ReceiverHealth, frozen=True, kw_only=True):
    """A receiver in a list, with its health; None: unknown.

    `signed`: it has secrets; `problem`: why its configuration is not in force. Instants are RFC 3339.
    """

    receiver: str
    url: str
    order: str
    rate: str | None
    signed: bool
    paused: bool
    problem: str | None


class ReceiverFindings(Struct):
    """Everything found out about one receiver; `snapshot` is None if only its configuration is known.

    `is_unknown`: its snapshot is overtaken, and its waiting events are not counted.
    """

    name: str
    raw: bytes
    snapshot: ReceiverSnapshot | None = None
    phase: Phase | None = None
    waiting: BacklogCount | None = None
    policy: Policy | None = None
    arrived: int | None = None
    is_unknown: bool = False
    throughput: BacklogThroughput | None = None


class FoundReceivers(Struct, frozen=True):
    """Everything about the receivers; the members are those of `Overview`."""

    rows: list[ReceiverFindings]
    notes: list[str]
    exist: bool
    age_s: float = 0.0


class Overview(Struct, frozen=True):
    """The receivers, and notes about all of them.

    - `exist`: there are some, in any phase.
    - `age_s`: the age of the oldest snapshots that something has happened since.
    """

    rows: list[ListedReceiver]
    notes: list[str]
    exist: bool
    age_s: float = 0.0


@operation
async def overview(
    access: Access,
    tenant: str | None,
    phases: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    recent_counts: RecentCounts | None = None,
) -> Overview:
    """All receivers, or a tenant's, or those in one of these phases, or `only` some, in alphabetical order.

    For `only` some, only their snapshots are read, and the progress of their shards.
    """
    found = await find_receivers(access, tenant, phases, only=only, recent_counts=recent_counts)
    rows = [listed(row) async for row in in_turns(found.rows)]
    return Overview(rows, found.notes, found.exist, found.age_s)


async def find_receivers(
    access: Access,
    tenant: str | None,
    phases: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    recent_counts: RecentCounts | None = None,
) -> FoundReceivers:
    """Find out everything about the receivers; most of it is unknown if NATS cannot tell.

    With a `recent_counts` that is kept, each call reads only the new part of the journal. Raises InvalidName
    and `Unavailable`.
    """
    if tenant is not None:
        check_tenant(tenant)
    js, names = access.js, access.names
    configurations = StoredConfigurations(js, names)
    found = (
        await configurations.all(tenant or "*") if only is None else await configurations.get_many(list(only))
    )
    try:
        count = await shard_count(js, names)
        shards = await progress_by_shard(js, names, _shards_of(only, count))
        known = await _snapshots(js, names, tenant, only, count)
        rows = await _rows(found, known, shards, count)
        recent_counts = recent_counts or RecentCounts(RecentFlushes(js, names))
        await recent_counts.read_on()
        await _note_resumed(rows, shards, recent_counts)
        rows = [row async for row in in_turns(rows) if not phases or row.phase in phases]
        await _forget_overtaken(rows, shards, recent_counts)
        await _count(js, names, rows, shards, recent_counts)
        await _measure(rows, recent_counts, time.time())
    except AngariumError as error:
        unknown = [ReceiverFindings(name, each.raw) for name, each in found.items()]
        return FoundReceivers(unknown, [f"phases and counts cannot be read: {error}"], bool(found))
    age_s = max((each.age_s for each in shards.values()), default=0.0)
    return FoundReceivers(rows, _notes([*shards.values()]) if rows else [], bool(found), round(age_s, 3))


def _shards_of(only: Collection[str] | None, count: int) -> Sequence[int]:
    """The shards of these receivers, or all of them."""
    if only is None or not count:
        return range(count)
    return sorted({shard_of_receiver(each, count) for each in only})


async def get_health(
    access: Access, receivers: Collection[str], recent_counts: RecentCounts | None = None
) -> dict[str, ReceiverHealth] | NotDone:
    """The health of these receivers, as far as they exist."""
    if not receivers:
        return {}
    found = await overview(access, None, only=receivers, recent_counts=recent_counts)
    if isinstance(found, NotDone):
        return found
    return {row.receiver: msgspec.convert(msgspec.structs.asdict(row), ReceiverHealth) for row in found.rows}


async def _snapshots(
    js: JetStream, names: Names, tenant: str | None, only: Collection[str] | None, shards: int
) -> dict[str, ReceiverSnapshot]:
    if only is None:
        return {each.receiver: each async for each in receiver_snapshots(js, names, tenant or "*")}
    if not shards:
        return {}
    found = await asyncio.gather(
        *(last_snapshot_in(js, names, each, shard_of_receiver(each, shards)) for each in only)
    )
    return {each.receiver: each for each in found if each is not None}


async def _rows(
    found: dict[str, Configuration],
    known: dict[str, ReceiverSnapshot],
    shards: Mapping[int, ShardProgress],
    shard_total: int,
) -> list[ReceiverFindings]:
    """Rows from the snapshots of the receivers."""
    now, rows = time.time(), []
    async for name, configuration in in_turns(found.items()):
        row = ReceiverFindings(name, configuration.raw)
        snapshot = known.get(name) or _without_snapshot(name, shard_total)
        if snapshot.state is not None and snapshot.shard in shards:
            row.snapshot = snapshot
            row.policy = policy_of(row.raw)
            row.phase = phase_of(snapshot.state, row.policy, now)
            row.waiting = waiting_events(snapshot, shards[snapshot.shard])
        rows.append(row)
    return rows


def _without_snapshot(receiver: str, shards: int) -> ReceiverSnapshot:
    """A receiver that never got an event, or whose shard has not run since."""
    shard = shard_of_receiver(receiver, shards) if shards else 0
    return ReceiverSnapshot(receiver, shard, State(receiver=receiver))


async def _note_resumed(
    rows: list[ReceiverFindings], shards: Mapping[int, ShardProgress], recent_counts: RecentCounts
) -> None:
    """Show receivers as active that were resumed since their snapshots, which have an older phase."""
    async for row in in_turns(rows):
        state = None if row.snapshot is None else row.snapshot.state
        if row.snapshot is None or state is None or row.policy is None or row.policy.paused:
            continue
        resumed_at = recent_counts.counts.get(row.name, Counts()).resumed_at
        ahead_since = shards[row.snapshot.shard].ahead_since
        if resumed_at and ahead_since is not None and resumed_at >= ahead_since:
            row.phase = "active" if state.open or state.parked else "idle"


async def _forget_overtaken(
    rows: list[ReceiverFindings], shards: Mapping[int, ShardProgress], recent_counts: RecentCounts
) -> None:
    """Clear the number of waiting events if the journal is ahead of its snapshot."""
    overtaken = [
        row
        async for row in in_turns(rows)
        if row.waiting is not None
        and row.snapshot is not None
        and (ahead_since := shards[row.snapshot.shard].ahead_since) is not None
        and recent_counts.last_at.get(row.name, 0.0) >= ahead_since
    ]
    for row in overtaken:
        row.waiting = None
    for row in overtaken[OVERTAKEN_COUNTED_MAX:]:
        row.is_unknown = True


async def _count(
    js: JetStream,
    names: Names,
    rows: list[ReceiverFindings],
    shards: Mapping[int, ShardProgress],
    recent_counts: RecentCounts,
) -> None:
    """Count, in the stream, the waiting and the new events of receivers whose snapshots do not say it."""
    uncounted = [row async for row in in_turns(rows) if row.waiting is None and not row.is_unknown]
    left = iter([row for row in uncounted if row.snapshot is not None])
    first = await js.first_since(names.deliveries, ALL_SUBJECTS, recent_counts.since)

    async def count() -> None:
        for row in left:
            assert row.snapshot is not None
            counts = recent_counts.counts.get(row.name, Counts())
            in_order = row.policy is not None and row.policy.order == "strict"
            since = SettledSince(frozenset(counts.positions), counts.discarded_to, in_order)
            row.waiting = await count_waiting(js, names, row.snapshot, shards[row.snapshot.shard], since)
            if row.waiting.count and row.phase == "idle":
                row.phase = "active"  # Its snapshot is older than its waiting events.
            row.arrived = 0 if first is None else await count_since(js, names, row.snapshot, first.position)

    await asyncio.gather(*(count() for _ in range(COUNTED_AT_ONCE)))


async def _measure(rows: list[ReceiverFindings], recent_counts: RecentCounts, now: float) -> None:
    async for row in in_turns(rows):
        if row.waiting is not None and row.phase is not None:
            oldest_at = row.waiting.oldest_at
            row.throughput = throughput(
                recent_counts.counts.get(row.name, Counts()), recent_counts.span_s, arrived=row.arrived,
                waiting=row.waiting.count, oldest_s=0.0 if oldest_at is None else now - oldest_at,
                phase=row.phase, policy=row.policy,
                learnt=learnt_limits(row.snapshot.state if row.snapshot else None, row.policy, now),
            )  # fmt: skip


def learnt_limits(state: State | None, policy: Policy | None, now: float) -> PaceLimits:
    """The limits that a receiver's answers taught, by its snapshot."""
    return NO_PACE_LIMITS if state is None or policy is None else pace_limits(state, policy, now)


def policy_of(raw: bytes) -> Policy | None:
    """The policy in a configuration; None if it cannot be used."""
    try:
        return parse(raw, strict=False)[0]
    except InvalidPolicy:
        return None


def phase_of(state: State, policy: Policy | None, now: float) -> Phase:
    """The phase by a snapshot; without a valid policy an older one is in force, if there was one.

    Only nodes know their profiles; the alert says that they cannot use the configuration.
    """
    if any(each.kind == "misconfigured" and each.raised for each in state.alerts):
        return "misconfigured"
    if policy is None and state.opened:
        policy = _LOST
    if held := held_back(state, policy, now):
        return held
    return "active" if state.open or state.parked else "idle"


def _notes(shards: list[ShardProgress]) -> list[str]:
    """Notes about the shards that no live node owns, and about old phases."""
    unowned = [each for each in shards if not each.owned]
    notes = [f"no live node owns {len(unowned)} of {len(shards)} shards"] if unowned else []
    old = [each.age_s for each in shards if each.age_s >= OLD_AFTER_S]
    if old:
        age = age_text(max(old))
        notes.append(f"the phases in {len(old)} of {len(shards)} shards are up to {age} old")
    return notes


def listed(row: ReceiverFindings) -> ListedReceiver:
    """The row of a receiver; if its configuration is unreadable, with the remaining columns."""
    waits, state = row.waiting, row.snapshot and row.snapshot.state
    problems: list[str] = []
    members: dict[str, Any] = {}
    try:
        members = members_of(row.raw)
        problems = parse(row.raw, strict=False)[1]
    except InvalidPolicy as error:
        problems = error.problems
    rate = members.get("rate")
    return ListedReceiver(
        receiver=row.name,
        url=url_without_query(members.get("url", "")),
        order=members.get("order", "strict"),
        rate=None if rate is None else _rate(rate),
        signed=bool(members.get("secrets")),
        paused=members.get("paused", False),
        problem="; ".join(problems) or None,
        phase=row.phase,
        waiting=waits.count if waits else None,
        oldest_at=instant_text_or_none(waits.oldest_at) if waits else None,
        failing_since=instant_text_or_none(state.failing_since) if state else None,
        disabled=(state.disabled or None) if state else None,
        in_per_s=row.throughput.in_per_s if row.throughput else None,
        out_per_s=row.throughput.out_per_s if row.throughput else None,
        empty_in_s=row.throughput.empty_in_s if row.throughput else None,
        limited_by=row.throughput.limited_by if row.throughput else None,
    )


def url_without_query(url: object) -> str:
    """The URL without its query; one that cannot be parsed is hidden, since a password may be in it."""
    try:
        parse_target(text := str(url))
    except InvalidTarget:
        return logs.HIDDEN if url else ""
    return logs.redact(text)


def _short(number: Any) -> str:
    """A number of a configuration that was not checked."""
    return f"{number:g}" if isinstance(number, int | float) and abs(number) < RATE_MAX else "?"


def _rate(rate: Any) -> str:
    if isinstance(rate, list):
        return " and ".join(_rate(each) for each in rate[:RATES_MAX] if not isinstance(each, list)) or "?"
    members = rate_members(rate) if isinstance(rate, str) else rate
    match members:
        case {"limit": int() | float() as limit, **rest} if abs(limit) < RATE_MAX:
            text = f"{limit:g}/{rest.get('per', 'second')}"
            return text if (margin := rest.get("margin", 1)) == 1 else f"{text}, margin {_short(margin)}"
        case _:
            return "?"
