"""Receivers that are late: an attempt has been due for a minute, and nothing is being attempted.

A receiver that is held back, or out of tokens, is not late, however many events wait for it: this measures
Angarium, not receivers.
"""

from actors.machine.bucket import next_token_at
from actors.machine.scheduling.rules import hold
from actors.runtime.actor import Actor
from actors.runtime.host import Host

LATE_AFTER_S = 60.0


def is_late(actor: Actor, now: float) -> bool:
    """True if an attempt of this loaded actor is due for longer than a minute and none is in flight."""
    since = _due_since(actor, now)
    return since is not None and now - max(since, actor.environment.claimed_at) > LATE_AFTER_S


def not_loaded_late(host: Host, now: float) -> int:
    """The number of receivers that should have come back after the takeover more than a minute ago."""
    due = (at for at in host.residents.not_loaded.values() if at is not None)
    return sum(now - max(at, host.claimed_at) > LATE_AFTER_S for at in due)


def _due_since(actor: Actor, now: float) -> float | None:
    """The time from which on its next attempt could have started; None if none could."""
    state, policy = actor.state, actor.policy
    if policy is None or actor.pending.in_flight or hold(state, policy, now) is not None:
        return None
    if actor.environment.down_hosts.is_down(policy):
        return None
    in_turn = state.open[:1] if policy.order == "strict" else state.open
    waiting = [max(each.stored_at, each.next_at) for each in in_turn]
    if not waiting or policy.order == "relaxed":
        head = actor.pending.mailbox.head
        waiting += [] if head is None else [head.stored_at]
        waiting += [state.waiting_since] if head is None and state.parked and state.waiting_since else []
    if not waiting:
        return None
    token_at = 0.0
    tokens = actor.live.tokens
    if tokens.bucket is not None and tokens.limit is not None:
        token_at = next_token_at(tokens.bucket, tokens.limit)
    last_at = 0.0 if state.last is None else state.last.at
    return max(min(waiting), state.throttled_until, state.backoff_until, token_at, last_at)
