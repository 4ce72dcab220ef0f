"""The return of a receiver that was offline: at a moment of its own, without a burst, one attempt first.

Receivers of one host come back together. So each begins at a moment within `JITTER_MAX_S` that its name
decides; one that asked for a pause has named the moment itself. From then on its bucket fills, which is empty
by then: one attempt for each token is what all of them together can take (`docs/decisions/offline-pings.md`).
In relaxed order one attempt is in flight first, and twice as many after each round of successes without a
failure.
"""

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.ids import fraction
from actors.machine.facts import Delivered, Throttled
from actors.machine.state import Returning, State

JITTER_MAX_S = 2.0
"""The latest moment at which a receiver that has come back gets events again."""
RETURN_MAX_S = 60.0
"""Time after which the number of attempts is bounded no longer, however many of them fail."""
SUCCESSES_MAX = 255
"""Successes after which as many attempts may be in flight as any configuration allows."""


def is_offline(state: State, policy: Policy, now: float) -> bool:
    """True if the receiver has had no success for so long that it counts as offline."""
    return state.failing_since is not None and state.failing_s(now) >= policy.offline.after_s


def return_at(state: State, policy: Policy | None, at: float) -> float:
    """The time from which on a receiver with a success at `at` gets events; 0.0 if it was not offline."""
    if policy is None or not is_offline(state, policy, at):
        return 0.0
    named_by_receiver = isinstance(state.last, Throttled)
    return at if named_by_receiver else at + JITTER_MAX_S * fraction(state.receiver, 0, 0)


def width_on_return(returning: Returning, widest: int, now: float) -> int:
    """The number of attempts that may be in flight, of `widest` that the configuration allows."""
    if now >= returning.begins_at + RETURN_MAX_S:
        return widest
    return min(widest, _width(returning.successes))


def after_success(state: State, fact: Delivered) -> State:
    """The state after a success that ends the time offline, or that follows soon after it."""
    if fact.returns_at:
        # The delays of open events were about the time offline. A success without an event is a ping.
        opened = state.open if fact.events else tuple(replace(each, next_at=0.0) for each in state.open)
        begun = Returning(begins_at=fact.returns_at, successes=1 if fact.events else 0)
        return replace(state, open=opened, backoff_until=fact.returns_at, returning=begun)
    returning = state.returning
    if returning is None or not fact.events:
        return state
    successes = returning.successes + 1
    is_over = successes >= SUCCESSES_MAX or fact.at >= returning.begins_at + RETURN_MAX_S
    return replace(state, returning=None if is_over else replace(returning, successes=successes))


def after_failure(state: State) -> Returning | None:
    """The return after a failed attempt, whose round begins again; None if the receiver does not return."""
    returning = state.returning
    return None if returning is None else replace(returning, successes=_width(returning.successes) - 1)


def _width(successes: int) -> int:
    """The number of attempts after so many successes: 1, then 2, 4, 8 and so on."""
    return 1 << ((successes + 1).bit_length() - 1)
