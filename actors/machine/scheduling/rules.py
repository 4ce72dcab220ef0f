"""The rules that choose the next step, by priority, and name the reason why a receiver is held back."""

from enum import Enum

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine.handshake.proof import is_verified, next_handshake_at
from actors.machine.state import State

NEVER = float("inf")


class Rule(Enum):
    """The rules in order of priority: the first that applies decides. The value says when a rule applies.

    From `GIVING_UP` on, a rule concerns one event. In strict order that is the event whose turn it is. In
    relaxed order it is the first of these that something can be done about: the open event that is due first,
    the oldest open event, the next event without a number. `UNCONFIRMED` does not influence this choice; it
    is asked about the chosen event.
    """

    BURIAL = (
        "dead letters are still to be stored, none is being stored, and all that was recorded is confirmed"
    )
    UNCONFIGURED = "the receiver has no configuration that can be used (`without_policy.py`)"
    OPENING = "it has a configuration for the first time, or again after its removal"
    REMOVAL = "its configuration was removed and put again, and the removal is not carried out yet"
    ADOPTION = (
        "its configuration differs from the recorded one, and every live node can read what that records"
    )
    COUNTING = "more may wait in the stream than its `backlog_max`"
    IN_FLIGHT = "no further attempt may be in flight"
    DUPLICATE = "the oldest event without a number is settled, or a duplicate"
    UNPARKING = "all events that were only in the stream are settled"
    GIVING_UP = (
        "the event has to be given up, and there is room for one more dead letter that is still to be stored"
    )
    READING = "the next event is only in the stream, and nothing holds it back, not even its host"
    UNCONFIRMED = "a fact that must be confirmed before an attempt starts is not confirmed yet"
    BURIALS_FULL = (
        "the event has to be given up, and no room for one more dead letter that is still to be stored"
    )
    OLDER_NODES_TRANSFORM = (
        "its transform cannot be recorded while a node lives that does not know transforms"
    )
    RESTING = "nothing waits"
    DISABLED = "the receiver is disabled"
    PAUSED = "its configuration pauses it"
    UNVERIFIED = "it has not proved itself, and the next handshake is not due yet"
    THROTTLED = "it asked for a pause (429, or 503 with Retry-After)"
    BACKING_OFF = (
        "the event that all others wait for failed (strict order), or the receiver failed too often in a row"
    )
    RETRYING = "the event failed, and its next attempt is not due yet"
    IN_HANDSHAKE = "it has not proved itself, and a handshake is under way"
    PINGING = "it is offline and gets pings in place of events, and one is under way"
    DOWN_HOST_UNREAD = "its host cannot be connected to, and the event waits for its turn only in the stream"
    FETCHING = "the event is open, its body is not in memory, and no handshake comes first"
    BATCH_IN_FLIGHT = "the event goes with others, and one of them is in flight"
    LINGERING = "more events may come for the batch, which has not waited for as long as it may"
    UNREADY = "the shard starts nothing now, or too many of the receiver's events are not confirmed yet"
    OUTAGE = "this node can connect to no host"
    OLDER_NODES = "it has not proved itself, and a node lives that does not know handshakes"
    PACE = "its learnt rate spaces attempts, and the next one is not due yet"
    TOKEN = "no token is left"
    HANDSHAKE = "it has not proved itself, and nothing stands in the way of a handshake"
    DOWN_HOST = "its host cannot be connected to, and it is the turn of another receiver there"
    OFFLINE_PING = "it is offline and gets pings in place of events, and nothing stands in the way of one"
    SLOW_START = "the next token takes long: the attempt is recorded before it is made"
    POSTING = "nothing stands in the way"


class Hold(Struct, frozen=True, gc=False):
    """The rule that holds a receiver back as a whole, and until when; `NEVER`: until an operator acts."""

    rule: Rule
    until: float


def hold(state: State, policy: Policy, now: float) -> Hold | None:
    """The rule that holds the receiver back; of several, the one that lasts longest without help."""
    if state.disabled:
        return Hold(Rule.DISABLED, NEVER)
    if policy.paused or state.paused:
        return Hold(Rule.PAUSED, NEVER)
    backoff_until = backing_off_until(state, policy)
    if not is_verified(state, policy):
        waits_until = max(next_handshake_at(state, policy), state.throttled_until, backoff_until)
        return Hold(Rule.UNVERIFIED, waits_until)
    if state.throttled_until > now:
        return Hold(Rule.THROTTLED, max(state.throttled_until, backoff_until))
    return Hold(Rule.BACKING_OFF, backoff_until) if backoff_until > now else None


def backing_off_until(state: State, policy: Policy) -> float:
    """The end of backoff: that of the receiver or, in strict order, of the event that all others wait for."""
    blocks_none = policy.order == "relaxed" or not state.open
    return max(state.backoff_until, 0.0 if blocks_none else state.open[0].next_at)
