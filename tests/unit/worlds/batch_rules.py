"""The rules of batches, and what takes each of them out of the product, by the names of the shared model.

`over` is held by a test of `decide`, and `id-by-number`, a rule of the sender, by a test of that.
"""

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from actors.configuration.policy import BatchLimits, Policy
from actors.machine import decide as deciding
from actors.machine import evolve as evolving
from actors.machine import facts as f
from actors.machine.decide import NEEDS_NO_CONFIRMATION
from actors.machine.event import Event
from actors.machine.numbering import Frontier, is_duplicate
from actors.machine.scheduling import batches, expiry, next_step
from actors.machine.scheduling.steps import PostBatch, Step
from actors.machine.scheduling.view import View
from actors.machine.state import OpenEvent, State
from actors.runtime import actor, live_state, posting_bounds

Change = tuple[Any, str, Any]
_next_step, _members_of, _post_of = next_step.next_step, batches.members_of, batches.post_of
_give_up_due, _tried = expiry.give_up_due, evolving._tried
_decide, _parts_of = deciding.decide, evolving.parts_of


def _group(of: Any) -> Change:
    return OpenEvent, "group", property(of)


def _count_rejections(entry: OpenEvent, fact: Any, post: Any) -> OpenEvent:
    tried = _tried(entry, fact, post)
    rejected = isinstance(fact, f.AttemptFailed) and fact.rejected
    return replace(tried, rejections=entry.rejections + rejected)


def _count_failures(entry: OpenEvent, fact: Any, post: Any) -> OpenEvent:
    failures = entry.failures + (isinstance(fact, f.AttemptFailed) and not (fact.gone or fact.ours))
    return replace(_tried(entry, fact, post), failures=failures)


def _halve_rejected_only(*arguments: Any) -> list[f.Fact]:
    return [
        replace(fact, halved=fact.halved and fact.rejected) if isinstance(fact, f.AttemptFailed) else fact
        for fact in _decide(*arguments)
    ]


def _with_holes(state: State, view: View, entry: OpenEvent) -> Sequence[OpenEvent]:
    return [each for each in state.open if each.group is None and each.position not in view.in_flight]


def _as_if_relaxed(state: State, given: Policy | None, view: View, now: float) -> Step:
    if given is not None and given.order == "strict" and len(state.open) > 1:
        given = replace(given, order="relaxed", concurrency=1)
    return _next_step(state, given, view, now)


def _halves_take_no_token(
    state: State, given: Policy, events: tuple[Event, ...], *, has_token: bool
) -> PostBatch:
    halved = any(each.halved for each in state.open if each.position == events[0].position)
    return _post_of(state, given, events, has_token=has_token or halved)


def _small_ones_only(events: Sequence[Event], limits: BatchLimits) -> list[Event]:
    kept = list[Event]()
    for event in events[: limits.max_events]:
        if sum(len(each.body) for each in (*kept, event)) <= limits.max_bytes:
            kept.append(event)
    return kept


def _those_in_memory(state: State, view: View, entry: OpenEvent) -> Sequence[OpenEvent]:
    found = [each for each in _members_of(state, view, entry) if each.position in view.open_in_memory]
    return found or _members_of(state, view, entry)


def _never_expired(*arguments: Any) -> tuple[float, str]:
    due, reason = _give_up_due(*arguments)
    return (math.inf, "") if reason == "expired" else (due, reason)


def _adopt_at_once(state: State, given: Policy | None, view: View, now: float) -> Step:
    view = view if view.policy_adopted else replace(view, in_flight=(), posts_in_flight=0)
    return _next_step(state, given, view, now)


def _judged_at_once(frontier: Frontier, waiting: Sequence[Event], count_max: int) -> list[Event]:
    return [each for each in waiting if not is_duplicate(frontier, each)][: max(0, count_max)]


RULES: dict[str, tuple[Change, ...]] = {
    "marks": (_group(lambda entry: None),),
    "half-stays": (
        _group(
            lambda entry: None if entry.halved else entry.post or (entry.sequence if entry.attempts else None)
        ),
    ),
    "mark-pair": (
        _group(lambda entry: entry.post[0] if entry.post else (entry.sequence if entry.attempts else None)),
    ),
    "alone-counts": ((evolving, "_tried", _count_rejections),),
    "split-no-failure": ((evolving, "_tried", _count_failures),),
    "attempts-halve": (
        (live_state, "decide", _halve_rejected_only),
        (OpenEvent, "has_failed_alone", property(lambda entry: entry.attempts > 0)),
    ),
    "cut-by-config": ((batches, "within_limits", lambda events, limits: list(events)),),
    "interval": ((batches, "run_of", _with_holes),),
    "lowest-first": ((actor, "next_step", _as_if_relaxed),),
    "room": ((posting_bounds.PostingBounds, "room", 1000),),
    "open-bound": ((batches, "OPEN_MAX", 1000),),
    "token": ((next_step, "post_of", _halves_take_no_token),),
    "one-fits": ((batches, "within_limits", _small_ones_only),),
    "whole-batch": ((batches, "members_of", _those_in_memory),),
    "expired-first": ((next_step, "give_up_due", _never_expired),),
    "dead-confirmed": ((live_state, "NEEDS_NO_CONFIRMATION", (*NEEDS_NO_CONFIRMATION, f.DeadLettered)),),
    "adopt-idle": ((actor, "next_step", _adopt_at_once),),
    "fold-each": ((batches, "next_in_order", _judged_at_once),),
    "burial-room": ((next_step, "BURIALS_MAX", 1000), (expiry, "BURIALS_MAX", 1000)),
}
