"""The rules of what comes next, in the order of their priority, and what holds a receiver back."""

from enum import Enum

from msgspec import Struct

from actors.machine.state import State
from actors.policy import Policy

NEVER = float("inf")


class Rule(Enum):
    """The first rule that holds decides, in this order; the value says when it holds.

    From `GIVING_UP` on a rule concerns one event: in strict order of the one whose turn it is, in relaxed
    order of the first that can be dealt with now, of these: the open event that is due first, the oldest open
    one, the next one that has no number. `UNCONFIRMED` is asked about the event that was chosen without it.
    """

    BURIAL = "dead letters are owed, none is being stored, and all that was recorded is confirmed"
    UNCONFIGURED = "the receiver has no configuration that can be used (`without_policy.py`)"
    OPENING = "it has a configuration for the first time, or again after its removal"
    REMOVAL = "its configuration was removed and put again, and the removal was not obeyed yet"
    ADOPTION = "its configuration is another one than that on record"
    COUNTING = "more may wait in the stream than its `backlog_max`"
    IN_FLIGHT = "as many attempts are in flight as may be"
    REPEAT = "the oldest event without a number is settled, or a repeat"
    UNPARKING = "all that lay in the stream alone is settled"
    GIVING_UP = "the event is not to be tried any more, and a dead letter more may be owed"
    READING = "the next event lies in the stream alone, and nothing holds it back"
    UNCONFIRMED = "what must be confirmed before anything starts is not"
    RESTING = "nothing waits"
    BURIALS_FULL = "the event is not to be tried any more, and as many dead letters are owed as may be"
    DISABLED = "the receiver is disabled"
    PAUSED = "its configuration says to wait"
    THROTTLED = "it asked to be left alone"
    BACKING_OFF = "it failed: the event that all others await (strict order), or too often in a row"
    RETRYING = "the event failed, and its next attempt is not due"
    FETCHING = "the event is open, and its body is not in memory"
    UNREADY = "the shard starts nothing now, or too much of the receiver is on no confirmed record yet"
    TOKEN = "no token is left"
    SLOW_START = "a token takes long to come: the attempt is recorded before it is made"
    POSTING = "nothing stands in the way"


class Hold(Struct, frozen=True, gc=False):
    """The rule that holds a receiver back as a whole, and until when: `NEVER`, without help."""

    rule: Rule
    until: float


def hold(state: State, policy: Policy, now: float) -> Hold | None:
    """Name what keeps the receiver from its events; of several, the one that lasts longest without help."""
    if state.disabled:
        return Hold(Rule.DISABLED, NEVER)
    if policy.paused or state.paused:
        return Hold(Rule.PAUSED, NEVER)
    backoff_until = backing_off_until(state, policy)
    if state.throttled_until > now:
        return Hold(Rule.THROTTLED, max(state.throttled_until, backoff_until))
    return Hold(Rule.BACKING_OFF, backoff_until) if backoff_until > now else None


def backing_off_until(state: State, policy: Policy) -> float:
    """The end of backoff: the receiver's as a whole or, in strict order, that of the event that all await."""
    alone = policy.order == "relaxed" or not state.open
    return max(state.backoff_until, 0.0 if alone else state.open[0].next_at)
