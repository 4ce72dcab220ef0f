"""The status of an actor: one JSON object for people who ask why a receiver gets nothing.

The configuration's URL,
secrets and headers are not shown. In the receiver's last answer, cookies and parts of the headers or the URL
are hidden: a person who may read the status must not learn how to act as the receiver's owner.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, NotRequired, TypedDict

from msgspec import Struct
from msgspec.structs import asdict

from actors.configuration.credentials import REDACTED, Credentials, credentials_of
from actors.configuration.policy import Policy
from actors.machine.alerts.returning import is_offline
from actors.machine.event import Event
from actors.machine.facts import DISABLED_WHY, AttemptFailed, Delivered, OutcomeFact
from actors.machine.handshake.in_words import HandshakeState, handshake_state, handshake_words
from actors.machine.handshake.proof import current_handshake
from actors.machine.numbering import is_duplicate
from actors.machine.outcome import OUTAGE, PROXY, Answered
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.pace_in_words import PaceState, pace_state, pace_words, throttled_words
from actors.machine.scheduling.phases import Phase
from actors.machine.scheduling.rules import NEVER, Rule, hold
from actors.machine.scheduling.steps import Rest, WaitUntil
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.rate_status import BucketState, bucket_state
from actors.times_as_text import age_text, instant_text, instant_text_or_none

_DOWN_HOST_WORDS = "its host cannot be connected to: its receivers try it in turn, one at a time"
SLOW_ANSWER_MS = 50.0
"""From this latency on, latency counts as the limit of a strict receiver's pace."""
Remedy = Literal["resume", "put", "key"]
"""The end of a condition that does not end by itself: the receiver is resumed, or put with a valid
configuration, or its node gets a key that opens its secrets."""


class Head(Struct, frozen=True, kw_only=True):
    """The oldest event that is not settled, and the number that it has or will get.

    `type` is empty if the event is not in memory. `published_at`: for a copy, when the original was
    published, if that was well before.
    """

    position: int
    sequence: int
    id: str
    stored_at: float
    type: str = ""
    published_at: float = 0.0

    @property
    def accepted_at(self) -> float:
        """When the event was accepted from its producer."""
        return self.published_at or self.stored_at


class OldestEvent(TypedDict):
    """The oldest event that is not settled, and the number that it has or will get."""

    sequence: int
    event_id: str
    type: str | None
    stored_at: str | None
    age_s: float


class LastAttempt(TypedDict):
    """The attempt whose outcome was recorded last; a ping has no `sequence` and no `event_id`."""

    at: str | None
    kind: str
    sequence: int | None
    event_id: str | None
    attempt: int
    status: int | None
    error: str | None
    latency_ms: float


class LastResponse(TypedDict):
    """The beginning of the last answer, with credentials hidden; its status alone for some users."""

    status: int
    headers: NotRequired[dict[str, str]]
    body: NotRequired[str]


class TransformState(TypedDict):
    """The transform in force, by the numbers of its pointers; `keep` is null if everything stays.

    `revision` is that of the configuration which it came with. `open_otherwise`: the number of events that
    were tried before, and keep another transform, or none.
    """

    revision: int
    keep: int | None
    drop: int
    pseudonymize: int
    open_otherwise: int


class ReceiverState(TypedDict):
    """The live state of a receiver, as its owner knows it.

    `why` says in words why nothing moves; `remedy` is what an operator has to do, if it does not end by
    itself. `problems` are those of the configuration that was put last, which need not be the one in force.
    Of the `backlog`, the events that are accepted and not settled, `queued` are in memory; `parked`: some are
    only in the stream. `resume_at` is when it is tried again by itself. `alerts` are those that are raised,
    each with the time since when. `counters` count events, `posts` the POSTs that they were in.
    """

    receiver: str
    shard: int
    node: str
    phase: Phase
    why: str
    remedy: Remedy | None
    problems: list[str]
    next_sequence: int
    settled_sequence: int
    in_flight: int
    queued: int
    backlog: int
    parked: bool
    head: OldestEvent | None
    disabled: str | None
    bucket: BucketState | None
    pace: PaceState | None
    handshake: HandshakeState | None
    transform: TransformState | None
    resume_at: str | None
    failing_since: str | None
    alerts: dict[str, str]
    consecutive_failures: int
    last_attempt: LastAttempt | None
    last_response: LastResponse | None
    counters: dict[str, int]
    posts: int


def inspect(
    state: State,
    policy: Policy | None,
    view: View,
    now: float,
    *,
    shard: int,
    node: str,
    queued: int,
    backlog: int,
    head: Head | None,
    last_answer: Answered | None,
    problems: list[str],
    needs_key: bool = False,
    answer_shown: bool = True,
) -> ReceiverState:
    """The live state of one actor, ready for JSON.

    - `queued`: number of events in memory.
    - `backlog`: number of events that are accepted and not settled.
    - `problems`: defects of the configuration that was put last, which need not be the one in force;
      `needs_key`: they end once the node has further keys.
    - `last_answer`: an excerpt; unless `answer_shown`, only its status is shown.
    """
    response: LastResponse | None = None
    if last_answer is not None:
        response = _response(last_answer, policy) if answer_shown else {"status": last_answer.status}
    return {
        "receiver": state.receiver,
        "shard": shard,
        "node": node,
        "phase": phase(state, policy, view, now),
        "why": why(state, policy, view, now, backlog=backlog, problems=problems),
        "remedy": remedy(state, policy, now, needs_key=needs_key),
        "problems": problems,
        "next_sequence": state.frontier.sequence + 1,
        "settled_sequence": state.settled_sequence,
        "in_flight": len(view.in_flight),
        "queued": queued,
        "backlog": backlog,
        "parked": state.parked,
        "head": _head(head, now) if head else None,
        "disabled": state.disabled or None,
        "bucket": bucket_state(state, policy, view.bucket or state.bucket, now),
        "pace": pace_state(state, policy, now),
        "handshake": handshake_state(state, policy, instant_text_or_none),
        "transform": _transform_in_force(state),
        "resume_at": instant_text_or_none(_resume_at(state, policy, now)),
        "failing_since": instant_text_or_none(state.failing_since),
        "alerts": {each.kind: instant_text(each.raised_at) for each in state.alerts if each.raised},
        "consecutive_failures": state.consecutive_failures,
        "last_attempt": _attempt(state.last) if state.last else None,
        "last_response": response,
        "counters": asdict(state.counters),
        "posts": state.posts,
    }


def phase(state: State, policy: Policy | None, view: View, now: float) -> Phase:
    """The one word for the receiver's condition; of several, the one that lasts longest without help."""
    if held := held_back(state, policy, now):
        return held
    return "active" if view.in_flight or view.head or state.open or state.parked else "idle"


def remedy(state: State, policy: Policy | None, now: float, *, needs_key: bool = False) -> Remedy | None:
    """The act of an operator after which the receiver continues; None if it continues by itself."""
    match held_back(state, policy, now):
        case "misconfigured":
            return "key" if needs_key else "put"
        case "paused" | "disabled":
            return "resume"
        case _:
            return None


def held_back(state: State, policy: Policy | None, now: float) -> Phase | None:
    """Name what holds a receiver back, as the machine does; None if nothing does.

    A receiver that has been failing for long is offline, even while it is being tried.
    """
    if policy is None:
        return "misconfigured"
    held = hold(state, policy, now)
    rule = held.rule if held else None
    if rule is Rule.DISABLED or rule is Rule.PAUSED:
        return "disabled" if rule is Rule.DISABLED else "paused"
    if rule is Rule.UNVERIFIED:
        return "unverified"
    if is_offline(state, policy, now):
        return "offline"
    if rule is None:
        return None
    return "throttled" if rule is Rule.THROTTLED else "backing_off"


# ---- why nothing moves


def why(
    state: State,
    policy: Policy | None,
    view: View,
    now: float,
    *,
    backlog: int,
    problems: Collection[str] = (),
) -> str:
    """Say why the receiver gets nothing at this moment."""
    held = _held_words(state, policy, view, now, problems)
    if not backlog:
        return f"nothing waits; {held}" if held else "nothing waits"
    return held or _waiting_words(state, policy, view, now, backlog)


def _held_words(
    state: State, policy: Policy | None, view: View, now: float, problems: Collection[str]
) -> str:
    """Say what holds the receiver back; empty if nothing does."""
    match held_back(state, policy, now):
        case None:
            return ""
        case "misconfigured":
            return f"misconfigured: {'; '.join(problems) or 'it never had a valid configuration'}"
        case "disabled" if state.disabled == "failing":
            return f"disabled: {_no_success(state, now)}"
        case "disabled":
            return f"disabled: {DISABLED_WHY.get(state.disabled, state.disabled)}"
        case "paused":
            return "paused"
        case "unverified":
            known = None if policy is None else current_handshake(state, policy)
            return f"unverified: {handshake_words(known, _next_handshake(state, policy, view, now))}"
        case "offline":
            following = _next_trial(view, policy, _resume_at(state, policy, now), now)
            return f"offline: {_no_success(state, now)}, {_failures(state, policy)}; {following}"
        case "throttled":
            reason = throttled_words(state, now)
            return f"throttled until {_moment(state.throttled_until, now)}: {reason}"
        case _:
            until = _resume_at(state, policy, now) or now
            if state.returning is not None and state.returning.begins_at == state.backoff_until == until:
                return f"it was offline and is back: its events begin at {_moment(until, now)}"
            return f"backing off until {_moment(until, now)}: {_failures(state, policy)}"


def _waiting_words(state: State, policy: Policy | None, view: View, now: float, backlog: int) -> str:
    """Say what the next event waits for if nothing holds its receiver back, by the machine's next step."""
    if pace := _answers_pace(state, policy, view, backlog):
        return pace
    if count := len(view.in_flight):
        return "an attempt is under way" if count == 1 else f"{count} attempts are under way"
    match next_step(state, policy, view, now):
        case WaitUntil(at, Rule.RETRYING):
            return f"every waiting event was tried; the next retry is at {_moment(at, now)}"
        case WaitUntil(at, Rule.TOKEN) if policy is not None and policy.rate is not None:
            rate = " and ".join(f"{each.limit:g} per {each.per}" for each in policy.rates)
            return f"held back by its rate of {rate}; {_next_words(at, now)}"
        case WaitUntil(at, Rule.PACE) if policy is not None:
            return f"held back by {pace_words(state, policy, now)}; {_next_words(at, now)}"
        case WaitUntil(at, Rule.LINGERING):
            return f"waiting for more events for its batch, which is sent at {_moment(at, now)} at the latest"
        case WaitUntil(_, Rule.OLDER_NODES_TRANSFORM):
            return "a node of an older version knows no transforms: upgrade it"
        case Rest(Rule.OUTAGE) | WaitUntil(_, Rule.OUTAGE):
            return "this node can connect to no host, and only makes probes until it can"
        case Rest(Rule.DOWN_HOST | Rule.DOWN_HOST_UNREAD) | WaitUntil(
            _, Rule.DOWN_HOST | Rule.DOWN_HOST_UNREAD
        ):
            return _DOWN_HOST_WORDS
        case Rest(Rule.UNCONFIRMED | Rule.UNREADY):
            return "waiting for NATS to confirm what was recorded"
        case Rest(Rule.BURIALS_FULL):
            return "waiting for NATS to store its dead letters"
        case Rest(Rule.REMOVAL):
            return "waiting for NATS to say whether the receiver was removed"
        case _:
            return "the next attempt is due"


def _next_words(at: float, now: float) -> str:
    """Say when a limit lets the next attempt begin; many begin within a second."""
    if at - now < 1:
        return "the next in less than 1s"
    return f"the next in {age_text(math.ceil(at - now))}"


def _next_trial(view: View, policy: Policy | None, at: float | None, now: float) -> str:
    """Say when an offline receiver is tried next, and by what: `the next ping is at …`."""
    pings = policy is not None and policy.offline.ping and view.bounds.all_know_offline_pings
    if view.offline_ping_under_way:
        return "a ping in place of its events is under way"
    if view.in_flight:
        return "an attempt is under way"
    what = "ping in place of its events" if pings else "attempt"
    if at is None:
        return f"the next {what} is due" if view.bounds.may_try_host else _DOWN_HOST_WORDS
    return f"the next {what} is at {_moment(at, now)}"


def _transform_in_force(state: State) -> TransformState | None:
    if not state.transform:
        return None
    transform = state.transforms[-1].transform
    return {
        "revision": state.transform,
        "keep": None if transform.keep is None else len(transform.keep),
        "drop": len(transform.drop),
        "pseudonymize": len(transform.pseudonymize),
        "open_otherwise": sum(each.transform != state.transform for each in state.open),
    }


def _next_handshake(state: State, policy: Policy | None, view: View, now: float) -> str:
    if view.handshake_under_way:
        return "a handshake is under way"
    if not view.bounds.all_know_handshakes:
        return "a node of an older version knows no handshakes: upgrade it"
    at = _resume_at(state, policy, now)
    return f"the next is at {_moment(at, now)}" if at else ""


def _no_success(state: State, now: float) -> str:
    since = state.failing_since
    return "it kept failing" if since is None else f"no success since {_moment(since, now)}"


def _answers_pace(state: State, policy: Policy | None, view: View, backlog: int) -> str:
    """Say that others wait for a slow answer: `answers take 0.3 s, one attempt at a time: 3.3 a second`."""
    last = state.last
    if policy is None or policy.order != "strict" or len(view.in_flight) != 1 or backlog < 2:
        return ""
    if not isinstance(last, Delivered) or last.latency_ms < SLOW_ANSWER_MS:
        return ""
    a_second = 1000 / last.latency_ms
    if policy.rate is not None and policy.rate.per_second <= a_second:
        return ""
    return f"answers take {last.latency_ms / 1000:.2g} s, one attempt at a time: {a_second:.2g} a second"


def _failures(state: State, policy: Policy | None) -> str:
    """Describe the receiver's failures: `3 failures in a row, the last: HTTP 503`."""
    count, last = state.consecutive_failures, state.last
    if not count and policy is not None and isinstance(last, AttemptFailed) and last.rejected:
        return _rejection(state, policy, last)
    if isinstance(last, AttemptFailed) and last.error.startswith(f"{PROXY}: "):
        return f"the proxy did not let the last attempt through ({last.error.removeprefix(f'{PROXY}: ')})"
    if isinstance(last, AttemptFailed) and last.error.startswith(f"{OUTAGE}: "):
        return "this node could connect to no host at the last attempt"
    if isinstance(last, AttemptFailed) and last.ours:
        return "this node was overloaded at the last attempt"
    failures = "1 failure" if count == 1 else f"{count} failures in a row"
    error = last.error or f"HTTP {last.status}" if isinstance(last, AttemptFailed) else ""
    return f"{failures}, the last: {error}" if error else failures


def _rejection(state: State, policy: Policy, last: AttemptFailed) -> str:
    """Describe the last rejection: `#3 was rejected 2 of 5 times, the last: HTTP 422`.

    It names the event, since many others may wait behind it.
    """
    tried = {each.sequence for each in last.events}
    for entry in state.open:
        if entry.sequence in tried:
            if entry.aborted:
                return f"#{entry.sequence} was rejected at once: {last.error}"
            times = f"{entry.rejections} of {policy.retry.rejected_attempts} times"
            return f"#{entry.sequence} was rejected {times}, the last: HTTP {last.status}"
    return f"the last attempt was rejected: HTTP {last.status}"


def _moment(at: float, now: float) -> str:
    """A point in time, and its distance for people: `2026-11-23T12:03:10Z (in 42s)`."""
    ahead = at > now
    moment = datetime.fromtimestamp(int(at), UTC)
    far = f"in {age_text(math.ceil(at - now))}" if ahead else f"{age_text(now - at)} ago"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ} ({far})"


# ---- the oldest event


def known_head(state: State, view: View, in_flight: Mapping[int, Event]) -> Head | None:
    """The oldest event that is not settled, if memory knows it."""
    if state.open:
        entry = state.open[0]
        event = in_flight.get(entry.position) or view.open_in_memory.get(entry.position)
        return Head(
            position=entry.position, sequence=entry.sequence, id=entry.id, stored_at=entry.stored_at,
            published_at=entry.published_at, type=event.type if event else "",
        )  # fmt: skip
    return read_head(state, [*in_flight.values(), *([view.head] if view.head else [])])


def read_head(state: State, events: Iterable[Event]) -> Head | None:
    """The first of these events, none of which is open, that will get a number."""
    for event in events:
        if event.position > state.frontier.position and not is_duplicate(state.frontier, event):
            return Head(
                position=event.position, sequence=state.frontier.sequence + 1, id=event.id,
                stored_at=event.stored_at, published_at=event.published_at, type=event.type,
            )  # fmt: skip
    return None


def _head(head: Head, now: float) -> OldestEvent:
    return {
        "sequence": head.sequence,
        "event_id": head.id,
        "type": head.type or None,
        "stored_at": instant_text_or_none(head.stored_at),
        "age_s": round(max(0.0, now - head.accepted_at), 3),
    }


# ---- the parts


def _resume_at(state: State, policy: Policy | None, now: float) -> float | None:
    """The time at which the receiver is tried again by itself; None if that is at once, or never."""
    held = None if policy is None else hold(state, policy, now)
    return held.until if held and now < held.until < NEVER else None


def _attempt(fact: OutcomeFact) -> LastAttempt:
    event = fact.events[0] if fact.events else None
    return {
        "at": instant_text_or_none(fact.at),
        "kind": fact.kind,
        "sequence": event.sequence if event else None,
        "event_id": event.id if event else None,
        "attempt": fact.attempt,
        "status": fact.status,
        "error": fact.error if isinstance(fact, AttemptFailed) else None,
        "latency_ms": round(fact.latency_ms, 3),
    }


def _response(answer: Answered, policy: Policy | None) -> LastResponse:
    """The answer as text; the values of a repeated header are joined by commas (RFC 9110, 5.3)."""
    hidden = credentials_of(policy) if policy else Credentials(())
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        shown = REDACTED if name.lower() == "set-cookie" else hidden.hide(value)
        headers[name] = f"{headers[name]}, {shown}" if name in headers else shown
    body = hidden.hide(answer.body.decode("utf-8", "replace"))
    return {"status": answer.status, "headers": headers, "body": body}
