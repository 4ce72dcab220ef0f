"""Invariants: rules that hold for every fact, checked before the fact is recorded.

A fact that breaks an invariant is a defect of Angarium. If it were recorded, every later owner would fold it,
and numbers would repeat or be lost. So the shard stops instead, and a journal with such a fact is not run.

Each rule compares the states before and after one fact, in a bounded number of steps. No rule knows the
configuration: a receiver that became strict may have many open events. A bound that was exceeded before is no
breach, so that another version with a smaller bound refuses no journal.
"""

from enum import Enum

from actors.errors import Unusable
from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.evolve import evolve
from actors.machine.state import BURIALS_MAX, OPEN_MAX, State

NAMES_EVENTS = (f.Delivered, f.AttemptFailed, f.Throttled, f.EventsNumbered, f.DeadLettered, f.Started)
"""The facts that name events with their numbers."""
_SETTLING = (f.Delivered, f.DeadLettered)
# Sums of fractions are not exact.
_EPSILON = 1e-6


class Breach(Enum):
    """A broken invariant; the value says how."""

    OTHER_RECEIVER = "it names another receiver"
    FRONTIER = "the frontier goes back: events that had their turn would be sent again"
    NUMBER = "its number is neither the next one nor one that was already given"
    SETTLED = "it treats a settled event as an open one"
    BEYOND = "an open event is beyond the frontier"
    OPEN = f"more than {OPEN_MAX} events are open"
    BURIALS = f"more than {BURIALS_MAX} dead letters wait to be stored"
    TOKENS = "the bucket holds less than no tokens, or more than its burst"


class InvariantBroken(Unusable):
    """A fact that breaks a rule. The text names receiver, fact and rule, but shows no event."""

    def __init__(self, fact: f.Fact, breach: Breach) -> None:
        tag = fact.__struct_config__.tag
        super().__init__(
            f"{fact.receiver}: its fact `{tag}` breaks an invariant ({breach.value}). This is a "
            f"defect in Angarium: see `Refused shards` in docs/troubleshooting.md"
        )
        self.breach = breach


def evolve_checked(state: State, fact: f.Fact) -> State:
    """The state after `fact`. Raises `InvariantBroken`."""
    after = evolve(state, fact)
    breach = check(state, fact, after)
    if breach is not None:
        raise InvariantBroken(fact, breach)
    return after


def check(before: State, fact: f.Fact, after: State) -> Breach | None:
    """The rule that `fact` breaks between the states `before` and `after` it; None if it breaks none."""
    if fact.receiver != before.receiver:
        return Breach.OTHER_RECEIVER
    old, new = before.frontier, after.frontier
    if new is not old:
        if new.sequence < old.sequence:
            return Breach.FRONTIER
        # A repair reads the events after the loss again; nothing else moves the frontier back.
        fell = new.position < old.position or new.source < old.source
        if fell and not isinstance(fact, f.Repaired):
            return Breach.FRONTIER
    if isinstance(fact, NAMES_EVENTS) and (breach := _check_numbers(before, fact, after)):
        return breach
    if after.open is not before.open and (breach := _check_open(before, after)):
        return breach
    if after.burials is not before.burials and _owes_too_many(before, fact, after):
        return Breach.BURIALS
    bucket, limit = after.bucket, after.limit
    if bucket is None or bucket is before.bucket:
        return None
    overflows = limit is not None and bucket.tokens > limit.burst + _EPSILON
    if bucket.others and not overflows:
        overflows = min(bucket.others) < 0 or (limit is not None and _others_overflow(bucket, limit))
    return Breach.TOKENS if bucket.tokens < 0 or overflows else None


def _others_overflow(bucket: Bucket, limit: RateLimit) -> bool:
    return len(bucket.others) > len(limit.others) or any(
        tokens > each.burst + _EPSILON for tokens, each in zip(bucket.others, limit.others, strict=False)
    )


def _owes_too_many(before: State, fact: f.Fact, after: State) -> bool:
    """True if too many dead letters wait to be stored; an operator's skip may exceed the limit."""
    skipped = isinstance(fact, f.DeadLettered) and fact.reason == "skipped"
    return BURIALS_MAX < len(after.burials) > len(before.burials) and not skipped


def _check_numbers(
    before: State,
    fact: f.Delivered | f.AttemptFailed | f.Throttled | f.EventsNumbered | f.DeadLettered | f.Started,
    after: State,
) -> Breach | None:
    """Check that each event is the next in order with the next number, or is open."""
    last = before.frontier.sequence
    position, sequence, known = before.frontier.position, last, 0
    for each in fact.events:
        if each.position > position:
            position, sequence = each.position, sequence + 1
            if each.sequence != sequence:
                return Breach.NUMBER
        elif each.sequence > last:
            return Breach.NUMBER
        else:
            known += 1
    if not (known or before.open or after.open):
        return None  # The most frequent case: the next event is delivered at once.
    opened = -known if isinstance(fact, _SETTLING) else sequence - last
    return None if len(after.open) == len(before.open) + opened else Breach.SETTLED


def _check_open(before: State, after: State) -> Breach | None:
    """Check that open events are not beyond the frontier, not settled, and not too many."""
    opened, frontier = after.open, after.frontier
    if not opened:
        return None
    if opened[-1].sequence > frontier.sequence or opened[-1].position > frontier.position:
        return Breach.BEYOND
    if opened[0].sequence <= before.settled_sequence:
        return Breach.SETTLED
    return Breach.OPEN if OPEN_MAX < len(opened) > len(before.open) else None
