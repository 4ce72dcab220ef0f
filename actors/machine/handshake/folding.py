"""The fold of a receiver's handshakes."""

from msgspec.structs import replace

from actors.machine import facts as f
from actors.machine.state import Handshake, State


def after_handshake(state: State, fact: f.HandshakeFact) -> State:
    """The state after a handshake began or ended. Only the one that was begun last counts."""
    known = state.handshake
    if isinstance(fact, f.HandshakeStarted):
        begun = known if known is not None and known.key == fact.key else Handshake(key=fact.key)
        return replace(state, handshake=begun, bucket=fact.bucket or state.bucket)
    if known is None or known.key != fact.key:
        return state
    if isinstance(fact, f.HandshakeSucceeded):
        passed = Handshake(key=fact.key, verified=True, per_minute=fact.per_minute)
        return replace(state, handshake=passed)
    state = replace(state, throttled_until=max(state.throttled_until, fact.until))
    if known.verified:
        return state  # An operator asked again: a time-out then takes nothing back.
    failed = replace(known, failures=known.failures + 1, next_at=fact.next_at, error=fact.error)
    if not (fact.ours or fact.until):  # A receiver that asks for a pause does not fail, as with events.
        since = known.failing_since
        failed = replace(failed, failed_at=fact.at, failing_since=fact.at if since is None else since)
    return replace(state, handshake=failed)


def due_at_once(known: Handshake | None) -> Handshake | None:
    """The handshake after an operator resumed its receiver: the next one does not wait for its backoff."""
    return known if known is None or known.verified else replace(known, failures=0, next_at=0.0)
