"""The handshake of a receiver for people: as a part of its live state, and in words."""

from collections.abc import Callable
from typing import TypedDict

from actors.configuration.policy import Policy
from actors.machine.handshake.proof import current_handshake
from actors.machine.state import Handshake, State


class HandshakeState(TypedDict):
    """The handshake of a receiver that has to prove itself, under the configuration in force.

    `next_at`: when the next one is due; none is made while nothing waits. `allowed_per_minute`: requests a
    minute that the receiver allowed, if it said so.
    """

    kind: str
    verified: bool
    failures: int
    failing_since: str | None
    error: str | None
    next_at: str | None
    allowed_per_minute: int | None


def handshake_state(
    state: State, policy: Policy | None, instant: Callable[[float | None], str | None]
) -> HandshakeState | None:
    """The handshake as JSON, with times by `instant`; None if the configuration asks for none."""
    if policy is None or policy.handshake == "none":
        return None
    known = current_handshake(state, policy) or Handshake(key="")
    return {
        "kind": policy.handshake,
        "verified": known.verified,
        "failures": known.failures,
        "failing_since": instant(known.failing_since),
        "error": known.error or None,
        "next_at": instant(known.next_at or None),
        "allowed_per_minute": known.per_minute,
    }


def handshake_words(known: Handshake | None, following: str) -> str:
    """Say how far the handshake is: `the handshake failed twice, the last: HTTP 404; the next is due`.

    `following`: what comes next; empty if nothing is known about that.
    """
    if known is None or not known.failures:
        return f"it has to prove itself; {following or 'a handshake is made before the next event is sent'}"
    times = "once" if known.failures == 1 else f"{known.failures} times"
    return f"the handshake failed {times}, the last: {known.error}; {following or 'the next is due'}"
