"""Checks the receivers: counts the unhealthy ones, and names the worst few.

It reads the snapshots that nodes write every five seconds, and asks no node. It keeps only one line for each
unhealthy receiver, so 100,000 receivers take a few seconds and no more memory than their configurations.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from heapq import merge
from itertools import islice
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy, Unusable
from actors.machine.facts import DISABLED_WHY
from actors.machine.scheduling.phases import Phase
from actors.machine.state import State
from actors.times_as_text import age_text
from angarium.operations.installation.doctor.findings import (
    READ_STATE,
    Finding,
    ReceiverCondition,
    are,
    ok,
    problem,
    warning,
)
from angarium.operations.receiver_list.listing import learnt_limits, phase_of, policy_of
from angarium.operations.receiver_list.throughput import Bottleneck, Counts, RecentCounts, bottleneck_of
from angarium.quantities import count_text
from streams.buckets.stored_configurations import Configuration, StoredConfigurations
from streams.installation.topology import Installation
from streams.journal_feed.recent_flushes import RecentFlushes
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.observation.receiver_snapshots import (
    BacklogCount,
    ReceiverSnapshot,
    ShardProgress,
    count_waiting,
    receiver_snapshots,
    shard_progress,
)

RECEIVERS_SHOWN_MAX = 10
FAILING_AFTER_S = 60.0
"""Time without a success after which a receiver counts as failing."""
THROTTLED_AFTER_S = 600.0
BEHIND_AFTER_S = 600.0
"""Age of the oldest event from which on a receiver is behind; a number of events would say little: a thousand
may be a second's work, or a day's."""
PARSED_IN_A_TURN_MAX = 256
CHECKED_RECEIVERS_MAX = 200
"""Receivers whose backlog is checked in the stream, to find the worst that are behind."""

WORST_FIRST: tuple[ReceiverCondition, ...] = get_args(ReceiverCondition)
_RESUME, _INSPECT = "angarium receiver resume {}", "angarium inspect {}"
_READ_STATE = (READ_STATE, _INSPECT)
_END_PAUSE = ("resume it to end the pause that it asked for", _RESUME)
_REMEDIES: dict[ReceiverCondition, tuple[str, str]] = {
    "misconfigured": _READ_STATE,
    "disabled": ("resume it when it works again", _RESUME),
    "unverified": _READ_STATE,
    "offline": _READ_STATE,
    "failing": _READ_STATE,
    "throttled": _END_PAUSE,
}
"""The remedy, and the command for it."""
REMEDIES_BEHIND: dict[Bottleneck | None, tuple[str, str]] = {
    "rate": (
        "raise its rate, which is used up, if the receiver can take more",
        "angarium receiver set {} --rate …",
    ),
    "pace": (
        "find in its state what its answers taught; if the receiver can take more, resume it to forget that",
        _RESUME,
    ),
    "latency": ("find in its state how slowly it answers", _INSPECT),
    "batch": _READ_STATE,
    "node": ("find in its state why it waits for our nodes or its host", _INSPECT),
    "failure": _READ_STATE,
    "throttle": _END_PAUSE,
    "pause": ("resume it to end the pause", _RESUME),
    "unknown": _READ_STATE,
    None: _READ_STATE,
}
"""The remedy for a receiver that is far behind, by what limits it."""


class UnhealthyReceiver(Struct, frozen=True):
    """A receiver that is unhealthy since a time, by its snapshot."""

    condition: ReceiverCondition
    since: float
    phase: Phase
    snapshot: ReceiverSnapshot
    policy: Policy | None = None


async def check_receivers(
    js: JetStream,
    installation: Installation,
    on_snapshot: Callable[[ReceiverSnapshot], None] = lambda snapshot: None,
) -> list[Finding]:
    """Find the unhealthy receivers. Raises `Unavailable` and `ApiError`.

    `on_snapshot`: gets each snapshot that is read.
    """
    configurations = await StoredConfigurations(js, installation.names).all()
    findings = await _invalid(configurations)
    total = are(len(configurations), "receiver")
    try:
        shards = await shard_progress(js, installation.names, installation.shards)
        found = await _unhealthy(js, installation, configurations, on_snapshot)
    except NotPermitted as error:
        return [*findings, warning("receivers", f"{total} configured; their state cannot be read: {error}")]
    except Unusable as error:
        return [*findings, problem("receivers", str(error))]
    shown = await _worst(js, installation, found, shards)
    age_s = max((each.age_s for each in shards), default=0.0)
    as_of = f"as of {age_text(age_s)} ago"
    if not found:
        return findings or [
            ok("receivers", f"{total} configured; none has failed for a minute or is far behind ({as_of})")
        ]
    counts = Counter(each.condition for each in found.values())
    each = ", ".join(f"{counts[condition]} {condition}" for condition in WORST_FIRST if counts[condition])
    text = f"{len(found)} of {len(configurations)} receivers are unhealthy ({as_of}): {each}"
    more = ("list them all", "angarium receiver list") if len(found) > len(shown) else ("", "")
    return [*findings, warning("receivers", text, *more), *shown]


async def _invalid(configurations: dict[str, Configuration]) -> list[Finding]:
    findings: list[Finding] = []
    more = 0
    for count, (name, configuration) in enumerate(configurations.items(), 1):
        if count % PARSED_IN_A_TURN_MAX == 0:
            await asyncio.sleep(0)  # Else the server takes us for dead before the last one is read.
        try:
            parse(configuration.raw, strict=False)
        except InvalidPolicy as error:
            if len(findings) < RECEIVERS_SHOWN_MAX:
                text = f"the configuration of {name} is not in force: {error}"
                line = problem("receivers", text, "put a valid one", f"angarium receiver put {name} …")
                findings.append(replace(line, receiver=name, condition="misconfigured"))
            else:
                more += 1
    if more:
        findings.append(problem("receivers", f"{more} more configurations are not in force"))
    return findings


async def _unhealthy(
    js: JetStream,
    installation: Installation,
    configurations: dict[str, Configuration],
    on_snapshot: Callable[[ReceiverSnapshot], None],
) -> dict[str, UnhealthyReceiver]:
    """All receivers that are unhealthy by their snapshots, by name."""
    now = time.time()
    found: dict[str, UnhealthyReceiver] = {}
    async for snapshot in receiver_snapshots(js, installation.names):
        on_snapshot(snapshot)
        configuration = configurations.get(snapshot.receiver)
        receiver = None
        if configuration is not None and snapshot.state is not None:
            receiver = unhealthy_receiver(snapshot, snapshot.state, configuration.raw, now)
        if receiver is not None:
            found[snapshot.receiver] = receiver
        else:
            found.pop(snapshot.receiver, None)
    return found


def unhealthy_receiver(
    snapshot: ReceiverSnapshot, state: State, raw: bytes, now: float
) -> UnhealthyReceiver | None:
    """The condition of a receiver; None if it is healthy. Most receivers need one comparison."""
    oldest_at = _oldest_at(state)
    unproven_since = state.handshake.failing_since if state.handshake else None
    fails = state.failing_since is not None or unproven_since is not None
    if not state.disabled and not fails and state.throttled_until <= now and not oldest_at:
        return None
    policy = policy_of(raw)
    phase = phase_of(state, policy, now)
    failing_s = state.failing_s(now)
    behind = oldest_at and now - oldest_at > BEHIND_AFTER_S
    match phase:
        case "misconfigured" if policy is None:
            return None  # The finding about its configuration says so.
        case "misconfigured":
            return UnhealthyReceiver(phase, oldest_at or now, phase, snapshot)
        case "disabled":
            last = state.last.at if state.last else now
            return UnhealthyReceiver(phase, state.disabled_at or state.failing_since or last, phase, snapshot)
        case "offline":
            return UnhealthyReceiver(phase, state.failing_since or now, phase, snapshot, policy)
        case "unverified" if unproven_since is not None and now - unproven_since > FAILING_AFTER_S:
            return UnhealthyReceiver(phase, unproven_since, phase, snapshot)
        case _ if failing_s > FAILING_AFTER_S and phase != "paused":
            return UnhealthyReceiver("failing", now - failing_s, phase, snapshot)
        case "throttled" if state.throttled_until - now > THROTTLED_AFTER_S:
            return UnhealthyReceiver("throttled", state.last.at if state.last else now, phase, snapshot)
        case _ if behind:
            return UnhealthyReceiver("behind", oldest_at, phase, snapshot, policy)
    return None


def _oldest_at(state: State) -> float:
    """The earliest time at which the oldest waiting event was accepted; 0.0 if none is known."""
    accepted = [each.accepted_at for each in state.open]
    if state.parked and not accepted and state.waiting_since is not None:
        accepted.append(state.waiting_since)
    return min(accepted, default=0.0)


async def _worst(
    js: JetStream,
    installation: Installation,
    found: dict[str, UnhealthyReceiver],
    shards: list[ShardProgress],
) -> list[Finding]:
    """A line for each of the worst. A receiver that has caught up is removed from `found`."""
    now, lines = time.time(), list[Finding]()
    recent_counts = RecentCounts(RecentFlushes(js, installation.names))
    if _in_condition(found, "behind"):
        await recent_counts.read_on()
    ranked = [sorted(_in_condition(found, each), key=lambda receiver: receiver.since) for each in WORST_FIRST]
    for receiver in islice(
        merge(*ranked, key=lambda receiver: WORST_FIRST.index(receiver.condition)), CHECKED_RECEIVERS_MAX
    ):
        name = receiver.snapshot.receiver
        waits = await count_waiting(
            js, installation.names, receiver.snapshot, shards[receiver.snapshot.shard]
        )
        if receiver.condition == "behind" and now - (waits.oldest_at or now) <= BEHIND_AFTER_S:
            del found[name]
        else:
            text = f"{name} {_condition_text(receiver, now)}; {_waiting_text(waits, now)}"
            remedy, command = remedy_for(receiver, waits, recent_counts, now)
            line = warning("receivers", text, remedy, command.format(name))
            lines.append(replace(line, receiver=name, condition=receiver.condition))
        if len(lines) == RECEIVERS_SHOWN_MAX:
            break
    return lines


def remedy_for(
    receiver: UnhealthyReceiver, waits: BacklogCount, recent_counts: RecentCounts, now: float
) -> tuple[str, str]:
    """The remedy for a receiver; if it is far behind, for what limits it."""
    if receiver.condition != "behind":
        return _REMEDIES[receiver.condition]
    limited_by = bottleneck_of(
        recent_counts.counts.get(receiver.snapshot.receiver, Counts()), recent_counts.span_s,
        waiting=waits.count,
        oldest_s=now - (waits.oldest_at or now), phase=receiver.phase, policy=receiver.policy,
        learnt=learnt_limits(receiver.snapshot.state, receiver.policy, now),
    )  # fmt: skip
    return REMEDIES_BEHIND[limited_by]


def _in_condition(
    found: dict[str, UnhealthyReceiver], condition: ReceiverCondition
) -> list[UnhealthyReceiver]:
    return [each for each in found.values() if each.condition == condition]


def _condition_text(receiver: UnhealthyReceiver, now: float) -> str:
    state, since = receiver.snapshot.state, age_text(now - receiver.since)
    match receiver.condition:
        case "misconfigured":
            return f"has had a configuration that no node can use, for {since}"
        case "disabled":
            reason = state.disabled if state else ""
            return f"has been disabled for {since} ({DISABLED_WHY.get(reason, reason)})"
        case "unverified":
            return f"has not proved itself for {since}"
        case "offline" if receiver.policy is not None and receiver.policy.offline.ping:
            return f"is offline, failing for {since}, and gets pings"
        case "offline":
            return f"is offline, failing for {since}"
        case "failing":
            return f"has been failing for {since}"
        case "throttled":
            until = state.throttled_until if state else now
            return f"is throttled for {age_text(until - now)} more"
        case "behind":
            return "is paused" if receiver.phase == "paused" else "is far behind"


def _waiting_text(waits: BacklogCount, now: float) -> str:
    if waits.oldest_at is None:
        return "no event waits"
    wait = "waits" if waits.count == 1 else "wait"
    return f"{count_text(waits.count, 'event')} {wait}, the oldest for {age_text(now - waits.oldest_at)}"
