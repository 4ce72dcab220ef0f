"""Decides which facts follow from a command. Pure; the rules that it keeps are in `actors.machine`."""

from typing import Any, assert_never

from msgspec.structs import replace

from actors.configuration.policy import Policy, Retry
from actors.configuration.transform import key_hash
from actors.ids import fraction, stable_hash
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import alert_changes
from actors.machine.alerts.returning import return_at
from actors.machine.backoff import backoff_s
from actors.machine.bucket import Bucket, emptied, with_limit
from actors.machine.event import Event
from actors.machine.handshake.deciding import handshake_ended, handshake_started
from actors.machine.handshake.proof import limit_in_force
from actors.machine.numbering import Numbered, with_number
from actors.machine.outcome import (
    ABORT,
    DISABLE,
    OUTAGE,
    Answered,
    Failed,
    Verdict,
    is_aborted,
    judge,
    retry_after_s,
)
from actors.machine.pace.combined import rules_in_force
from actors.machine.pace.pace import NOTHING_LEARNT
from actors.machine.state import OpenEvent, State, open_entry

FAILURES_IN_A_ROW_MAX = 5
"""Failures in a row, of any events, after which a receiver in relaxed order backs off as a whole."""
NEEDS_NO_CONFIRMATION = (
    f.Delivered, f.AttemptFailed, f.Throttled, f.EventsNumbered, f.EventDropped, f.Parked, f.Unparked,
    f.Buried, f.TurnedAway, f.AlertRaised, f.AlertRecovered, f.AlertsPublished, f.HandshakeFailed,
    f.PaceSet,
)  # fmt: skip
_NONE_OPEN: dict[int, OpenEvent] = {}
ERROR_LENGTH_MAX = 300
"""Length of the error text that a fact keeps, in characters."""


def decide(
    state: State, policy: Policy | None, command: c.Command, at: float, bucket: Bucket | None
) -> list[f.Fact]:
    """The facts that `command` results in at the time `at`, with the bucket as it is then."""
    receiver = state.receiver
    match command:
        case c.RecordOutcome():
            return _outcome(state, policy, command, at, bucket)
        case c.LearnPace():
            return [] if policy is None else _learnt(state, policy, command, at)
        case c.NoteOutage():
            return [_no_attempt(receiver, at, bucket)]
        case c.Adopt():
            return [] if policy is None else _adopt(state, policy, command, at, bucket)
        case c.OpenReceiver(position, window, removal):
            return [f.Opened(receiver=receiver, at=at, position=position, window=window, removal=removal)]
        case c.GiveUpEvents():
            return [_given_up(state, command, at, bucket)]
        case c.DropDuplicate(event):
            return [f.EventDropped(receiver=receiver, position=event.position, id=event.id)]
        case c.NumberEvents(events):
            return [f.EventsNumbered(receiver=receiver, events=with_their_numbers(state, events))]
        case c.StartAttempt(events):
            numbered = with_their_numbers(state, events)
            return [f.Started(receiver=receiver, events=numbered, at=at, bucket=bucket)]
        case c.StartPing():
            return [f.Pinged(receiver=receiver, at=at, bucket=bucket)]
        case c.StartHandshake():
            return [] if policy is None else [handshake_started(state, policy, at, bucket)]
        case c.RecordHandshake():
            return [] if policy is None else handshake_ended(state, policy, command, at, bucket)
        case c.ParkReceiver():
            return _parked(state, command, at)
        case c.UnparkReceiver():
            return [f.Unparked(receiver=receiver, at=at)] if state.parked else []
        case c.ResumeReceiver(by):
            return [f.Resumed(receiver=receiver, at=at, by=by)]
        case c.RemoveReceiver(position, waiting, removal, source, keys, left_out):
            return [f.Removed(
                receiver=receiver, at=at, position=position, bucket=bucket, removal=removal, source=source,
                keys=keys, discarded=waiting + len(state.open), left_out=left_out,
                next_sequence=state.frontier.sequence + waiting + left_out + 1,
            )]  # fmt: skip
        case c.ForgetBacklog():
            return [_forgot(state, command, at, bucket)]
        case c.MissEvents(first, last, posted, source):
            left_out = 0 if last <= state.frontier.position else max(1, posted)
            return [f.Missing(
                receiver=receiver, at=at, first=first, last=last, bucket=bucket, source=source,
                next_sequence=state.frontier.sequence + left_out + 1,
            )]  # fmt: skip
        case c.EraseOpenEvent() | c.EraseWaitingEvent():
            return [_erased(state, command, at, bucket)]
        case c.RefuseEvent(event, reason):
            return [f.EventRefused(
                receiver=receiver, position=event.position, reason=reason, at=at, source=event.source,
            )]  # fmt: skip
        case c.TurnAway(turned_away, discarded):
            return [f.TurnedAway(receiver=receiver, events=turned_away, at=at, discarded=discarded)]
        case c.PassOver(position):
            return [f.Parked(receiver=receiver, at=at, position=position)]
        case c.RecordBuried(positions):
            return [f.Buried(receiver=receiver, positions=positions)]
        case c.JudgeAlerts():
            return alert_changes(state, policy, command, at)
        case c.RecordAlertsPublished(number):
            return [f.AlertsPublished(receiver=receiver, number=number)]
        case _:
            assert_never(command)


def _parked(state: State, command: c.ParkReceiver, at: float) -> list[f.Fact]:
    waiting_since = command.waiting_since
    if state.parked and waiting_since in (None, state.waiting_since):
        return []
    position = 0 if state.parked or state.opened else command.position
    return [f.Parked(receiver=state.receiver, at=at, waiting_since=waiting_since, position=position)]


def _no_attempt(receiver: str, at: float, bucket: Bucket | None) -> f.Fact:
    return f.AttemptFailed(
        receiver=receiver, events=(), at=at, attempt=0, kind=f.NO_ATTEMPT, ours=True, bucket=bucket,
        error=f"{OUTAGE}: this node can connect to no host",
    )  # fmt: skip


def _given_up(state: State, command: c.GiveUpEvents, at: float, bucket: Bucket | None) -> f.DeadLettered:
    events, known = command.events, open_entry(state, command.events[0].position)
    return f.DeadLettered(
        receiver=state.receiver, events=events, at=at, reason=command.reason, bucket=bucket,
        attempts=known.attempts if known else 0, status=known.status if known else None, by=command.by,
    )  # fmt: skip


def _forgot(state: State, command: c.ForgetBacklog, at: float, bucket: Bucket | None) -> f.Forgot:
    return f.Forgot(
        receiver=state.receiver, at=at, position=command.position, bucket=bucket, source=command.source,
        keys=command.keys, by=command.by, discarded=command.waiting + len(state.open),
        left_out=command.left_out,
        next_sequence=state.frontier.sequence + command.waiting + command.left_out + 1,
    )  # fmt: skip


def _erased(
    state: State, command: c.EraseOpenEvent | c.EraseWaitingEvent, at: float, bucket: Bucket | None
) -> f.Fact:
    """The fact that ends an event: a number that it has stays, and it gets no new one."""
    position = command.position
    if isinstance(command, c.EraseWaitingEvent):
        return f.EventDropped(receiver=state.receiver, position=position, id=command.id, reason=f.ERASED)
    return f.Missing(
        receiver=state.receiver, at=at, first=position, last=position, bucket=bucket, reason=f.ERASED,
        next_sequence=state.frontier.sequence + 1,
    )  # fmt: skip


def _outcome(
    state: State, policy: Policy | None, command: c.RecordOutcome, at: float, bucket: Bucket | None
) -> list[f.Fact]:
    outcome = command.outcome
    # If an event was given up while it was being sent, the answer only shows how the receiver is doing.
    events = with_their_numbers(state, command.events)
    entry = open_entry(state, events[0].position) if events else None
    attempt = (entry.attempts if entry else 0) + 1
    common: dict[str, Any] = {
        "receiver": state.receiver, "events": events, "at": at, "attempt": attempt, "status": outcome.status,
        "latency_ms": outcome.latency_ms, "bucket": bucket, "kind": "event" if command.events else "ping",
    }  # fmt: skip
    if command.is_offline_ping:
        common["kind"] = f.OFFLINE_PING
    verdict = judge(outcome, at)
    if verdict is Verdict.DELIVERED:
        return _delivered(state, policy, command, at, common)
    retry = policy.retry if policy else Retry()
    base_s, cap_s = retry.base_s, retry.cap_s
    turn = state.failures_in_a_row + 1 if command.is_offline_ping else attempt
    spread = fraction(state.receiver, events[0].sequence if events else 0, turn)
    if verdict is Verdict.THROTTLED and isinstance(outcome, Answered):
        # A time that is over already (0 seconds, a date in the past) asks for no pause: then backoff applies.
        pauses = state.throttles + 1 if at >= state.throttled_until else max(1, state.throttles)
        wait_s = retry_after_s(outcome, at) or backoff_s(base_s, cap_s, pauses, spread)
        return [f.Throttled(until=at + wait_s, failing_since=_failing_since(state, at), **common)]
    if command.is_offline_ping:
        return _offline_ping_failed(state, policy, outcome, at, spread, common)
    # If this node has no free connection, the event has not failed, but retrying at once would make it worse.
    ours = isinstance(outcome, Failed) and outcome.is_our_failure
    failures = attempt if ours else (entry.failures if entry else 0) + 1
    several = len(command.events) > 1
    rejected, gone = verdict is Verdict.REJECTED, verdict is Verdict.GONE
    used_up = policy is not None and not (ours or gone) and 0 < retry.max_attempts <= failures
    halved = several and (rejected or used_up)
    # Which of several events was rejected is found by halving: each half is a POST that was not tried yet.
    wait_s = 0.0 if halved and rejected else backoff_s(base_s, cap_s, failures, spread)
    earlier = state.failures_in_a_row if ours else state.consecutive_failures
    in_a_row = earlier + 1 - FAILURES_IN_A_ROW_MAX
    held = policy is not None and policy.order == "relaxed" and verdict is Verdict.RETRY and in_a_row >= 0
    facts: list[f.Fact] = [f.AttemptFailed(
        error=_error(outcome), next_at=at + wait_s,
        until=at + backoff_s(base_s, cap_s, in_a_row + 1, spread) if held else 0.0,
        rejected=rejected, gone=gone, ours=ours, answer=command.answer,
        aborted=is_aborted(outcome, verdict) and not several, halved=halved,
        failing_since=_failing_since(state, at), **common,
    )]  # fmt: skip
    return facts if not command.events or ours else facts + _stopped(state, policy, outcome, verdict, at)


def _delivered(
    state: State, policy: Policy | None, command: c.RecordOutcome, at: float, common: dict[str, Any]
) -> list[f.Fact]:
    """The facts about a success: it may end the time offline, and may disable the receiver all the same."""
    returns_at = 0.0 if state.failing_since is None else return_at(state, policy, at)
    if returns_at and common["bucket"] is not None:
        common["bucket"] = emptied(common["bucket"], returns_at)
    stops = (command.is_offline_ping or bool(command.events)) and asks_to_stop(command.outcome)
    delivered = f.Delivered(returns_at=returns_at, **common)
    return [delivered, *(_disabled(state, at, "asked") if stops else ())]


def _offline_ping_failed(
    state: State, policy: Policy | None, outcome: Answered | Failed, at: float, spread: float,
    common: dict[str, Any],
) -> list[f.Fact]:  # fmt: skip
    """The facts about a ping in place of an event: the receiver backs off further.

    No event can be at fault, so an answer that rejects one is a failure like any other.
    """
    ours = isinstance(outcome, Failed) and outcome.is_our_failure
    verdict = judge(outcome, at)
    retry, is_relaxed = (policy.retry, policy.order == "relaxed") if policy else (Retry(), False)
    earlier = state.failures_in_a_row if ours else state.consecutive_failures
    failures = max(1, earlier + 1 - (FAILURES_IN_A_ROW_MAX - 1 if is_relaxed else 0))
    until = at + backoff_s(retry.base_s, retry.cap_s, failures, spread)
    facts: list[f.Fact] = [f.AttemptFailed(
        error=_error(outcome), next_at=until, until=until, gone=verdict is Verdict.GONE, ours=ours,
        failing_since=_failing_since(state, at), **common,
    )]  # fmt: skip
    verdict = Verdict.RETRY if verdict is Verdict.REJECTED else verdict
    return facts if ours else facts + _stopped(state, policy, outcome, verdict, at)


def _stopped(
    state: State, policy: Policy | None, outcome: Answered | Failed, verdict: Verdict, at: float
) -> list[f.Fact]:
    """The fact that a failure disables the receiver, if it does."""
    if verdict is Verdict.GONE:
        return _disabled(state, at, "asked" if asks_to_stop(outcome) else "gone")
    if verdict is Verdict.RETRY and policy and state.failing_s(at) >= policy.offline.disable_after_s:
        return _disabled(state, at, "failing")
    return []


def _learnt(state: State, policy: Policy, command: c.LearnPace, at: float) -> list[f.Fact]:
    """The fact that the receiver's pace is another one; none if nothing was learnt."""
    rules, known = rules_in_force(policy, state.limit), state.pace or NOTHING_LEARNT
    pace = known
    for observed in command.observed:
        pace = rules.learn(pace, observed, at)
    if pace == known:
        return []
    limits = rules.limits(pace, at)
    per_second = 0.0 if limits.resumes_at else limits.per_second
    return [f.PaceSet(
        receiver=state.receiver, at=at, pace=pace, per_second=per_second, in_flight=limits.in_flight,
        limited_by=limits.limited_by, in_flight_by=limits.in_flight_by,
    )]  # fmt: skip


def asks_to_stop(outcome: Answered | Failed) -> bool:
    """True if a header of the answer disables the receiver."""
    return isinstance(outcome, Answered) and outcome.says(DISABLE)


def _disabled(state: State, at: float, reason: f.DisabledReason) -> list[f.Fact]:
    return [f.Disabled(receiver=state.receiver, at=at, reason=reason)]


def _error(outcome: Answered | Failed) -> str:
    """The error in words, with the headers of the answer that count."""
    if isinstance(outcome, Failed):
        return f"{outcome.error}: {outcome.detail}"[:ERROR_LENGTH_MAX]
    wishes = [name for name in (ABORT, DISABLE) if outcome.says(name)]
    return ", ".join([f"HTTP {outcome.status}", *wishes])


def _failing_since(state: State, at: float) -> float | None:
    """Since when the receiver counts as failing after this attempt; None if that does not change."""
    since, ours_since = state.failing_since, state.ours_since
    if since is None or ours_since is None or at <= ours_since:
        return None
    return since + at - ours_since


def _adopt(state: State, policy: Policy, command: c.Adopt, at: float, bucket: Bucket | None) -> list[f.Fact]:
    """The facts that record every change of the configuration."""
    receiver, facts = state.receiver, list[f.Fact]()
    target = stable_hash(policy.url)
    if state.target != target:
        facts.append(f.Retargeted(receiver=receiver, target=target))
    if policy.paused and not state.paused:
        facts.append(f.Paused(receiver=receiver, at=at))
    elif state.paused and not policy.paused:
        facts.append(f.Resumed(receiver=receiver, at=at))
    limit = limit_in_force(policy, state.handshake)
    if limit != state.limit:
        unused = state.limit is None and state.frontier.sequence == 0
        granted = with_limit(limit, bucket, before=state.limit, at=at, epoch=command.epoch, unused=unused)
        facts.append(f.RateSet(receiver=receiver, limit=limit, bucket=granted))
    if transform_differs(state, policy):
        # A bucket that was created again counts its own revisions. None may stand for two transforms.
        revision = max([command.revision, 1, *(each.revision + 1 for each in state.transforms)])
        key = key_hash(policy.pseudonym_key)
        facts.append(
            f.TransformSet(receiver=receiver, revision=revision, transform=policy.transform, key=key)
        )
    frontier = state.frontier
    if frontier.change is None and frontier.size != policy.dedup_window:
        above = max(command.above, frontier.position)
        facts.append(f.WindowSet(receiver=receiver, size=policy.dedup_window, above=above))
    return facts


def with_their_numbers(state: State, events: tuple[Event, ...]) -> tuple[Numbered, ...]:
    """The events that are not settled, with their numbers: those that are not open get the next ones.

    Each has the revision of its transform: an open one keeps its own, unless that is gone.
    """
    position, sequence = state.frontier.position, state.frontier.sequence
    match events:
        case (event,) if event.position > position:  # The most frequent case.
            return (with_number(event, sequence + 1, state.transform),)
    known = {each.position: each for each in state.open} if state.open else _NONE_OPEN
    numbered = list[Numbered]()
    for event in events:
        if event.position > position:
            sequence += 1
            numbered.append(with_number(event, sequence, state.transform))
        elif (entry := known.get(event.position)) is not None:
            numbered.append(with_its_number(state, event, entry))
    return tuple(numbered)


def with_its_number(state: State, event: Event, entry: OpenEvent) -> Numbered:
    """The open event with its number and the revision of its transform: if that is gone, the one in force.

    One that cannot be shaped any more keeps its own: no other revision may stand for it.
    """
    own = entry.transform
    revision = state.transform_for(own)
    numbered = with_number(event, entry.sequence, own if revision is None else revision)
    return replace(numbered, transform_gone=own) if state.shapes_otherwise(own) else numbered


def transform_differs(state: State, policy: Policy) -> bool:
    """True if the configuration has another transform than the recorded one, or another key of pseudonyms."""
    if policy.transform is None and policy.pseudonym_key is None:
        return bool(state.transform or state.pseudonym_key)  # The most frequent case.
    recorded = state.transforms[-1].transform if state.transform else None
    return policy.transform != recorded or key_hash(policy.pseudonym_key) != state.pseudonym_key
